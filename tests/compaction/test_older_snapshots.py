"""A snapshot of the producers that is older than a compaction: what it says is checked against what is left.

Each test writes a log by hand, keeps the snapshot of a certain moment, compacts, and loads the log by that snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from magnetar.ledger.memory import MemoryDisk, MemoryEngine
from magnetar.ledger.port import CompactionRules, Flush, LedgerPolicy, ManagedLedger, Snapshot, StoredEntry
from magnetar.ledger.transactions import AbortedTransaction
from magnetar.logs import producer_log
from magnetar.logs.decided import last_message
from magnetar.logs.producers import EndTransactionMarker, ProducerStates
from magnetar.metadata import MemoryStore
from magnetar.pulsar.places import Places
from magnetar.records.batch import TRANSACTIONAL, PlainRecord, encode_batch, read_header
from magnetar.records.control import marker_batch
from magnetar.records.entry import kafka_message_head
from magnetar.records.pulsar_plain import with_offsets

NOW_MS = 1_790_000_000_000
AT_ONCE = CompactionRules(replaces=True, tombstones_ms=0)


class Written:
    """A log of one partition, and what is known of its producers."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.engine = MemoryEngine(MemoryStore(), MemoryDisk(), clock=lambda: self.now_ms)
        self.states = ProducerStates()
        self.sequences: dict[int, int] = {}
        self.snapshot: Snapshot | None = None
        self.log: ManagedLedger

    async def open(self) -> Written:
        await self.engine.start()
        self.log = await self.engine.open("public/default/persistent/t", LedgerPolicy(flush=Flush.os))
        await self.log.note_transactions()
        self.log.transactions = self.states.transactions
        return self

    async def write(self, *keys: bytes | None, producer: int = -1) -> None:
        """Write a batch with a record for each key, in the transaction of ``producer`` if that is one."""
        base = self.log.log_end_offset
        data = encode_batch(
            [PlainRecord(key, b"v", (), self.now_ms) for key in keys],
            base_offset=base,
            producer_id=producer,
            producer_epoch=min(producer, 0),
            base_sequence=-1 if producer < 0 else self.sequences.get(producer, 0),
            attributes=0 if producer < 0 else TRANSACTIONAL,
        )
        if producer >= 0:
            self.sequences[producer] = self.sequences.get(producer, 0) + len(keys)
            self.states.add(read_header(data), base)
        message = [kafka_message_head(self.now_ms, len(keys)), data]
        await self.log.append(message, messages=len(keys), timestamp_ms=self.now_ms).settled()

    async def end(self, producer: int, *, committed: bool) -> None:
        offset = self.log.log_end_offset
        self.states.end(EndTransactionMarker(producer, 0, committed, 0), offset, self.now_ms)
        data = marker_batch(producer, 0, self.now_ms, committed=committed, coordinator_epoch=0)
        message = [kafka_message_head(self.now_ms, 1), with_offsets(memoryview(data), offset)]
        await self.log.append(message, messages=1, timestamp_ms=self.now_ms).settled()

    def keep(self) -> None:
        """Keep the snapshot of now."""
        self.snapshot = Snapshot(self.log.log_end_offset, self.states.encode())

    async def compact(self, times: int = 3) -> None:
        """Compact until markers of which nothing is left are gone, too; each run takes one more record of key ``x``."""
        for _ in range(times):
            await self.log.roll()
            self.now_ms += 1000
            assert await self.log.compact(AT_ONCE)
            await self.write(b"x")

    async def left(self) -> list[int]:
        found, offset = list[int](), self.log.log_start_offset
        while entries := await self.log.read(offset, max_bytes=1 << 20):
            found += [each.last_offset for each in entries]
            offset = entries[-1].last_offset + 1
        return found

    async def loaded(self) -> ProducerStates:
        """Load the log by the snapshot that was kept."""
        self.log.snapshot = self.snapshot
        return await producer_log.load(self.log)


@pytest.fixture
async def written() -> Written:
    return await Written().open()


def aborted(states: ProducerStates) -> list[tuple[int, int, int]]:
    return [each[:3] for each in states.transactions.aborted()]


async def test_what_was_open_and_is_gone_is_not_open(written: Written) -> None:
    await written.write(b"k", producer=7)
    written.keep()
    await written.end(7, committed=True)
    await written.write(b"k")
    await written.compact()
    assert 0 not in await written.left()
    assert 1 not in await written.left()
    states = await written.loaded()
    assert states.transactions.open() == {}
    assert states.transactions.stable(written.log.high_watermark) == written.log.log_end_offset


