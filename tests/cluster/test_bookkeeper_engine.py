"""The engine on bookies keeps the contract of all engines, on a real cluster."""

from __future__ import annotations

import asyncio
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from magnetar.ledger.cursors.cursor import Start
from magnetar.ledger.errors import LedgerError, LedgerFenced, LedgerNotFound, StorageFailed, StorageFull
from magnetar.ledger.formats.cursor_info import cursor_path
from magnetar.ledger.formats.info import decode_info, encode_info
from magnetar.ledger.ledger_list import STARTS
from magnetar.ledger.port import NOWHERE, CompactionRules, LedgerPolicy, Snapshot
from magnetar.metadata import (
    ANY,
    MetadataStore,
    MetadataUnavailable,
    MetadataUncertain,
    Op,
    Put,
    Stored,
)
from tests.cluster.servers import Cluster, class_path
from tests.contracts.managed_ledger import House, ManagedLedgerContract
from tests.ledger.entries import NOW_MS, append, append_durably, batch, payload, read_all

class_path()  # skips the module where BookKeeper cannot be run
pytestmark = [pytest.mark.slow]

import jpype  # noqa: E402

from magnetar.ledger.bookkeeper import jars  # noqa: E402
from magnetar.ledger.bookkeeper.bookies import Bookies, Quorums  # noqa: E402
from magnetar.ledger.bookkeeper.engine import BookKeeperEngine  # noqa: E402
from magnetar.ledger.bookkeeper.on_their_way import OnTheirWay  # noqa: E402
from magnetar.ledger.bookkeeper.opening import CheckpointNode  # noqa: E402
from magnetar.metadata.zookeeper import ZooKeeperStore  # noqa: E402
from magnetar.metadata.zookeeper_session import ZooKeeperSession  # noqa: E402

_roots = (f"/tests/{number}" for number in count())


class BookKeeperHouse(House):
    """Engines on one cluster, each house with metadata of its own below another root."""

    metadata: MetadataStore
    full = (StorageFull, StorageFailed)
    """Bookies that are gone are too few, or do not answer in time: who writes learns what comes first."""
    may_take_what_it_had_no_room_for = True

    def __init__(self, cluster: Cluster, root: str = "") -> None:
        self.cluster = cluster
        self.root = root or next(_roots)

    async def begin(self) -> None:
        self.metadata = await ZooKeeperStore.open(self.cluster.hosts, self.root, session_seconds=10)
        bookies = Bookies(self.cluster.hosts, "", jars.installed(), quorums=Quorums(2, 2, 2), add_timeout_s=9)
        self.engine = self.make_engine(bookies)
        await self.engine.start()
        self.ids_before = getattr(self, "ids_before", None) or await self._ids()

    def make_engine(self, bookies: Bookies) -> BookKeeperEngine:
        return BookKeeperEngine(bookies, self.metadata, clock=lambda: self.now_ms)

    async def end(self) -> None:
        await self.engine.close()
        self.left = await self._ids() - self.ids_before
        await self.metadata.close()

    async def reopen(self) -> None:
        await self.end()
        await self.begin()

    async def _ids(self) -> set[str]:
        store = await ZooKeeperStore.open(self.cluster.hosts, "/ledgers")
        found = {path for path in await store.get_tree("/") if re.search(r"/L\d+$", path)}
        await store.close()
        return found

    def fill_disk(self) -> Callable[[], None]:
        for each in self.cluster.bookies[:2]:
            each.kill()

        def free() -> None:
            for each in self.cluster.bookies[:2]:
                each.start()
            self.cluster.await_bookies()

        return free

    def ledger_files(self) -> int:
        return len(self.left)


@pytest.fixture
async def house(cluster: Cluster) -> AsyncIterator[BookKeeperHouse]:
    house = BookKeeperHouse(cluster)
    await house.begin()
    yield house
    await house.end()


class TestBookKeeperEngine(ManagedLedgerContract):
    """All of it."""


