"""What the late engine does that no engine on files does: another owner on its store, failures after the placing."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.ledger.errors import LedgerError, LedgerFenced, StorageFailed
from magnetar.ledger.port import NOWHERE, LedgerPolicy, Pending, Snapshot, TakenBack
from magnetar.metadata import MemoryStore
from tests.engines.late import LateEngine, LateStore, Weather
from tests.engines.late.log import LateLog
from tests.ledger.entries import NOW_MS, append, append_durably, read_all

NAME = "public/default/persistent/t-partition-0"
POLICY = LedgerPolicy(max_ledger_entries=5)
SEEDS = pytest.mark.parametrize("seed", range(20))


class Owners:
    """Two engines on one store."""

    def __init__(self, seed: int, *, failing: float = 0.0) -> None:
        self.weather = Weather(seed, failing=failing)
        self.store, self.metadata = LateStore(self.weather), MemoryStore()
        self.one, self.other = (LateEngine(self.store, self.metadata, clock=lambda: NOW_MS) for _ in range(2))


async def outcomes(placed: list[Pending]) -> list[LedgerError | None]:
    found = []
    for each in placed:
        try:
            await each.settled()
        except LedgerError as error:
            found.append(error)
        else:
            found.append(None)
    return found


@SEEDS
async def test_a_later_owner_fences_the_one_before(seed: int) -> None:
    owners = Owners(seed)
    log = await owners.one.open(NAME, POLICY)
    told: list[LedgerError] = []
    log.on_closed.append(told.append)
    for n in range(7):
        await append_durably(log, b"%d" % n)
    placed = [append(log, b"in flight") for _ in range(10)]
    later = await owners.other.open(NAME, POLICY)
    kept = sum(outcome is None for outcome in await outcomes(placed))
    assert 7 + kept <= later.log_end_offset <= 17
    assert later.high_watermark == later.log_end_offset
    if kept < len(placed):  # it has noticed
        assert [type(reason) for reason in told] == [LedgerFenced]
        with pytest.raises(LedgerFenced):
            append(log, b"late")
    else:
        with pytest.raises(LedgerFenced):
            await log.roll()
    end = later.log_end_offset
    assert (await append_durably(later, b"x")).base_offset == end
    assert [entry.last_offset for entry in await read_all(later)] == list(range(end + 1))
    back = await owners.one.open(NAME, POLICY)
    assert back.log_end_offset == end + 1
    positions = [(each.ledger_id, each.entry_id) for each in await read_all(back)]
    assert positions == sorted(positions)
    for engine in (owners.one, owners.other):
        await engine.close()


@SEEDS
async def test_what_is_taken_back_takes_all_behind_it_along_and_the_log_goes_on(seed: int) -> None:
    owners = Owners(seed, failing=0.1)
    log = await _opened(owners.one)
    taken_back: list[tuple[TakenBack, int]] = []
    log.on_taken_back.append(lambda what: taken_back.append((what, log.log_end_offset)))
    placed = []
    for n in range(60):
        placed.append(append(log, b"%d" % n))
        assert placed[-1].position == NOWHERE, "nobody knows yet"
        if n % 7 == 0:
            await asyncio.sleep(owners.weather.delay_s())
    kept = [b"%d" % n for n, outcome in enumerate(await outcomes(placed)) if outcome is None]
    assert len(kept) == log.log_end_offset == log.high_watermark
    assert taken_back, "nothing failed"
    for what, end in taken_back:
        assert what.offset == end
        assert isinstance(what.error, StorageFailed)
    entries = await read_all(log)
    assert [entry.last_offset for entry in entries] == list(range(len(kept)))
    for entry, value in zip(entries, kept, strict=True):
        assert value in bytes(entry.data)
    owners.weather.failing = 0.0
    await owners.one.close()


async def _opened(engine: LateEngine) -> LateLog:
    while True:
        try:
            return await engine.open(NAME, POLICY)
        except StorageFailed:
            continue


async def test_a_snapshot_that_speaks_of_what_was_not_kept_is_not_given_again() -> None:
    found = 0
    for seed in range(40):
        owners = Owners(seed, failing=0.05)
        log = await _opened(owners.one)
        log.take_snapshot = lambda log=log: b"%d" % log.log_end_offset
        for n in range(40):
            append(log, b"%d" % n)
            if n % 5 == 0:
                await asyncio.sleep(0.001)
        later = await _opened(owners.other)
        snapshot = later.snapshot
        if snapshot is not None:
            found += 1
            assert snapshot == Snapshot(snapshot.offset, b"%d" % snapshot.offset)
            assert snapshot.offset <= later.log_end_offset
    assert found > 10


async def test_an_opening_under_an_older_ownership_is_refused() -> None:
    owners = Owners(1)
    await append_durably(await owners.one.open(NAME, POLICY, 2), b"x")
    with pytest.raises(LedgerFenced):
        await owners.other.open(NAME, POLICY, 1)
    log = await owners.other.open(NAME, POLICY, 3)
    assert log.log_end_offset == 1
    with pytest.raises(LedgerFenced):
        await owners.one.release(NAME)
        await owners.one.open(NAME, POLICY, 2)


@SEEDS
async def test_the_deletion_of_a_log_ends_whoever_else_has_it(seed: int) -> None:
    owners = Owners(seed)
    log = await owners.one.open(NAME, POLICY)
    for n in range(12):
        await append_durably(log, b"%d" % n)
    await owners.other.delete(NAME)
    placed = [append(log, b"late")]
    again = await owners.other.open(NAME, POLICY)
    assert [type(outcome) for outcome in await outcomes(placed)] == [LedgerFenced]
    assert (again.log_end_offset, again.ledgers()) == (0, [])
