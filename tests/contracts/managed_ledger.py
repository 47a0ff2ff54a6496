"""What every storage engine must do. An engine joins by giving the ``house`` fixture."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress

import pytest

from magnetar.ledger.cursors.cursor import Cursor, Start
from magnetar.ledger.errors import (
    LedgerClosed,
    LedgerError,
    LedgerFenced,
    LedgerNotFound,
    LedgerTerminated,
    OffsetOutOfRange,
    StorageFailed,
    StorageFull,
)
from magnetar.ledger.leases import LeaseExpired
from magnetar.ledger.pending import Pending
from magnetar.ledger.port import (
    CompactionRules,
    CompactionStatus,
    Flush,
    LedgerEngine,
    LedgerPolicy,
    ManagedLedger,
    Position,
    Snapshot,
    StoredEntry,
    TakenBack,
)
from magnetar.records.batch import UNKNOWN_TIME, PlainRecord, encode_batch
from magnetar.records.entry import kafka_message_head
from tests.ledger.entries import NOW_MS, append, append_durably, batch, payload, read_all

NAME = "public/default/persistent/t-partition-0"
EVERY_FLUSH = pytest.mark.parametrize("flush", list(Flush))


class House(ABC):
    """Where engines come from. ``now_ms`` is their clock; ``reopen`` closes the engine in order and starts another."""

    engine: LedgerEngine
    now_ms: int = NOW_MS
    full: tuple[type[LedgerError], ...] = (StorageFull,)
    """What an append is told for which there is no room."""
    may_take_what_it_had_no_room_for = False
    """Whether an append on its way, for which there was no room, is taken if there is some before it was refused."""

    @abstractmethod
    async def begin(self) -> None: ...

    @abstractmethod
    def fill_disk(self) -> Callable[[], None]:
        """Leave no room on the disk; call what this gives to make room again."""

    @abstractmethod
    def ledger_files(self) -> int:
        """Return how many files of ledgers and indexes there are."""

    async def reopen(self) -> None:
        await self.engine.close()
        await self.begin()

    async def open(self, name: str = NAME, **policy: object) -> ManagedLedger:
        return await self.engine.open(name, LedgerPolicy(**policy))  # type: ignore[arg-type]


async def settled(log: ManagedLedger, ledgers: int) -> None:
    """Wait until all but the last of so many ledgers are sealed."""
    for _ in range(400):
        found = log.ledgers()
        if len(found) == ledgers and all(each.sealed for each in found[:-1]):
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"not {ledgers} sealed ledgers: {log.ledgers()}")


async def append_when_there_is_room(
    log: ManagedLedger, value: bytes, within: Callable[[], AbstractContextManager[object]] = nullcontext
) -> Pending:
    """Append one more, durably: that bookies are back, who could not write to them learns a moment later."""
    while True:
        try:
            with within():
                pending = append(log, value)
            await pending.settled()
        except (StorageFull, StorageFailed):
            await asyncio.sleep(0.02)
        else:
            return pending


async def _is_kept(placed: Pending) -> bool:
    try:
        await placed.settled()
    except (StorageFull, StorageFailed):
        return False
    return True


class ManagedLedgerContract:
    # -- appending and reading

    @EVERY_FLUSH
    async def test_what_was_appended_is_read_byte_for_byte(self, house: House, flush: Flush) -> None:
        log = await house.open(flush=flush)
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (0, 0, 0)
        first = await append_durably(log, b"a", b"b", b"c")
        second = await append_durably(log, b"d")
        assert (first.base_offset, second.base_offset) == (0, 3)
        assert log.log_end_offset == log.high_watermark == 4
        entries = await log.read(0, max_bytes=1 << 20)
        assert [payload(entry) for entry in entries] == [batch(b"a", b"b", b"c"), batch(b"d")]
        assert [entry.last_offset for entry in entries] == [2, 3]
        assert (await log.entry(second.position)).data == entries[1].data

    @EVERY_FLUSH
    async def test_acknowledgement_follows_the_policy(self, house: House, flush: Flush) -> None:
        log = await house.open(flush=flush)
        rung = []
        log.on_moved = lambda: rung.append(log.high_watermark)
        for n in range(1, 4):
            appended = append(log, b"a")
            if appended.done is not None and not appended.done.done():
                assert log.high_watermark == n - 1
                assert await log.read(n - 1, max_bytes=100) == []
            else:
                assert flush is not Flush.always, "nothing is on disk without a turn of the loop"
            assert (await appended.settled()).entry_id == n - 1
            assert log.high_watermark == n
            assert rung == list(range(1, n + 1))

    async def test_many_appends_share_a_flush(self, house: House) -> None:
        log = await house.open()
        durable = [append(log, b"%d" % n).done for n in range(500)]
        await asyncio.gather(*(each for each in durable if each is not None))
        assert log.high_watermark == 500
        assert [entry.last_offset for entry in await read_all(log)] == list(range(500))

    async def test_what_is_on_its_way_has_its_place(self, house: House) -> None:
        """What has none waits in memory for a ledger, and a client of Pulsar's is not read meanwhile."""
        log = await house.open()
        await append_durably(log, b"the ledger is there")
        placed = [append(log, b"%d" % number) for number in range(5)]
        for _ in range(3):  # turns of the loop, in which nothing far away has answered
            await asyncio.sleep(0)
        told = [each.position for each in placed]
        assert told == [Position(told[0].ledger_id, told[0].entry_id + number) for number in range(5)]
        assert [await each.settled() for each in placed] == told

    async def test_who_stops_waiting_harms_nobody_else(self, house: House) -> None:
        log = await house.open()
        impatient = asyncio.ensure_future(append_durably(log, b"a"))
        patient = asyncio.ensure_future(append_durably(log, b"b"))
        await asyncio.sleep(0)
        impatient.cancel()
        assert (await patient).base_offset == 1
        assert log.high_watermark == 2
        assert impatient.cancelled()

    @EVERY_FLUSH
    async def test_a_log_that_was_ended_takes_nothing_more_and_is_read(
        self, house: House, flush: Flush
    ) -> None:
        log = await house.open(flush=flush)
        last = (await append_durably(log, b"a", b"b")).position
        assert log.terminated is None
        assert await log.terminate() == await log.terminate() == log.terminated == last
        for _ in range(2):
            with pytest.raises(LedgerTerminated):
                append(log, b"c")
            assert log.log_end_offset == 2
            assert [entry.last_offset for entry in await read_all(log)] == [1]
            await house.reopen()
            log = await house.open(flush=flush)
            assert log.terminated == last

    async def test_an_empty_log_can_be_ended(self, house: House) -> None:
        log = await house.open()
        assert (await log.terminate()).entry_id == -1
        await house.reopen()
        log = await house.open()
        with pytest.raises(LedgerTerminated):
            append(log, b"a")
        await log.trim(0)
        await log.retain(house.now_ms)
        await log.close()

    async def test_a_policy_may_change_at_any_time(self, house: House) -> None:
        log = await house.open(flush=Flush.os)
        await append_durably(log, b"a")
        lazy = append(log, b"b")
        log.policy = LedgerPolicy(flush=Flush.always)
        await append_durably(log, b"c")
        assert log.high_watermark == 3
        await lazy.settled()
        log.policy = LedgerPolicy(flush=Flush.os)
        await append_durably(log, b"d")
        assert log.high_watermark == 4

    async def test_reading_keeps_to_its_bounds(self, house: House) -> None:
        log = await house.open(flush=Flush.os)
        for n in range(20):
            await append_durably(log, *([b"x" * 500] * (1 + n % 3)))
        for offset in range(log.log_end_offset):
            entries = await log.read(offset, max_bytes=1)
            assert len(entries) == 1
            assert entries[0].last_offset >= offset
            more = await log.read(offset, max_bytes=4000)
            assert more[0] == entries[0]
            assert sum(len(entry.data) for entry in more) <= 4000
        assert [e.last_offset for e in await log.read(0, max_bytes=1 << 20, up_to=6)][-1] == 5
        assert await log.read(log.log_end_offset, max_bytes=1) == []
        for offset in (-1, log.log_end_offset + 1):
            with pytest.raises(OffsetOutOfRange):
                await log.read(offset, max_bytes=1)

    async def test_large_entries_come_back_whole(self, house: House) -> None:
        log = await house.open()
        values = [bytes([n]) * size for n, size in enumerate((9 << 20, 100, 5 << 20, 40_000, 1 << 20))]
        for value in values:
            append(log, value)
        await append_durably(log, b"last")
        entries = await read_all(log)
        assert [payload(entry) for entry in entries] == [batch(value) for value in (*values, b"last")]

    async def test_several_logs_do_not_mix(self, house: House) -> None:
        logs = [await house.open(f"public/default/persistent/t{n}-partition-0") for n in range(5)]
        for n in range(40):
            append(logs[n % 5], b"%d" % n)
        await asyncio.gather(*(append_durably(log, b"end") for log in logs))
        for n, log in enumerate(logs):
            found = [payload(entry) for entry in await read_all(log)]
            assert found == [batch(b"%d" % each) for each in range(n, 40, 5)] + [batch(b"end")]
        assert await house.open(logs[0].name) is logs[0]

    # -- rolling over

    @pytest.mark.parametrize(
        ("bound", "ledgers"), [({"max_ledger_entries": 10}, 3), ({"max_ledger_bytes": 3000}, 3)]
    )
    async def test_ledgers_roll_over(self, house: House, bound: dict[str, int], ledgers: int) -> None:
        log = await house.open(**bound)
        while len(log.ledgers()) < ledgers:
            await append_durably(log, b"x" * 100, b"y")
        await settled(log, ledgers)
        found = log.ledgers()
        assert [each.first_offset for each in found[1:]] == [each.last_offset + 1 for each in found[:-1]]
        entries = await read_all(log)
        assert [entry.last_offset for entry in entries] == list(range(1, log.log_end_offset, 2))
        assert {entry.ledger_id for entry in entries} == {each.ledger_id for each in found}
        assert log.size() == sum(each.size for each in found)

    async def test_ledgers_roll_over_by_age(self, house: House) -> None:
        log = await house.open(max_ledger_ms=1000)
        await append_durably(log, b"a")
        house.now_ms += 999
        await append_durably(log, b"b")
        assert len(log.ledgers()) == 1
        house.now_ms += 1
        await append_durably(log, b"c")
        assert len(log.ledgers()) == 2
        house.now_ms += 1000
        await log.retain(house.now_ms)
        await log.retain(house.now_ms + 5000)  # an empty ledger is never replaced by another
        assert len(log.ledgers()) == 3

    async def test_a_sealed_ledger_knows_its_earliest_time_if_every_append_told_it(
        self, house: House
    ) -> None:
        log = await house.open(max_ledger_entries=3)
        for number in range(7):
            told = {} if number == 4 else {"earliest_ms": NOW_MS - number}
            message = [kafka_message_head(NOW_MS, 1), batch(b"x")]
            appended = log.append(message, messages=1, timestamp_ms=NOW_MS, **told)
            if appended.done is not None:
                await appended.done
        await settled(log, 3)
        due = [NOW_MS - 2, UNKNOWN_TIME, UNKNOWN_TIME]
        assert [each.min_timestamp for each in log.ledgers()] == due
        await house.reopen()
        log = await house.open(max_ledger_entries=3)
        assert [each.min_timestamp for each in log.ledgers()] == due

    # -- finding

    async def test_finding_by_time(self, house: House) -> None:
        log = await house.open(max_ledger_entries=7)
        times = [NOW_MS + delta for delta in (10, 20, 15, 40, 30, 30, 50, 5, 60, 60, 70, 65, 80, 90, 90, 85)]
        for time in times:
            await append_durably(log, b"x", timestamp_ms=time)
        for wanted in range(NOW_MS, NOW_MS + 100, 5):
            found = await log.find_by_time(wanted)
            due = next((offset for offset, time in enumerate(times) if time >= wanted), None)
            assert (found and found.last_offset) == due, wanted - NOW_MS
        latest = await log.find_max_timestamp()
        assert latest is not None
        assert latest.last_offset == 13

    async def test_finding_by_time_skips_what_was_trimmed(self, house: House) -> None:
        log = await house.open()
        for time in (100, 50, 60):
            await append_durably(log, b"x", timestamp_ms=NOW_MS + time)
        await log.trim(1)
        found = await log.find_by_time(NOW_MS + 40)
        assert found is not None
        assert found.last_offset == 1
        latest = await log.find_max_timestamp()
        assert latest is not None
        assert latest.last_offset == 2

    async def test_an_empty_log_has_nothing_to_find(self, house: House) -> None:
        log = await house.open()
        assert await log.find_by_time(0) is None
        assert await log.find_max_timestamp() is None
        assert await log.find_first(lambda entry: True) is None

    @pytest.mark.parametrize("wanted", [0, 1, 17, 18, 39, 40])
    async def test_finding_the_first_of_which_something_holds(self, house: House, wanted: int) -> None:
        log = await house.open(max_ledger_entries=6)
        for _ in range(20):
            await append_durably(log, b"x", b"y")
        found = await log.find_first(lambda entry: entry.last_offset >= wanted)
        assert (found and found.last_offset) == (wanted | 1 if wanted < 40 else None)

    async def test_entries_that_never_were_are_named(self, house: House) -> None:
        log = await house.open()
        there = (await append_durably(log, b"x")).position
        with pytest.raises(LedgerNotFound):
            await log.entry(Position(there.ledger_id, 1))
        with pytest.raises(LedgerNotFound):
            await log.entry(Position(there.ledger_id + 1, 0))

    # -- letting go

    async def test_trimming_lets_go_of_whole_ledgers(self, house: House) -> None:
        log = await house.open(max_ledger_entries=10)
        for _ in range(25):
            await append_durably(log, b"x")
        await settled(log, 3)
        rung = []
        log.on_moved = lambda: rung.append(log.log_start_offset)
        await log.trim(9)
        assert (len(log.ledgers()), log.log_start_offset) == (3, 9)
        await log.trim(10)
        assert (len(log.ledgers()), log.log_start_offset) == (2, 10)
        await log.trim(4)
        assert rung == [9, 10]
        with pytest.raises(OffsetOutOfRange):
            await log.read(9, max_bytes=1)
        with pytest.raises(OffsetOutOfRange):
            await log.trim(26)
        await log.trim(25)
        assert await read_all(log) == []
        await append_durably(log, b"next")
        assert [entry.last_offset for entry in await read_all(log)] == [25]

    async def test_retention_by_time(self, house: House) -> None:
        log = await house.open(retention_ms=1000, max_ledger_entries=5)
        for n in range(12):
            await append_durably(log, b"x", timestamp_ms=NOW_MS + 100 * n)
        await settled(log, 3)
        await log.retain(NOW_MS + 1400)
        assert log.log_start_offset == 0
        await log.retain(NOW_MS + 1401)
        assert log.log_start_offset == 5
        await log.retain(NOW_MS + 9999)  # the open ledger is rolled first, then it can go
        await settled(log, 2 if len(log.ledgers()) == 2 else 1)
        await log.retain(NOW_MS + 9999)
        assert log.log_start_offset == log.log_end_offset == 12

    async def test_retention_by_size(self, house: House) -> None:
        log = await house.open(retention_bytes=2500, max_ledger_entries=5)
        for _ in range(32):
            await append_durably(log, b"x" * 100)
        await settled(log, 7)
        await log.retain(house.now_ms)
        kept = log.size()
        assert 2500 <= kept < 2500 + log.ledgers()[0].size
        assert log.log_start_offset == log.ledgers()[0].first_offset > 0

    @EVERY_FLUSH
    async def test_a_released_log_tells_its_holders_and_is_opened_anew(
        self, house: House, flush: Flush
    ) -> None:
        log = await house.open(flush=flush)
        told: list[LedgerError] = []

        def fails(reason: LedgerError) -> None:
            raise RuntimeError("a holder that fails")

        log.on_closed += [fails, told.append]
        appended = append(log, b"a", b"b")
        log.on_moved = lambda: None
        released, again = await asyncio.gather(house.engine.release(NAME), house.open(flush=flush))
        assert released is None
        if appended.done is not None:
            await appended.done
        await house.engine.release("public/default/persistent/unknown-partition-0")
        assert [type(reason) for reason in told] == [LedgerClosed]
        with pytest.raises(LedgerClosed):
            append(log, b"late")
        reopened = await house.open(flush=flush)
        assert reopened is again
        assert reopened is not log
        assert (await append_durably(reopened, b"c")).base_offset == 2
        assert [entry.last_offset for entry in await reopened.read(0, max_bytes=1 << 20)] == [1, 2]
        assert len(told) == 1

    async def test_holders_learn_of_a_delete(self, house: House) -> None:
        log = await house.open()
        told: list[LedgerError] = []
        log.on_closed.append(told.append)
        await house.engine.delete(NAME)
        assert [type(reason) for reason in told] == [LedgerClosed]

    async def test_a_deleted_log_is_gone_with_its_files(self, house: House) -> None:
        log = await house.open(max_ledger_entries=3)
        for _ in range(10):
            await append_durably(log, b"x")
        await house.engine.delete(NAME)
        with pytest.raises(LedgerClosed):
            append(log, b"late")
        with pytest.raises(LedgerClosed):
            await log.read(0, max_bytes=1)
        again = await house.open()
        assert (again.log_end_offset, again.ledgers()) == (0, [])
        await house.engine.delete("public/default/persistent/never-was")
        await house.reopen()
        assert house.ledger_files() == 0

    # -- closing and opening again

    @EVERY_FLUSH
    async def test_everything_is_there_after_a_restart(self, house: House, flush: Flush) -> None:
        log = await house.open(flush=flush, max_ledger_entries=7)
        for n in range(30):
            append(log, b"%d" % n, b"more")
        await log.trim(min(16, log.high_watermark))
        first = log.log_start_offset
        await append_durably(log, b"end")
        before = await read_all(log)
        for _ in range(3):
            await house.reopen()
            log = await house.open(flush=flush, max_ledger_entries=7)
            assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (first, 61, 61)
            assert await read_all(log) == before
        assert (await append_durably(log, b"x")).base_offset == 61

    async def test_an_empty_log_keeps_its_offsets(self, house: House) -> None:
        log = await house.open(retention_ms=0)
        for _ in range(5):
            await append_durably(log, b"x")
        await log.retain(
            house.now_ms + 10_000
        )  # an engine may seal the open ledger later than it replaces it
        await settled(log, len(log.ledgers()))
        await log.retain(house.now_ms + 10_000)
        assert log.log_start_offset == 5
        for _ in range(2):
            await house.reopen()
            log = await house.open()
            assert (log.log_start_offset, log.log_end_offset) == (5, 5)
        assert (await append_durably(log, b"x")).base_offset == 5

    async def test_the_owners_snapshot_comes_back(self, house: House) -> None:
        log = await house.open(max_ledger_entries=4)
        words = [b"none"]
        log.take_snapshot = lambda: words[-1]
        for n in range(10):
            await append_durably(log, b"x")
            words.append(b"after %d" % (n + 1))
        await house.reopen()
        log = await house.open()
        assert log.snapshot == Snapshot(10, b"after 10")

    async def test_the_snapshot_outlives_the_ledgers_beside_which_it_was_kept(self, house: House) -> None:
        log = await house.open(max_ledger_entries=4)
        log.take_snapshot = lambda: b"kept"
        for _ in range(9):
            await append_durably(log, b"x")
        await settled(log, 3)
        await log.trim(9)
        log.take_snapshot = None
        await house.reopen()
        snapshot = (await house.open()).snapshot
        assert snapshot is not None
        assert snapshot.data == b"kept"

    async def test_a_closed_log_takes_nothing_and_can_be_opened_again(self, house: House) -> None:
        log = await house.open()
        await append_durably(log, b"x")
        await log.close()
        with pytest.raises(LedgerClosed):
            append(log, b"late")
        await log.close()
        again = await house.open()
        assert again is not log
        assert again.log_end_offset == 1

    async def test_an_opening_under_an_older_ownership_is_refused(self, house: House) -> None:
        for epoch in (0, 2, 2, 5):
            log = await house.engine.open(NAME, LedgerPolicy(), epoch)
            await log.roll()
            await append_durably(log, b"x")
            await house.reopen()
        for epoch in (1, 4):
            with pytest.raises(LedgerFenced):
                await house.engine.open(NAME, LedgerPolicy(), epoch)
        log = await house.engine.open(NAME, LedgerPolicy(), 0)  # a sole owner has nobody to fear
        await append_durably(log, b"x")
        await log.roll()
        await house.reopen()
        with pytest.raises(LedgerFenced):
            await house.engine.open(NAME, LedgerPolicy(), 4)
        assert (await house.engine.open(NAME, LedgerPolicy(), 5)).log_end_offset == 5

    # -- a full disk

    @EVERY_FLUSH
    async def test_a_full_disk_refuses_appends_until_there_is_room(self, house: House, flush: Flush) -> None:
        log = await house.open(flush=flush, max_ledger_entries=10)
        taken_back: list[TakenBack] = []
        log.on_taken_back.append(taken_back.append)
        for n in range(8):
            await append_durably(log, b"%d" % n)
        make_room = house.fill_disk()
        kept = 8
        for _ in range(200):  # what room a file system had set aside may still be used
            try:
                await append_durably(log, b"y" * 5000)
            except house.full:
                break
            kept += 1
        else:
            raise AssertionError("the disk never was full")
        assert (log.log_end_offset, log.high_watermark) == (kept, kept)
        assert (await log.read(0, max_bytes=1))[0].last_offset == 0
        placed = []
        for _ in range(3):
            with suppress(*house.full):
                placed.append(append(log, b"y" * 500_000))
        for each in placed:
            with pytest.raises(house.full):
                await each.settled()
        assert (log.log_end_offset, log.high_watermark) == (kept, kept)
        assert all(each.offset == kept and isinstance(each.error, house.full) for each in taken_back)
        make_room()
        resumed = await append_when_there_is_room(log, b"again")
        assert resumed.base_offset == kept
        await house.reopen()
        log = await house.open()
        assert [entry.last_offset for entry in await read_all(log)] == list(range(kept + 1))

    # -- gathering

    @EVERY_FLUSH
    async def test_what_is_gathered_is_there_at_the_end(self, house: House, flush: Flush) -> None:
        log, other = (
            await house.open(flush=flush, max_ledger_entries=4),
            await house.open("other", flush=flush),
        )
        told: list[int] = []
        log.on_moved = lambda: told.append(log.high_watermark)
        await append_durably(log, b"before")
        await append_durably(other, b"before")
        with house.engine.gathering():
            appended = [append(log, b"%d" % n, b"x") for n in range(10)]
            with house.engine.gathering():
                elsewhere = append(other, b"elsewhere")
            assert [each.base_offset for each in appended] == list(range(1, 21, 2))
            assert (log.log_end_offset, other.log_end_offset, other.high_watermark) == (21, 2, 1)
            assert not await other.read(1, max_bytes=1000), "nobody reads what is not written"
        for each in (*appended, elsewhere):
            await each.settled()
        assert (log.high_watermark, other.high_watermark) == (21, 2)
        assert told == sorted(told)
        assert (told[0], told[-1]) == (1, 21)
        due = [batch(b"before"), *(batch(b"%d" % n, b"x") for n in range(10))]
        assert [payload(entry) for entry in await read_all(log)] == due
        for each, offset in zip(appended, range(2, 22, 2), strict=True):
            assert (await log.entry(each.position)).last_offset == offset
        await house.reopen()
        assert [payload(entry) for entry in await read_all(await house.open())] == due
        assert len(await read_all(await house.open("other"))) == 2

    async def test_what_the_disk_does_not_take_of_what_was_gathered_is_taken_back(self, house: House) -> None:
        log, other = await house.open(flush=Flush.os), await house.open("other", flush=Flush.os)
        durable = await house.open("durable", flush=Flush.always)
        for each in (log, other, durable):
            await append_durably(each, b"kept")
        taken_back: list[tuple[TakenBack, int, bool]] = []

        def fails(what: TakenBack) -> None:
            raise RuntimeError("a holder that fails")

        def told(what: TakenBack) -> None:
            some = appended[0].done
            taken_back.append((what, log.log_end_offset, some is not None and some.done()))

        log.on_taken_back += [fails, told]
        make_room = house.fill_disk()
        with house.engine.gathering():
            appended = [append(log, b"%d" % n + b"y" * 10_000) for n in range(60)]
            waits = append(durable, b"y" * 500_000)
            assert (log.log_end_offset, log.high_watermark) == (61, 1)
        for each in (*appended, waits):
            with pytest.raises(house.full):
                await each.settled()
        ((what, end, was_done),) = taken_back
        assert (what.offset, end, was_done) == (1, 1, False), "all is as it was before the futures fail"
        assert isinstance(what.error, house.full)
        assert (log.log_end_offset, log.high_watermark, durable.log_end_offset) == (1, 1, 1)
        assert other.log_end_offset == 1
        assert len(await read_all(log)) == 1
        make_room()
        again = await append_when_there_is_room(log, b"again", house.engine.gathering)
        assert again.base_offset == 1
        assert (await append_when_there_is_room(durable, b"again")).base_offset == 1
        await house.reopen()
        for name in (NAME, "durable"):
            log = await house.open(name)
            assert [payload(entry) for entry in await read_all(log)] == [batch(b"kept"), batch(b"again")]

    @EVERY_FLUSH
    async def test_what_follows_something_that_was_taken_back_is_taken_back_too(
        self, house: House, flush: Flush
    ) -> None:
        """Also where it would have stood in another ledger, for which there is room."""
        log = await house.open(flush=flush, max_ledger_bytes=1_000_000)
        await append_durably(log, b"kept")
        make_room = house.fill_disk()
        with house.engine.gathering():
            values = [b"%d" % n + b"y" * 500_000 for n in range(2)]
            placed = [append(log, value) for value in values]
            for _ in range(3):  # its ledger is full by then
                with suppress(*house.full):
                    placed.append(append(log, b"z"))
                    values.append(b"z")
        make_room()
        kept = [await _is_kept(each) for each in placed]
        count = kept.index(False) if False in kept else len(placed)
        assert kept == [True] * count + [False] * (len(placed) - count)
        assert count == 0 or house.may_take_what_it_had_no_room_for
        assert log.log_end_offset == 1 + count
        assert (await append_when_there_is_room(log, b"after")).base_offset == 1 + count
        due = [batch(each) for each in (b"kept", *values[:count], b"after")]
        assert [payload(entry) for entry in await read_all(log)] == due

    # -- cursors

    @EVERY_FLUSH
    async def test_a_cursor_is_found_again_where_it_was(self, house: House, flush: Flush) -> None:
        log = await house.open(flush=flush, max_ledger_entries=4)
        places = [(await append_durably(log, b"%d" % n)).position for n in range(10)]
        cursors = await log.cursors()
        assert await log.cursors() is cursors
        cursor = await cursors.open("c", Start.earliest)
        cursor.mark_delete(places[2])
        cursor.delete(places[5], places[8])
        latest = await cursors.open("latest")
        await cursors.save()
        await house.reopen()
        log = await house.open(flush=flush, max_ledger_entries=4)
        found = await log.cursors()
        assert found.names() == ["c", "latest"]
        again = await found.open("c")
        assert (again.mark_delete_position, again.backlog()) == (places[2], 5)
        assert [entry.last_offset for entry in await _rest(again)] == [3, 4, 6, 7, 9]
        latest = await found.open("latest")
        assert latest.backlog() == 0
        await append_durably(log, b"new")
        assert [entry.last_offset for entry in await _rest(latest)] == [10]
        await found.delete("c")
        await house.engine.delete(NAME)
        log = await house.open(flush=flush)
        assert (await log.cursors()).names() == []

    async def test_cursors_may_be_made_before_anything_is_written(self, house: House) -> None:
        log = await house.open()
        cursors = await log.cursors()
        cursor, _ = await asyncio.gather(cursors.open("c", Start.earliest), cursors.open("d"))
        # They are not taken for another owner's doing.
        places = [(await append_durably(log, b"%d" % n)).position for n in range(3)]
        cursor.mark_delete(places[0])
        await cursors.save()
        await house.reopen()
        log = await house.open()
        assert [entry.last_offset for entry in await read_all(log)] == [0, 1, 2]
        found = await log.cursors()
        assert [(await found.open(name)).backlog() for name in found.names()] == [2, 3]

    async def test_a_cursor_at_latest_misses_nothing_that_was_on_its_way(self, house: House) -> None:
        log = await house.open()
        await append_durably(log, b"before")
        cursors = await log.cursors()
        placed = append(log, b"on its way")
        begun = await asyncio.gather(cursors.open("c"), cursors.non_durable())
        await placed.settled()
        for each in begun:
            assert [entry.last_offset for entry in await _rest(each)] == [1]

    async def test_a_cursor_at_latest_misses_nothing_behind_what_was_taken_back(self, house: House) -> None:
        log = await house.open()
        await append_durably(log, b"before")
        make_room = house.fill_disk()
        placed, cursors = [], await log.cursors()
        for _ in range(3):
            with suppress(*house.full):
                placed.append(append(log, b"y" * 500_000))
        opened = [asyncio.ensure_future(cursors.open("c")) for _ in range(2)]
        other = await cursors.non_durable()
        for each in placed:
            with pytest.raises(house.full):
                await each.settled()
        make_room()
        cursor, same = [await each for each in opened]
        assert cursor is same
        await append_when_there_is_room(log, b"after")
        for found in (cursor, other):
            assert [entry.last_offset for entry in await _rest(found)] == [1]
        await cursors.save()
        await house.reopen()
        again = await (await (await house.open()).cursors()).open("c")
        assert [entry.last_offset for entry in await _rest(again)] == [1]

    # -- leases

    async def test_retention_leaves_what_is_leased_until_it_is_not(self, house: House) -> None:
        log = await house.open(retention_ms=0, max_ledger_entries=3)
        for _ in range(9):
            await append_durably(log, b"x")
        await settled(log, 3)
        leases = house.engine.leases
        lease = await leases.take({NAME: 4, "another": 0}, for_ms=1000)
        house.now_ms += 999
        await log.retain(house.now_ms)
        assert log.log_start_offset == 3
        lease = await leases.renew(lease, {NAME: 6}, for_ms=1000)
        house.now_ms += 999
        assert await leases.needed(NAME) == 6
        await log.retain(house.now_ms)
        assert log.log_start_offset == 6
        house.now_ms += 1
        assert await leases.needed(NAME) is None
        with pytest.raises(LeaseExpired):
            await leases.renew(lease, for_ms=1000)
        await leases.release(lease)
        await log.retain(house.now_ms)
        await settled(log, len(log.ledgers()))
        await log.retain(house.now_ms)
        assert log.log_start_offset == 9

    # -- compaction

    @pytest.mark.parametrize("replaces", [False, True], ids=["pulsar", "kafka"])
    async def test_the_newest_of_each_key_is_read_after_a_compaction(
        self, house: House, replaces: bool
    ) -> None:
        log = await house.open(max_ledger_entries=4)
        rules = CompactionRules(replaces=replaces, tombstones_ms=1 << 40 if replaces else -1)
        assert not await log.compact(rules)
        wanted: dict[bytes, int] = {}
        for rounds in range(3):
            for n in range(17):
                wanted[b"%d" % (n % 5)] = log.log_end_offset
                await append_keyed(log, b"%d" % (n % 5), b"%d.%d" % (rounds, n))
            await log.roll()
            await settled(log, len(log.ledgers()))
            assert await log.compact(rules)
            assert not await log.compact(rules)
            copies = [entry.last_offset for entry in await _compacted(log)]
            assert copies == sorted(wanted.values())
            originals = [entry.last_offset for entry in await read_all(log)]
            assert originals == (copies if replaces else list(range(log.log_end_offset)))
            assert log.compaction.status is CompactionStatus.SUCCESS
            await house.reopen()
            log = await house.open(max_ledger_entries=4)
        await append_keyed(log, b"0", b"last")
        assert [entry.last_offset for entry in await _compacted(log)] == [*sorted(wanted.values()), 51]
        if replaces:
            assert sum(each.compacted for each in log.ledgers()) >= 12
            first, *_ = await read_all(log)
            assert (
                await log.entry(Position(first.ledger_id, first.entry_id))
            ).last_offset == first.last_offset
            assert await log.offset_behind(Position(log.ledgers()[0].ledger_id, 1)) == 4

    async def test_a_compaction_leaves_history_that_is_leased(self, house: House) -> None:
        log = await house.open(max_ledger_entries=4)
        rules = CompactionRules(replaces=True)
        for n in range(8):
            await append_keyed(log, b"k", b"%d" % n)
        await log.roll()
        await settled(log, len(log.ledgers()))
        lease = await house.engine.leases.take({NAME: 0}, for_ms=1 << 40)
        assert not await log.compact(rules)
        assert len(await read_all(log)) == 8
        await house.engine.leases.release(lease)
        assert await log.compact(rules)
        assert [entry.last_offset for entry in await read_all(log)] == [7]

    async def test_a_compaction_that_keeps_history_leaves_copies_that_are_leased(self, house: House) -> None:
        """They stand for history that was replaced: whoever reads past the broker reads them."""
        log = await house.open(max_ledger_entries=4)
        leases = house.engine.leases
        for n in range(8):
            await append_keyed(log, b"%d" % (n % 3), b"%d" % n)
        await log.roll()
        await settled(log, len(log.ledgers()))
        assert await log.compact(CompactionRules(replaces=True))
        before = log.compacted
        assert before is not None
        for n in range(8):
            await append_keyed(log, b"%d" % (n % 3), b"%d" % n)
        lease = await leases.take({NAME: 7}, for_ms=1 << 40)
        assert not await log.compact(CompactionRules())
        assert log.compacted == before
        assert (await log.read_compacted(0, max_bytes=1))[0].last_offset == 5
        lease = await leases.renew(lease, {NAME: 8}, for_ms=1 << 40)
        assert await log.compact(CompactionRules())
        assert log.compacted != before
        assert [entry.last_offset for entry in await _compacted(log)] == [13, 14, 15]

    @pytest.mark.parametrize("replaces", [False, True], ids=["pulsar", "kafka"])
    async def test_a_lease_that_is_taken_while_a_compaction_runs_counts(
        self, house: House, replaces: bool
    ) -> None:
        log = await house.open(max_ledger_entries=4)
        for n in range(8):
            await append_keyed(log, b"k", b"%d" % n)
        await log.roll()
        await settled(log, len(log.ledgers()))
        assert await log.compact(CompactionRules(replaces=True))
        for n in range(8):
            await append_keyed(log, b"k", b"%d" % n)
        await log.roll()
        await settled(log, len(log.ledgers()))
        before, taken = log.compacted, []

        async def taken_now() -> None:
            taken.append(await house.engine.leases.take({NAME: 0}, for_ms=1 << 40))

        log.before_compaction.append(taken_now)
        assert not await log.compact(CompactionRules(replaces=replaces))
        assert taken
        assert log.compacted == before
        assert (await read_all(log))[0].last_offset == 7
        log.before_compaction.clear()
        await house.engine.leases.release(taken[0])
        assert await log.compact(CompactionRules(replaces=replaces))
        assert [entry.last_offset for entry in await _compacted(log)] == [15]

    async def test_no_copy_is_passed_over_however_little_fits(self, house: House) -> None:
        """A large copy that does not fit is not skipped for a small one of what was the next ledger."""
        log = await house.open(max_ledger_entries=3)
        for n in range(18):
            await append_keyed(log, b"%d" % n, bytes(300 if n % 3 else 10))
        await log.roll()
        await settled(log, len(log.ledgers()))
        await append_keyed(log, b"behind", b"")
        assert await log.compact(CompactionRules(replaces=True))
        assert all(each.compacted for each in log.ledgers()[:6])
        for max_bytes in range(1, 2000, 90):
            offset, found = 0, list[int]()
            while entries := await log.read(offset, max_bytes=max_bytes):
                found += [each.last_offset for each in entries]
                offset = entries[-1].last_offset + 1
            assert found == list(range(19)), max_bytes

    async def test_a_lease_on_history_that_stays_holds_no_compaction_up(self, house: House) -> None:
        log = await house.open(max_ledger_entries=4)
        await house.engine.leases.take({NAME: 0}, for_ms=1 << 40)
        for _ in range(2):
            for n in range(6):
                await append_keyed(log, b"k", b"%d" % n)
            assert await log.compact(CompactionRules())
        assert [entry.last_offset for entry in await _compacted(log)] == [11]
        assert len(await read_all(log)) == 12


async def append_keyed(log: ManagedLedger, key: bytes, value: bytes) -> None:
    made = encode_batch([PlainRecord(key, value, (), NOW_MS)], base_offset=log.log_end_offset)
    pending = log.append([kafka_message_head(NOW_MS, 1), made], messages=1, timestamp_ms=NOW_MS)
    await pending.settled()


async def _rest(cursor: Cursor) -> list[StoredEntry]:
    found = []
    while entries := await cursor.read():
        found += entries
    return found


async def _compacted(log: ManagedLedger) -> list[StoredEntry]:
    offset, found = 0, []
    while entries := await log.read_compacted(offset, max_bytes=100):
        found += entries
        offset = entries[-1].last_offset + 1
    return found
