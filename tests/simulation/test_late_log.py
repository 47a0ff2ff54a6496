"""One log of the late engine in virtual time: compactions of both kinds, leases, rivals and crashes, in any order.

What was acknowledged stays, under its offset; whoever reads what is compacted finds the newest of every key; and what
somebody has leased is read as it was when the lease was taken, for as long as it counts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from magnetar.ledger.compaction.compactor import Compactor
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.leases import Lease
from magnetar.ledger.port import CompactionRules, LedgerPolicy, Pending
from magnetar.metadata import MemoryStore
from magnetar.records.batch import PlainRecord, decode_records, encode_batch
from magnetar.records.conversion import kafka_batch
from magnetar.records.entry import kafka_message_head
from tests.engines.late import LateEngine, LateStore, Weather
from tests.engines.late.leases import LateLeases
from tests.engines.late.log import LateLog
from tests.ledger.entries import NOW_MS
from tests.simulation.loop import VirtualLoop

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
SEEDS = int(os.environ.get("MAGNETAR_SEEDS", "300")) // 3
FIRST = int(os.environ.get("MAGNETAR_SEED", random.randrange(1 << 30)))
NAME = "public/default/persistent/t-partition-0"
POLICY = LedgerPolicy(max_ledger_entries=4)
SMALL = 24 * 40
KAFKA = CompactionRules(replaces=True, tombstones_ms=1000, buffer_bytes=SMALL)
PULSAR = CompactionRules(buffer_bytes=SMALL)
LIVES, STEPS = 3, 40
Row = tuple[int, bytes, bytes]
"""Of a record: its offset, key and value."""


class World:
    """One log, what was acknowledged of it, and who has leased what."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.store = LateStore(
            Weather(self.dice, slowest_s=0.01, failing=self.dice.choice((0.0, 0.02, 0.05)))
        )
        self.metadata = MemoryStore()
        self.rules = self.dice.choice(([KAFKA], [PULSAR], [KAFKA, PULSAR]))
        self.kept: dict[int, Row] = {}
        self.made = 0
        self.compactions = 0
        self.leases: list[tuple[Lease, list[Row]]] = []
        self.now = 0.0

    def run(self) -> None:
        for _ in range(LIVES):
            loop = VirtualLoop(self.now)
            try:
                loop.run_until_complete(self._live())
            finally:
                self.now = loop.now
                loop.end()

    def _engine(self) -> LateEngine:
        return LateEngine(self.store, self.metadata, clock=lambda: NOW_MS)

    async def _live(self) -> None:
        self.engine = self._engine()
        self.log = await self._opened(self.engine)
        await self._check()
        for _ in range(STEPS):
            step = self.dice.choices(
                (self._append, self._compact, self._lease, self._release, self._rival, self._check, self._roll),
                (30, 12, 6, 5, 3, 10, 3),
            )[0]  # fmt: skip
            try:
                await step()
            except LedgerError:
                if self.log.closed is not None:
                    self.log = await self._opened(self.engine)

    async def _opened(self, engine: LateEngine) -> LateLog:
        while True:
            try:
                return await engine.open(NAME, POLICY)
            except LedgerError:
                await asyncio.sleep(0.01)

    async def _append(self) -> None:
        placed: list[tuple[Pending, Row]] = []
        for _ in range(self.dice.choice((1, 3, 8))):
            self.made += 1
            row = self.log.log_end_offset, b"%d" % self.dice.randrange(6), b"%d" % self.made
            data = encode_batch([PlainRecord(row[1], row[2], (), NOW_MS)], base_offset=row[0])
            message = [kafka_message_head(NOW_MS, 1), data]
            placed.append((self.log.append(message, messages=1, timestamp_ms=NOW_MS), row))
        for pending, row in placed:
            await pending.settled()
            self.kept[row[0]] = row

    async def _compact(self) -> None:
        log = self.log
        if self.dice.random() < 0.5:
            await log.roll()
        # The last moment at which a lease counts: one that is taken behind the last look may come too late.
        log.before_compaction[:] = [self._lease] if self.dice.random() < 0.3 else []
        running = asyncio.ensure_future(log.compact(self.dice.choice(self.rules)))
        for _ in range(self.dice.choice((0, 1, 2))):  # others do not stand still meanwhile
            try:
                await self.dice.choice((self._append, self._check))()
            except LedgerError:
                break
        self.compactions += await running

    async def _lease(self) -> None:
        first = self.dice.randint(self.log.log_start_offset, self.log.high_watermark)
        lease = await self.engine.leases.take({NAME: first}, for_ms=1 << 40)
        self.leases.append((lease, await self._read(first)))

    async def _release(self) -> None:
        if self.leases:
            lease, _ = self.leases.pop(self.dice.randrange(len(self.leases)))
            await self.engine.leases.release(lease)

    async def _rival(self) -> None:
        """Another engine takes the log; this one gets it back."""
        await self._opened(self._engine())
        await self.log.roll()

    async def _roll(self) -> None:
        await self.log.roll()

    # -- what must hold

    async def _read(self, offset: int) -> list[Row]:
        return await self._all(lambda at: self.log.read(at, max_bytes=500), offset)

    async def _all(self, read: Callable[[int], Any], offset: int) -> list[Row]:
        found: list[Row] = []
        while entries := await read(offset):
            for entry in entries:
                found += [
                    (record.offset, record.key or b"", record.value or b"")
                    for record in decode_records(kafka_batch(entry.data))
                ]
            offset = entries[-1].last_offset + 1
        return found

    async def _check(self) -> None:
        before = dict(self.kept)
        compacted = await self._all(lambda at: self.log.read_compacted(at, max_bytes=500), 0)
        rows = await self._read(self.log.log_start_offset)
        for found in (rows, compacted):
            offsets = [offset for offset, _, _ in found]
            assert offsets == sorted(set(offsets)), "an offset twice, or out of order"
            for row in found:
                assert before.get(row[0], row) == row, f"{row} is not what was acknowledged"
            newest = {key: offset for offset, key, _ in found}
            for offset, key, _ in before.values():
                assert newest.get(key, -1) >= offset, f"the newest of {key!r} is not there"
        for lease, seen in list(self.leases):
            (first,) = lease.needs.values()
            again = [row for row in await self._read(first) if row[0] <= (seen[-1][0] if seen else -1)]
            assert again == seen, f"what was leased from {first} on has changed"