async def test_what_was_open_and_is_left_ends_by_its_marker(written: Written) -> None:
    await written.write(b"k", producer=7)
    await written.write(b"left", producer=7)
    written.keep()
    await written.end(7, committed=False)
    await written.write(b"plain")
    states = await written.loaded()
    assert aborted(states) == [(7, 0, 2)]
    await written.write(b"stays open", producer=8)
    await written.log.roll()
    await written.log.compact(AT_ONCE)
    states = await written.loaded()
    assert states.transactions.open() == {8: 4}


async def test_what_is_left_behind_the_compaction_is_looked_for_up_to_the_snapshot(written: Written) -> None:
    """The first record is compacted away, the second is not: it must not come to count for who reads committed ones."""
    await written.write(b"k", producer=7)
    await written.log.roll()
    await written.write(b"left", producer=7)
    written.keep()
    await written.end(7, committed=False)
    await written.write(b"k")
    assert await written.log.compact(AT_ONCE)
    assert 0 not in await written.left()
    assert aborted(await written.loaded()) == [(7, 0, 2)]


async def test_records_of_its_producers_earlier_transaction_do_not_keep_one_open(written: Written) -> None:
    await written.write(b"k", producer=8)
    await written.write(b"left of the first", producer=7)
    await written.end(7, committed=True)
    await written.write(b"k", producer=7)
    written.keep()
    await written.end(8, committed=True)
    await written.end(7, committed=True)
    await written.write(b"k")
    await written.compact()
    assert {0, 3} & set(await written.left()) == set()
    assert 1 in await written.left()
    assert (await written.loaded()).transactions.open() == {}