async def test_whoever_opens_a_log_has_it_and_nothing_acknowledged_is_lost(house: BookKeeperHouse) -> None:
    log = await house.open(max_ledger_entries=50)
    told: list[LedgerError] = []
    log.on_closed.append(told.append)
    acknowledged: list[int] = []
    refused: list[BaseException] = []

    async def write(number: int) -> None:
        try:
            pending = append(log, b"%d" % number)
            await pending.settled()
        except LedgerError as error:
            refused.append(error)
        else:
            acknowledged.append(pending.base_offset)

    async def write_all() -> None:
        for number in range(300):
            await asyncio.gather(write(2 * number), write(2 * number + 1))

    writing = asyncio.ensure_future(write_all())
    while len(acknowledged) < 120:  # noqa: ASYNC110 - some time in the midst of it
        await asyncio.sleep(0.01)
    other = BookKeeperHouse(house.cluster, house.root)
    await other.begin()
    taken = await other.open()
    end = taken.log_end_offset
    await append_durably(taken, b"from the other one")
    await writing
    assert refused
    assert all(isinstance(error, LedgerFenced) for error in refused)
    assert [type(reason) for reason in told] == [LedgerFenced]
    entries = await read_all(taken)
    assert [entry.last_offset for entry in entries] == list(range(end + 1))
    assert acknowledged == list(range(len(acknowledged)))
    assert len(acknowledged) <= end
    assert payload(entries[-1]) == batch(b"from the other one")
    assert house.engine.opened() == []
    await other.end()


async def test_a_former_owner_that_closes_late_takes_no_acknowledgement_back(house: BookKeeperHouse) -> None:
    before = await house.open()
    positions = [(await append_durably(before, b"%d" % number)).position for number in range(6)]
    late = await (await before.cursors()).open("c", Start.earliest)
    late.mark_delete(positions[0])  # in memory only
    other = BookKeeperHouse(house.cluster, house.root)
    await other.begin()
    log = await other.open()
    cursors = await log.cursors()
    cursor = await cursors.open("c")
    await house.engine.release(before.name)  # as one whose session was over while it stood still
    cursor.mark_delete(positions[2])
    await cursors.save()
    path = cursor_path(log.name, "c")
    stored = await other.metadata.get(path)
    assert stored is not None
    await other.metadata.commit([Put(path, stored.value, ANY)])  # as brokers did that looked at no claim
    cursor.mark_delete(positions[4])
    await cursors.save()
    await other.engine.release(log.name)
    again = await (await (await other.open()).cursors()).open("c")
    assert again.mark_delete_position == positions[4]
    await other.end()


async def test_a_writer_that_was_killed_leaves_all_that_it_acknowledged(house: BookKeeperHouse) -> None:
    log = await house.open()
    log.take_snapshot = lambda: b"known at %d" % log.log_end_offset
    for number in range(200):
        await append_durably(log, b"%d" % number, b"x", timestamp_ms=NOW_MS + number % 70)
        if number == 150:
            log.appends.note_snapshot()
    written = [each.data for each in await read_all(log)]
    other = BookKeeperHouse(house.cluster, house.root)  # as if the first one were not there any more
    await other.begin()
    again = await other.open()
    assert (again.log_start_offset, again.log_end_offset, again.high_watermark) == (0, 400, 400)
    assert again.snapshot == Snapshot(302, b"known at 302")
    assert [each.data for each in await read_all(again)] == written
    (ledger,) = again.ledgers()
    assert (ledger.sealed, ledger.entries, ledger.max_timestamp) == (True, 200, NOW_MS + 69)
    for offset in (0, 1, 37, 38, 250, 399):
        assert (await again.read(offset, max_bytes=1))[0].last_offset == offset | 1
    await other.end()