def one_world(seed: int) -> int:
    world = World(seed)
    try:
        world.run()
    except BaseException as error:
        raise AssertionError(
            f"seed {seed}, run it alone with MAGNETAR_SEED={seed} MAGNETAR_SEEDS=3"
        ) from error
    return world.compactions


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="magnetar.ledger")


@pytest.mark.slow
def test_what_is_acknowledged_and_what_is_leased_stays() -> None:
    compactions = [one_world(seed) for seed in range(FIRST, FIRST + SEEDS)]
    assert sum(compactions) > SEEDS, "nothing much happened"


# -- planted bugs


def asks_for_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(self: LateLeases, name: str) -> int | None:
        return None

    monkeypatch.setattr(LateLeases, "needed", nobody)


def asks_for_leases_only_where_history_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compactor, "_end_of_copies", lambda self: -1)


def asks_for_leases_only_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    async def may(self: Compactor, rules: CompactionRules, draft: object, replaced: list[Any]) -> bool:
        if replaced:
            await self._before_compaction()
        return True

    monkeypatch.setattr(Compactor, "_may_count", may)


def skips_the_first_entry_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    entries_of = LateLog.entries_of

    def all_but_one(self: LateLog, dirty: list[Any], from_offset: int) -> Any:
        return entries_of(self, dirty, from_offset + 1)

    monkeypatch.setattr(LateLog, "entries_of", all_but_one)


def removes_what_another_owner_may_have_found(monkeypatch: pytest.MonkeyPatch) -> None:
    drop = LateLog.lost

    def lost(self: LateLog, reason: LedgerError) -> None:
        drop(self, reason)
        self.remove([each.ledger_id for each in self.listed.ledgers[-1:]])

    monkeypatch.setattr(LateLog, "lost", lost)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        asks_for_no_lease,
        asks_for_leases_only_where_history_is_replaced,
        asks_for_leases_only_before_it_begins,
        skips_the_first_entry_of_a_run,
        removes_what_another_owner_may_have_found,
    ],
)
def test_planted_bugs_are_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        for seed in range(400):
            one_world(seed)