async def test_the_first_record_alone_keeps_one_open(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction that knew nothing of transactions keeps what was aborted."""
    await written.write(b"left", producer=7)
    written.keep()
    await written.log.roll()
    await written.end(7, committed=False)
    with monkeypatch.context() as taken_over:
        taken_over.setattr(type(written.log), "has_transactions", False)
        written.log.transactions = None
        assert await written.log.compact(AT_ONCE)
    assert await written.left() == [0, 1]
    assert aborted(await written.loaded()) == [(7, 0, 1)]


async def test_others_transactions_behind_it_are_no_trouble(written: Written) -> None:
    """What is looked for ends before what the load replays in any case."""
    await written.write(b"k", producer=7)
    written.keep()
    await written.end(7, committed=True)
    await written.write(b"k")
    await written.compact()
    await written.write(b"open", producer=9)
    offset = written.log.log_end_offset - 1
    assert (await written.loaded()).transactions.open() == {9: offset}


class Reads:
    """Counts what is read of a log."""

    def __init__(self, log: ManagedLedger) -> None:
        self.made: list[tuple[int, int | None]] = []
        self._read = log.read

    async def __call__(
        self, offset: int, *, max_bytes: int, up_to: int | None = None
    ) -> Sequence[StoredEntry]:
        self.made.append((offset, up_to))
        return await self._read(offset, max_bytes=max_bytes, up_to=up_to)


@pytest.mark.parametrize("committed", [None, False], ids=["open", "aborted"])
async def test_only_what_was_compacted_is_looked_at(
    written: Written, committed: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start takes no longer for transactions that no compaction can have touched."""
    monkeypatch.setattr(producer_log, "_FEW_MARKERS", 0)
    await written.write(b"k", producer=8)
    await written.end(8, committed=False)
    await written.compact(1)
    await written.write(b"k", producer=7)
    if committed is not None:
        await written.end(7, committed=committed)
    written.keep()
    end = written.log.log_end_offset
    reads = Reads(written.log)
    monkeypatch.setattr(written.log, "read", reads)
    await written.loaded()
    compacted = max(each.last_offset for each in written.log.ledgers() if each.compacted)
    assert reads.made[0] == (1, compacted + 1), "what was aborted and compacted"
    assert all(up_to == compacted + 1 for _, up_to in reads.made)
    written.states.transactions.forget_ended({1})
    written.keep()
    reads.made.clear()
    await written.loaded()
    assert (reads.made, end) == ([], written.log.log_end_offset)


@pytest.mark.parametrize("few", [1000, 0], ids=["one by one", "all at once"])
async def test_aborted_ones_are_known_for_as_long_as_their_markers_are_there(
    written: Written, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_log, "_FEW_MARKERS", few)
    await written.write(b"k", producer=7)
    await written.end(7, committed=False)
    written.keep()
    await written.compact(1)
    assert await written.left() == [1, 2], "the marker outlives what it ends"
    assert aborted(await written.loaded()) == [(7, 0, 1)]
    written.log.transactions = written.states.transactions
    await written.compact(2)
    assert 1 not in await written.left()
    assert aborted(await written.loaded()) == []


@pytest.mark.parametrize("few", [1000, 0], ids=["one by one", "all at once"])
async def test_what_was_aborted_and_is_not_compacted_stays_known(
    written: Written, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_log, "_FEW_MARKERS", few)
    await written.write(b"x")
    await written.log.roll()
    await written.write(b"x")
    assert await written.log.compact(AT_ONCE)
    await written.write(b"k", producer=7)
    await written.end(7, committed=False)
    written.keep()
    assert aborted(await written.loaded()) == [(7, 2, 3)]


@pytest.mark.parametrize("few", [1000, 0], ids=["one by one", "all at once"])
async def test_nothing_left_at_all(written: Written, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_log, "_FEW_MARKERS", few)
    await written.write(b"k", producer=7)
    await written.end(7, committed=False)
    written.keep()
    await written.compact(1)
    await written.log.roll()
    written.now_ms += 1000
    assert await written.log.compact(AT_ONCE)
    assert await written.left() == [2]
    assert aborted(await written.loaded()) == []


async def test_a_marker_that_is_gone_with_all_behind_it_is_gone(written: Written) -> None:
    await written.write(b"k", producer=7)
    await written.end(7, committed=False)
    written.keep()
    await written.log.roll()
    assert await written.log.compact(AT_ONCE)
    await written.write(None)  # which no compaction keeps
    await written.log.roll()
    written.now_ms += 1000
    assert await written.log.compact(AT_ONCE)
    assert await written.left() == []
    assert aborted(await written.loaded()) == []


@pytest.mark.parametrize("few", [1000, 0], ids=["one by one", "all at once"])
async def test_of_several_those_are_known_whose_markers_are_there(
    written: Written, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_log, "_FEW_MARKERS", few)
    for producer in (7, 8):
        await written.write(b"k", producer=producer)
        await written.end(producer, committed=False)
    written.keep()
    await written.compact(1)
    assert aborted(await written.loaded()) == [(7, 0, 1), (8, 2, 3)]


@pytest.mark.parametrize("few", [1000, 0], ids=["one by one", "all at once"])
@pytest.mark.parametrize("start", [1, 2])
async def test_markers_that_were_let_go_of_on_demand_are_not_read(
    written: Written, few: int, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_log, "_FEW_MARKERS", few)
    await written.write(b"k", producer=7)
    await written.end(7, committed=False)
    written.keep()
    await written.compact(2)
    await written.log.trim(start)
    states = await written.loaded()
    assert states.transactions.stable(written.log.high_watermark) == written.log.log_end_offset
    assert start == 2 or not aborted(states)


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("committed", [True, False])
async def test_the_log_knows_its_transactions_where_it_has_any(
    written: Written, noted: bool, committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that was taken over does not say so itself. Where all was committed, readers need not look."""
    monkeypatch.setattr(type(written.log), "has_transactions", noted)
    await written.write(b"k", producer=7)
    await written.end(7, committed=committed)
    written.log.transactions = None
    states = await written.loaded()
    assert written.log.transactions is (states.transactions if noted or not committed else None)


async def test_a_batch_that_is_let_go_of_in_part_still_opens_its_transaction(written: Written) -> None:
    """DeleteRecords may end in the middle of a batch: the rest of it is of the transaction none the less."""
    await written.write(b"1", b"2", b"3", producer=7)
    await written.log.trim(1)
    states = await written.loaded()
    assert states.transactions.open() == {7: 0}
    assert states.transactions.stable(written.log.high_watermark, 1) == 1


def test_a_snapshots_transactions_are_taken_over_in_their_order() -> None:
    states = ProducerStates()
    states.transactions.restore([(2, 9), (1, 4)], [AbortedTransaction(3, 0, 5, 1)])
    assert list(states.transactions.open()) == [1, 2]
    assert states.transactions.stable(20) == 4


async def test_the_last_message_is_no_marker_and_nothing_aborted(written: Written) -> None:
    await written.write(b"a", b"b")
    await written.write(b"committed", producer=8)
    await written.end(8, committed=True)
    await written.write(b"aborted", producer=7)
    await written.end(7, committed=False)
    found = {}
    for before in range(7):
        entry = await last_message(written.log, before)
        found[before] = None if entry is None else entry.last_offset
    # A batch counts only where all of it lies before.
    assert found == {0: None, 1: None, 2: 1, 3: 2, 4: 2, 5: 2, 6: 2}


async def test_what_a_client_names_and_is_gone_is_the_entry_behind_it(written: Written) -> None:
    for _ in range(3):
        await written.write(b"k")
        await written.log.roll()
    first, *rest = [each.ledger_id for each in written.log.ledgers()]
    await written.log.trim(1)
    places = Places(written.log)
    assert first not in [each.ledger_id for each in written.log.ledgers()]
    assert await places.of((first, 0)) == (rest[0], 0)
    assert await places.of((rest[0], 0)) == (rest[0], 0)
    assert await places.of((rest[0], 1)) == (rest[1], 0)
    assert await places.of((rest[1] + 100, 0)) == await places.end()