async def test_an_opening_asks_zookeeper_for_no_more_than_it_must(
    house: BookKeeperHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requests of a broker that takes over a thousand logs of a dead one are what that costs."""
    names = [f"t-{number}" for number in range(20)]
    for name in names:
        log = await house.engine.open(name, LedgerPolicy(), 3)
        log.take_snapshot = lambda: b"state"
        await append_durably(log, b"x")
    other = BookKeeperHouse(house.cluster, house.root)
    await other.begin()
    asked: list[str] = []
    ask = ZooKeeperSession.ask

    def counted(session: ZooKeeperSession, request: Any) -> asyncio.Future[Any]:
        if session is other.metadata.session and getattr(request, "path", "") != "/":  # that is its heartbeat
            asked.append(type(request).__name__)
        return ask(session, request)

    reads: list[int] = []
    read_by = Bookies.read_by

    async def read(bookies: Bookies, *given: Any, **more: Any) -> list[bytes]:
        reads.append(given[1])
        return await read_by(bookies, *given, **more)

    monkeypatch.setattr(ZooKeeperSession, "ask", counted)
    monkeypatch.setattr(Bookies, "read_by", read)
    assert await other.engine.left_open(names) == names
    for name in names:
        log = await other.engine.open(name, LedgerPolicy(), 4)
        assert [payload(each) for each in await log.read(0, max_bytes=1 << 20)] == [batch(b"x")]
        assert log.epoch_starts == "3 0\n4 1"
        log.take_snapshot = lambda: b"state"
        await append_durably(log, b"y")
    found = Counter(asked)
    assert found["Transaction"] == 2 * len(names), "each log is claimed, and gets a ledger"
    assert sum(found.values()) - found["Transaction"] <= 4, found
    assert len(reads) == len(names), "what was read when it was recovered is not read again"
    await other.end()


async def test_leader_epochs_lie_with_the_log(house: BookKeeperHouse) -> None:
    log = await house.engine.open("t", LedgerPolicy(), 2)
    assert log.epoch_starts == "2 0"
    await house.engine.release("t")
    log = await house.engine.open("t", LedgerPolicy(), 5)  # nothing was written under the one before
    assert log.epoch_starts == "5 0"
    await append_durably(log, b"0")
    await house.reopen()
    log = await house.engine.open("t", LedgerPolicy(), 6)
    await house.engine.release("t")
    log = await house.engine.open("t", LedgerPolicy(), 9)
    assert log.epoch_starts == "5 0\n9 1"
    await append_durably(log, b"1")
    await house.reopen()
    assert (await house.engine.open("t", LedgerPolicy(), 9)).epoch_starts == "5 0\n9 1"


async def test_leader_epochs_of_earlier_brokers_are_looked_up_once(house: BookKeeperHouse) -> None:
    log = await house.engine.open("t", LedgerPolicy(), 2)
    await append_durably(log, b"0")
    await house.engine.release("t")
    stored = await house.metadata.get("/managed-ledgers/t")
    assert stored is not None
    info = decode_info(stored.value)
    del info.properties[STARTS]  # as brokers did that had them elsewhere
    await house.metadata.commit([Put("/managed-ledgers/t", encode_info(info), stored.version)])
    log = await house.engine.open("t", LedgerPolicy(), 4)
    assert log.epoch_starts is None
    log.epoch_starts = "1 0\n4 1"
    await append_durably(log, b"1")
    await house.reopen()
    assert (await house.engine.open("t", LedgerPolicy(), 7)).epoch_starts == "1 0\n4 1\n7 2"


@pytest.mark.parametrize("goes", ["trim", "compact"])
async def test_what_a_checkpoint_is_owed_for_does_not_go_before_it(house: BookKeeperHouse, goes: str) -> None:
    log = await house.open()
    for number in range(3):
        await append_durably(log, b"%d" % number)
    other = BookKeeperHouse(house.cluster, house.root)
    await other.begin()
    log = await other.open()
    log.take_snapshot = lambda: b"known at %d" % log.log_end_offset
    await append_durably(log, b"3")
    assert await other.metadata.get(CheckpointNode(other.metadata, log.name).path) is None
    if goes == "trim":
        await log.trim(2)
    else:
        await log.compact(CompactionRules())
    third = BookKeeperHouse(house.cluster, house.root)
    await third.begin()
    assert (await third.open()).snapshot == Snapshot(4, b"known at 4")
    await third.end()
    await other.end()


async def test_a_bookie_that_dies_is_replaced_by_another(house: BookKeeperHouse) -> None:
    log = await house.open()
    await append_durably(log, b"before")
    victim = house.cluster.bookies[0]
    victim.kill()
    try:
        for number in range(50):
            await append_durably(log, b"%d" % number)
        assert len(log.ledgers()) == 1, "BookKeeper changes the ensemble of the open ledger"
        assert len(await read_all(log)) == 51
    finally:
        victim.start()
        house.cluster.await_bookies()


async def test_appends_that_bookies_do_not_answer_fail_in_time(house: BookKeeperHouse) -> None:
    log = await house.open()
    await append_durably(log, b"before")
    for each in house.cluster.bookies:
        each.send(signal.SIGSTOP)
    try:
        with pytest.raises((StorageFull, StorageFailed)):
            await append_durably(log, b"in vain")
    finally:
        for each in house.cluster.bookies:
            each.send(signal.SIGCONT)
    assert log.log_end_offset == 1
    while True:
        try:
            assert (await append_durably(log, b"after")).base_offset == 1
        except (StorageFull, StorageFailed):
            continue
        break
    assert [payload(each) for each in await read_all(log)] == [batch(b"before"), batch(b"after")]


async def test_what_was_just_written_is_read_from_memory(house: BookKeeperHouse) -> None:
    log = await house.open()
    for number in range(20):
        await append_durably(log, b"%d" % number)
    for each in house.cluster.bookies:
        each.send(signal.SIGSTOP)
    try:
        assert len(await read_all(log)) == 20
    finally:
        for each in house.cluster.bookies:
            each.send(signal.SIGCONT)


async def test_a_ledger_that_is_gone_is_said_with_its_name(house: BookKeeperHouse) -> None:
    log = await house.open()
    await append_durably(log, b"x")
    (ledger,) = log.ledgers()
    await house.reopen()
    await house.engine.bookies.delete(ledger.ledger_id)
    log = await house.open()
    with pytest.raises(LedgerNotFound, match=f"ledger {ledger.ledger_id} cannot be opened"):
        await log.read(0, max_bytes=1)


async def test_a_ledger_of_which_nobody_knows_whether_it_is_in_the_list_stays(
    house: BookKeeperHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await house.open(max_ledger_entries=2)
    for number in range(2):
        await append_durably(log, b"%d" % number)
    commit = house.metadata.commit

    async def kept(ops: Sequence[Op]) -> Sequence[int]:
        await commit(ops)
        raise MetadataUncertain("the connection broke while a commit was written")

    async def unreachable(path: str) -> Stored | None:
        raise MetadataUnavailable("it cannot be reached")

    monkeypatch.setattr(house.metadata, "commit", kept)
    monkeypatch.setattr(house.metadata, "get", unreachable)
    with pytest.raises(LedgerError):
        await append_durably(log, b"of which nobody knows")
    monkeypatch.undo()
    await house.reopen()
    log = await house.open(max_ledger_entries=2)
    await append_durably(log, b"2")
    assert [payload(each) for each in await read_all(log)] == [batch(b"0"), batch(b"1"), batch(b"2")]


def test_its_servers_begin_with_archives_of_their_classes(cluster: Cluster) -> None:
    for each in (cluster.zookeeper, *cluster.bookies):
        assert "/class-archives/cluster-" in Path(f"/proc/{each.pid}/maps").read_text(), each.name


def test_servers_that_a_failed_test_left_killed_are_there_for_the_next(cluster: Cluster) -> None:
    """Else that one says nothing by its failure, nor does the second try of the first."""
    cluster.bookies[0].kill()
    cluster.bookies[1].end()
    cluster.mend()
    assert [each for each in cluster.bookies if each.has_ended] == []


async def test_what_is_on_its_way_to_bookies_that_stand_still_is_bounded(house: BookKeeperHouse) -> None:
    way = house.engine.bookies.on_their_way = OnTheirWay(100_000)
    logs = [await house.open(f"t-{number}") for number in range(3)]
    for log in logs:
        await append_durably(log, b"the ledger is there")
    for each in house.cluster.bookies:
        each.send(signal.SIGSTOP)
    try:
        placed = [[append(log, b"%d" % number + b"x" * 10_000) for number in range(50)] for log in logs]
        await asyncio.sleep(0.1)
        assert 100_000 <= way.size < 111_000
        waiting = sum(each.position == NOWHERE for some in placed for each in some)
        assert 135 <= waiting <= 141, "a client of Pulsar's is not read while one of these is its own"
    finally:
        for each in house.cluster.bookies:
            each.send(signal.SIGCONT)
    for log, some in zip(logs, placed, strict=True):
        for each in some:
            await each.settled()
        read = [payload(entry) for entry in await read_all(log)]
        assert read == [batch(b"the ledger is there"), *(batch(b"%d" % n + b"x" * 10_000) for n in range(50))]
    assert way.size == 0


async def test_an_entry_for_which_java_has_no_memory_is_refused_and_what_follows_it(
    house: BookKeeperHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await house.open()
    await append_durably(log, b"kept")
    bookies = house.engine.bookies
    allocator = bookies._allocator

    class Full:
        def directBuffer(self, size: int) -> Any:
            if size > 1000:
                raise jpype.JClass("java.lang.OutOfMemoryError")("there is no direct memory left")
            return allocator.directBuffer(size)

    monkeypatch.setattr(bookies, "_allocator", Full())
    placed = [append(log, b"%d" % number + b"x" * (2000 if number == 2 else 0)) for number in range(5)]
    told = await asyncio.gather(*(each.settled() for each in placed), return_exceptions=True)
    kept = sum(not isinstance(each, Exception) for each in told)
    assert kept <= 2
    assert all(isinstance(each, StorageFull) for each in told[kept:])
    assert "no direct memory" in str(told[2])
    await append_durably(log, b"afterwards")
    read = [payload(entry) for entry in await read_all(log)]
    assert read == [batch(b"kept"), *(batch(b"%d" % number) for number in range(kept)), batch(b"afterwards")]
    assert bookies.on_their_way.size == 0
