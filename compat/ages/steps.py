"""What every age of every client is asked, and what must be stored then."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from apps import topics
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from waiting import same

from ages import stored
from ages.drive import ClientFailed, Program
from ages.program import key, value

RECORDS = 3_000
FEW = 10
JOINS_S = 5
"""How long a client that cannot join a group of nothing is waited for before its topic is made all the same."""


@dataclass
class Asked:
    """One client at one address."""

    program: Program
    address: str
    prefix: str
    t0: int
    without: Collection[str] = ()
    stored: dict[str, Any] = field(default_factory=dict)
    """What was found stored, to stand in the results."""

    def topic(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def make(self, name: str) -> str:
        """A topic that the client's own admin makes, where it has one."""
        topic = self.topic(name)
        if "create" in self.without:
            topics.make(self.address, topic, 1)
        else:
            self.program.do("create", topic)
        topics.until(f"{topic} to be listed", lambda: topics.partitions(self.address, topic) == [0])
        return topic

    def read(self, topic: str, group: str, count: int, isolation: str = "read_uncommitted") -> list[int]:
        numbers: list[int] = self.program.do("read", topic, group, count, isolation)["numbers"]
        return numbers


def codec(name: str) -> Callable[[Asked], None]:
    def step(asked: Asked) -> None:
        topic = asked.make(name)
        asked.program.do("produce", topic, name, 0, RECORDS, "plain")
        batches = looked_at(asked, topic)
        same({each.codec for each in batches}, {name}, "codecs of the batches that are stored")
        same(len(batches) <= RECORDS // 5, True, f"records come in batches, not in {len(batches)}")
        same(asked.read(topic, asked.topic("readers"), RECORDS), list(range(RECORDS)), "numbers read")

    step.__name__ = f"codec_{name}"
    step.__doc__ = (
        f"{RECORDS:,} records in {name} batches, read by a group; stored are {name} batches, times, headers"
    )
    if name == "none":
        step.__doc__ = f"{RECORDS:,} records that are not compressed, read by a group; the same is stored"
    return step


def looked_at(asked: Asked, topic: str, producers: int = 1) -> list[stored.Batch]:
    """Check what is stored of records 0 to ``RECORDS`` - 1, and give its batches."""
    batches = stored.batches(asked.address, topic)
    asked.stored = {
        "codecs": sorted({each.codec for each in batches}),
        "batches": len(batches),
        "bytes": sum(each.size for each in batches),
        "producers": len({each.producer_id for each in batches if each.producer_id >= 0}),
    }
    same(sum(each.records for each in batches), RECORDS, "records of the batches that are stored")
    same({each.magic for each in batches}, {2}, "formats of the batches that are stored")
    same(len({each.producer_id for each in batches}), producers, "producer ids of one producer")
    records = stored.records(asked.address, topic)
    numbers = range(RECORDS)
    same([each.offset for each in records], list(numbers), "offsets")
    same([each.value for each in records] == [value(i) for i in numbers], True, "values are stored")
    same([each.key for each in records] == [key(i) for i in numbers], True, "keys are stored")
    if "headers" not in asked.without:
        wanted = [[("n", b"%d" % i)] for i in numbers]
        same([list(each.headers) for each in records] == wanted, True, "headers are stored")
    times = [each.time_ms for each in records]
    latest = [max(times[each.offset : each.offset + each.records]) for each in batches]
    same([each.latest_ms for each in batches], latest, "latest times that the batches' heads have")
    if "timestamps" in asked.without:
        same(times, sorted(times), "times rise")
    else:
        same(times == [asked.t0 + i for i in numbers], True, "times are stored")
    return batches


def idempotent(asked: Asked) -> None:
    """the same by an idempotent producer: one producer id, and sequences without a gap"""
    topic = asked.make("idempotent")
    asked.program.do("produce", topic, "none", 0, RECORDS, "idempotent")
    batches = looked_at(asked, topic)
    same(batches[0].producer_id >= 0, True, f"a producer id, which is {batches[0].producer_id}")
    same([each.sequence for each in batches], [each.offset for each in batches], "sequences")


def transactions(asked: Asked) -> None:
    """one transaction is committed, one aborted, one committed: three markers, and a reader sees the first and third"""
    topic, name = asked.make("transactions"), asked.topic("id")
    for part, end in enumerate(("commit", "abort", "commit")):
        asked.program.do("transaction", topic, name, 100 * part, 100 * (part + 1), end)
    topics.until("the last marker", lambda: _markers(asked, topic) == 3)
    batches = stored.batches(asked.address, topic)
    asked.stored = {"batches": len(batches), "markers": _markers(asked, topic)}
    same(all(each.is_transactional for each in batches), True, "all batches are of transactions")
    same(sum(each.records for each in batches if not each.is_control), 300, "records that are stored")
    same(len({each.producer_id for each in batches}), 1, "producer ids")
    wanted = [*range(100), *range(200, 300)]
    same(asked.read(topic, asked.topic("committed"), 200, "read_committed"), wanted, "numbers read")


def _markers(asked: Asked, topic: str) -> int:
    return sum(each.is_control for each in stored.batches(asked.address, topic))


def commit(asked: Asked) -> None:
    """a member reads, commits and leaves; the next goes on where it stopped, nothing twice, nothing left out"""
    topic, group = asked.make("commit"), asked.topic("halves")
    asked.program.do("produce", topic, "none", 0, RECORDS, "plain")
    first = asked.read(topic, group, RECORDS // 2)
    where = topics.committed(asked.address, group, topic)[0]
    same(where, len(first), "the offset that is stored")
    if "committed" not in asked.without:
        same(
            asked.program.do("committed", topic, group)["offset"], where, "the offset that the client is told"
        )
    rest = asked.read(topic, group, RECORDS - len(first))
    same(first + rest, list(range(RECORDS)), "numbers read in two parts")


def times(asked: Asked) -> None:
    """the offset by a time in the middle"""
    topic = asked.topic("commit")
    at = stored.records(asked.address, topic)[RECORDS // 2].time_ms
    wanted = next(each.offset for each in stored.records(asked.address, topic) if each.time_ms >= at)
    same(asked.program.do("time", topic, at)["offset"], wanted, "the offset")


def early(asked: Asked) -> None:
    """a member subscribes before its topic is there, which is made by itself, and reads what comes"""
    _early(asked, "early", makes=False)


def early_closed(asked: Asked) -> None:
    """the same where brokers make no topic by themselves: an admin makes it a second later"""
    _early(asked, "early-closed", makes=True)


def _early(asked: Asked, name: str, *, makes: bool) -> None:
    topic, group = asked.topic(name), asked.topic(f"{name}-readers")
    asked.program.ask("read", topic, group, FEW, "read_uncommitted")
    end = time.monotonic() + JOINS_S
    while time.monotonic() < end and not _has_members(asked.address, group):
        time.sleep(0.1)
    time.sleep(1)
    if makes:
        topics.make(asked.address, topic, 1)
    topics.produce(asked.address, topic, [(None, value(i).decode(), []) for i in range(FEW)])
    same(asked.program.answer()["numbers"], list(range(FEW)), "numbers read")
    same(topics.committed(asked.address, group, topic), {0: FEW}, "the group's offset that is stored")


def _has_members(address: str, group: str) -> bool:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 3})
    try:
        return bool(admin.describe_consumer_groups([group])[group].result(JOINS_S).members)
    except (KafkaException, TimeoutError):  # whose coordinator a fresh broker has yet to make
        return False


OPEN: Sequence[Callable[[Asked], None]] = (
    *map(codec, stored.CODECS),
    idempotent,
    transactions,
    commit,
    times,
    early,
)
CLOSED: Sequence[Callable[[Asked], None]] = (early_closed,)
"""Where brokers make no topics by themselves."""
NAMES = tuple(each.__name__ for each in (*OPEN, *CLOSED))
MEANINGS = {each.__name__: " ".join((each.__doc__ or "").split()) for each in (*OPEN, *CLOSED)}


def outcomes(asked: Asked, steps: Sequence[Callable[[Asked], None]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Take each step, and give what is kept of it."""
    for step in steps:
        asked.stored = {}
        try:
            step(asked)
            problem = ""
        except (AssertionError, ClientFailed, Exception) as error:
            problem = f"{type(error).__name__}: {error}"[:400]
        yield step.__name__, {"ok": not problem, "detail": problem, "stored": asked.stored}
