"""Ledgers that somebody else wrote become a topic, however many there are, and whatever stops on the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.formats.layout import HEADER_BYTES, encode_header, ledger_path
from magnetar.ledger.port import LedgerSummary
from magnetar.metadata import MAX_COMMIT_BYTES, MemoryStore, MetadataUnavailable, Op
from magnetar.node.adoption import adopt, reserve
from magnetar.node.broker import Broker
from magnetar.settings.settings import Settings
from magnetar.topics.new_topic import NewTopic

PARTITIONS = 2500
NAME = "n" * 200


class CountingStore(MemoryStore):
    """Counts the operations of commits, and after some of them fails the next one that has many."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.fails_after = -1

    async def commit(self, ops: Sequence[Op]) -> list[int]:
        if len(ops) > 100:
            if self.fails_after == 0:
                self.fails_after = -1
                raise MetadataUnavailable("the store is away")
            self.fails_after -= 1
        self.sizes.append(len(ops))
        return await super().commit(ops)


@pytest.mark.slow
@pytest.mark.parametrize("stops", [False, True])
async def test_very_many_partitions_are_adopted_and_nothing_of_them_is_lost(
    tmp_path: Path, stops: bool
) -> None:
    store = CountingStore()
    engine = FilesEngine(tmp_path, store, RealDisk())
    await engine.start()
    broker = Broker(Settings(), store, engine)
    await broker.start()
    new = NewTopic(broker.naming.parse(NAME), PARTITIONS, {})
    ids = await reserve(broker, new, PARTITIONS)
    logs = {partition: [_sealed(tmp_path, ledger_id)] for partition, ledger_id in enumerate(ids)}
    if stops:
        store.fails_after = 1
        with pytest.raises(MetadataUnavailable):
            await adopt(broker, new, logs)
        assert broker.get(NAME) is None
    store.sizes.clear()
    topic = await adopt(broker, new, logs)
    # More than one commit could hold, and others' have their turn in between.
    assert max(store.sizes) * (len(NAME) + 100) < MAX_COMMIT_BYTES / 2
    await engine.close()

    again = FilesEngine(tmp_path, store, RealDisk())
    await again.start()
    for partition, name in enumerate(topic.ledger_names()):
        (found,) = await again.summaries(name)
        assert found.ledger_id == ids[partition]
        assert ledger_path(tmp_path, found.ledger_id).exists()
    await again.close()


def _sealed(root: Path, ledger_id: int) -> LedgerSummary:
    path = ledger_path(root, ledger_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_header(ledger_id, 0))
    return LedgerSummary(ledger_id, 0, entries=1, size=HEADER_BYTES, last_offset=0, sealed=True)
