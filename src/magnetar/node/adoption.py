"""A topic made of ledgers that somebody else wrote: how a restored topic comes into being, all at once.

First ids are reserved (none is ever given twice), then ledgers are written below the data directory under these ids, by
anybody and for as long as it takes, and at last the broker adopts them. Whatever stops before that leaves files that
nothing refers to; ``magnetar ledger repair`` removes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from magnetar.base.errors import BrokerError
from magnetar.ledger.errors import LedgerCorrupt
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.formats.info import ManagedLedgerInfo, encode_info, path_of
from magnetar.ledger.formats.layout import HEADER_BYTES, check_header, ledger_path
from magnetar.ledger.port import LedgerSummary
from magnetar.metadata import MUST_NOT_EXIST, Put
from magnetar.metadata.ops import in_commits
from magnetar.node.broker import Broker
from magnetar.topics.new_topic import NewTopic
from magnetar.topics.topic import Topic


async def reserve(broker: Broker, new: NewTopic, ledgers: int) -> tuple[int, ...]:
    """Return ids for so many ledgers of a topic to be; raise what `Broker.plan_free` raises if it could not be made."""
    broker.plan_free(new)
    engine = _engine(broker)
    return tuple([await engine.ids.new() for _ in range(ledgers)])


async def adopt(broker: Broker, new: NewTopic, logs: Mapping[int, Sequence[LedgerSummary]]) -> Topic:
    """Make the topic of these sealed ledgers, by partition, oldest first; it is there as soon as all of it is.

    Raises what `Broker.plan_free` raises, and ``LedgerCorrupt`` for ledgers that do not follow each other or whose
    files are not what was said.
    """
    engine = _engine(broker)

    def check() -> None:
        for partition, ledgers in logs.items():
            _check(engine.root, partition, ledgers)

    await engine.shared.work.in_thread(check)

    async def store(topic: Topic) -> None:
        names = dict(enumerate(topic.ledger_names()))
        wanted = {names[partition]: _list_of(ledgers) for partition, ledgers in logs.items()}
        # An adoption that died half-way left lists behind; those of these very ledgers stay, or their files would go.
        kept = await broker.store.get_many([path_of(name) for name in names.values()])
        for name, stored in zip(names.values(), kept, strict=True):
            if stored is not None and stored.value == wanted.get(name):
                del wanted[name]
            else:
                await engine.delete(name)
        for some in in_commits(Put(path_of(name), each, MUST_NOT_EXIST) for name, each in wanted.items()):
            await broker.store.commit(some)

    return await broker.create_with(new, store)


def _list_of(ledgers: Sequence[LedgerSummary]) -> bytes:
    return encode_info(ManagedLedgerInfo(list(ledgers), {"first_offset": str(ledgers[0].first_offset)}))


def _engine(broker: Broker) -> FilesEngine:
    if not isinstance(broker.engine, FilesEngine):
        raise BrokerError("only the storage engine 'files' can adopt ledgers")
    return broker.engine


def _check(root: Path, partition: int, ledgers: Sequence[LedgerSummary]) -> None:
    expected = ledgers[0].first_offset
    for each in ledgers:
        if each.first_offset != expected or each.last_offset < each.first_offset or not each.sealed:
            raise LedgerCorrupt(
                f"ledger {each.ledger_id} of partition {partition} does not begin at {expected}"
            )
        expected = each.last_offset + 1
        path = ledger_path(root, each.ledger_id)
        try:
            with path.open("rb") as file:
                check_header(file.read(HEADER_BYTES), each.ledger_id, path)
                size = file.seek(0, 2)
        except FileNotFoundError:
            raise LedgerCorrupt(f"{path}: the ledger is not there") from None
        if size != each.size:
            raise LedgerCorrupt(f"{path}: it has {size} bytes, not {each.size}")
