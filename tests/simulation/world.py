"""One seed's world: a storage engine driven at random through appends, roll-overs, trims, full disks and crashes.

Beside it runs a model that is too simple to be wrong: per log, the list of what was appended, and how much of it
must be there after a kill -9 and after a power loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from magnetar.ledger.errors import LedgerClosed, StorageFailed, StorageFull
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.port import Flush, LedgerPolicy, ManagedLedger, Pending, TakenBack
from tests.ledger.entries import NOW_MS, append, batch, payload
from tests.simulation.disk import Crashed, SimulatedDisk, SimulatedMetadata
from tests.simulation.loop import SimulatedThreads, VirtualLoop

NAMES = [f"public/default/persistent/log{n}-partition-0" for n in range(3)]
SIZES = (1, 20, 200, 700, 2_000, 9_000, 40_000)
LIVES = 4
STEPS = 45


@dataclass
class Model:
    """What one log was told, and what it may forget. Offsets; entry = (offset of its first message, its bytes)."""

    entries: list[tuple[int, bytes]] = field(default_factory=list)
    end: int = 0
    first: int = 0
    survives_kill: int = 0
    survives_power_loss: int = 0
    lazy: bool = False  # something was visible that nobody promised to keep
    being_deleted: bool = False


class World:
    def __init__(self, seed: int, *, failing_flushes: bool = False) -> None:
        self.dice = Random(seed)
        self.disk = SimulatedDisk(self.dice)
        self.metadata = SimulatedMetadata(self.disk)
        self.failing_flushes = failing_flushes
        self.flushes = [Flush.always] if failing_flushes else self.dice.choice(([Flush.always], list(Flush)))
        self.boots = 0
        self.models: dict[str, Model] = {}
        self.now = 0.0
        self.loop: VirtualLoop
        self.engine: FilesEngine
        self.logs: dict[str, ManagedLedger]
        self.written = 0
        self.power_lost = False
        """Whether the last life ended with the power's."""
        self.is_over = False
        """Whether a life has ended: what still becomes of it, nobody learns."""

    def run(self) -> None:
        """Live several lives. Raises ``AssertionError`` where a promise was broken."""
        for _ in range(LIVES):
            self.disk.crash_at = self.disk.steps + int(self.dice.expovariate(1 / 120)) + 1
            self._in_new_process(self._live)
            # Only now: what was about to run in the turn of the loop in which it died finds no disk.
            self.disk.restart(power_lost=self.power_lost)
        self.disk.crash_at = -1
        self._in_new_process(self._last_look)

    def _in_new_process(self, life: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Nothing of an earlier process goes on in a later one; only the clock does."""
        self.loop = VirtualLoop(self.now)
        try:
            self.loop.run_until_complete(life())
        finally:
            self.now = self.loop.now
            self.loop.end()

    async def _last_look(self) -> None:
        await self._open_all()
        await self.engine.close()

    async def _live(self) -> None:
        ended_well = False
        try:
            await self._open_all()
            for _ in range(self.dice.randrange(STEPS)):
                await self._step()
            if self.dice.random() < 0.4:
                await self._close()
                ended_well = True
            elif self.dice.random() < 0.5:
                await asyncio.sleep(self.dice.random())
        except Crashed:
            pass
        self.is_over = True
        self.power_lost = self.dice.random() < 0.5
        if not ended_well:
            self._note_what_is_visible()
        self.disk.crashed = True
        self._forget_what_may_be_lost()
        self.boots += self.power_lost

    # -- what may happen

    async def _step(self) -> None:
        if self.disk.crashed:
            raise Crashed
        what = self.dice.choices(
            (self._append, self._append_gathered, self._wait, self._read, self._trim, self._retain, self._checkpoint,
             self._disk_space, self._policy, self._delete, self._fail_flushes),
            (30, 20, 20, 16, 4, 4, 4, 3, 10, 1, 2),
        )[0]  # fmt: skip
        await what()

    async def _append(self) -> None:
        name, log = self.dice.choice(list(self.logs.items()))
        for _ in range(self.dice.choice((1, 1, 3, 12))):
            if not self._place(name, log):
                return

    async def _append_gathered(self) -> None:
        """Append to some logs before anything is written; the disk may fill up, or get room again, at any time."""
        with self.engine.gathering():
            for _ in range(self.dice.choice((1, 3, 12))):
                name, log = self.dice.choice(list(self.logs.items()))
                begins = log.log_end_offset
                if self._place(name, log):
                    assert log.high_watermark <= begins
                if self.dice.random() < 0.05:
                    self.disk.full = not self.disk.full
        for name, log in self.logs.items():
            assert log.log_end_offset == self.models[name].end

    def _place(self, name: str, log: ManagedLedger) -> bool:
        """Append an entry; tell whether it has its place. It may be taken back as long as it is not done."""
        values = self._values()
        model, before = self.models[name], log.log_end_offset
        entry = before, batch(*values)
        model.entries.append(entry)  # a crash may leave it there
        model.end = before + len(values)
        try:
            appended = append(log, *values)
        except (StorageFull, StorageFailed):
            assert log.log_end_offset == before, "an append that failed moved the end"
            model.entries.remove(entry)
            model.end = before
            return False
        assert appended.base_offset == before
        assert log.log_end_offset == model.end
        self._expect(model, appended, entry, lazy=log.policy.flush is not Flush.always)
        return True

    def _values(self) -> list[bytes]:
        self.written += 1
        size = self.dice.choice(SIZES)
        return [b"%d." % self.written + b"v" * self.dice.randrange(size)] * self.dice.choice((1, 1, 2, 5))

    def _expect(self, model: Model, appended: Pending, entry: tuple[int, bytes], *, lazy: bool) -> None:
        model.lazy |= lazy
        end = model.end

        def done(done: asyncio.Future[None] | None) -> None:
            if self.disk.crashed or self.is_over or (done is not None and done.cancelled()):
                return
            if done is not None and done.exception() is not None:
                # A failed flush ends it all, and leaves what was written in doubt; anything else takes it back.
                failed_for_good = self.engine.failed is not None
                assert failed_for_good or entry not in model.entries, "it failed, and the log holds it"
                return
            assert entry in model.entries, "it was taken back, and its producer told that it is kept"
            assert appended.position.ledger_id >= 0
            model.survives_kill = max(model.survives_kill, end)
            if not lazy:
                model.survives_power_loss = max(model.survives_power_loss, end)

        if appended.done is None:
            done(None)
        else:
            appended.done.add_done_callback(done)

    async def _wait(self) -> None:
        await asyncio.sleep(self.dice.choice((0, 0.0001, 0.001, 0.05, 2)))

    async def _read(self) -> None:
        name, log = self.dice.choice(list(self.logs.items()))
        if log.high_watermark > log.log_start_offset:
            offset = self.dice.randrange(log.log_start_offset, log.high_watermark)
            found = await log.read(offset, max_bytes=self.dice.choice((1, 1000, 100_000)))
            assert found
            assert found[0].last_offset >= offset
            known = dict(self.models[name].entries)
            for entry in found:
                assert payload(entry) == known[_base_of(payload(entry), entry.last_offset)]
        assert log.high_watermark <= log.log_end_offset == self.models[name].end

    async def _trim(self) -> None:
        name, log = self.dice.choice(list(self.logs.items()))
        before = self.dice.randint(log.log_start_offset, log.high_watermark)
        try:
            await log.trim(before)
        except (StorageFull, StorageFailed):
            return
        self._note_first(name, log)

    async def _retain(self) -> None:
        name, log = self.dice.choice(list(self.logs.items()))
        try:
            await log.retain(self._clock())
        except (StorageFull, StorageFailed):
            return
        self._note_first(name, log)

    def _note_first(self, name: str, log: ManagedLedger) -> None:
        assert log.log_start_offset >= self.models[name].first
        self.models[name].first = log.log_start_offset

    async def _checkpoint(self) -> None:
        self.engine.opened()[0].checkpoint()

    async def _disk_space(self) -> None:
        self.disk.full = not self.disk.full

    async def _fail_flushes(self) -> None:
        if self.failing_flushes:
            self.disk.sync_fails = 0.5

    async def _policy(self) -> None:
        self.dice.choice(list(self.logs.values())).policy = self._random_policy()

    async def _delete(self) -> None:
        name = self.dice.choice(list(self.logs))
        self.models[name].being_deleted = True
        try:
            await self.engine.delete(name)
        except StorageFull:
            self.models[name].being_deleted = False
            return
        del self.logs[name]
        self.models[name] = Model()
        await self._open(name)

    async def _close(self) -> None:
        self.disk.full = False
        await self.engine.close()
        if self.disk.crashed:  # in the background, where nobody was told
            raise Crashed
        if self.engine.journal.failed is None:
            for name, log in self.logs.items():
                model = self.models[name]
                assert log.log_end_offset == model.end
                model.survives_power_loss = model.survives_kill = model.end

    # -- opening, and what must be there then

    async def _open_all(self) -> None:
        self.logs = {}
        self.is_over = False
        boot = str(self.boots)
        threads = SimulatedThreads(self.loop, self.dice)
        self.engine = FilesEngine(
            Path("/data"), self.metadata, self.disk, clock=self._clock, boot=lambda: boot, executor=threads,
            flush_interval_ms=500,
        )  # fmt: skip
        await self.engine.start()
        for name in self.dice.sample(NAMES, len(NAMES)):
            try:
                await self._open(name)
            except StorageFull:
                pass

    async def _open(self, name: str) -> None:
        model = self.models.setdefault(name, Model())
        policy = self._random_policy()
        try:
            log = await self.engine.open(name, policy)
        except (StorageFull, StorageFailed, LedgerClosed):
            return
        await self._check(name, log)
        log.take_snapshot = lambda: b"%d" % log.log_end_offset

        def taken_back(what: TakenBack) -> None:
            if self.disk.crashed or self.is_over or self.logs.get(name) is not log:
                return
            model = self.models[name]
            assert log.log_end_offset == what.offset >= model.survives_kill
            model.entries = [each for each in model.entries if each[0] < what.offset]
            model.end = what.offset

        log.on_taken_back.append(taken_back)
        self.logs[name] = log
        model.lazy = policy.flush is not Flush.always

    async def _check(self, name: str, log: ManagedLedger) -> None:
        """Hold what was recovered against the model; from here on it is the truth."""
        model = self.models[name]
        if model.being_deleted and log.log_end_offset == 0:
            model = self.models[name] = Model()
        model.being_deleted = False
        assert log.log_end_offset == log.high_watermark
        assert log.log_end_offset >= model.survives_kill, (
            f"{name} ends at {log.log_end_offset}, {model.survives_kill} is due"
        )
        assert log.log_end_offset <= model.end, f"{name} holds what was never appended"
        assert min(model.first, log.log_end_offset) <= log.log_start_offset
        if log.snapshot is not None:
            assert log.snapshot.data == b"%d" % log.snapshot.offset
            assert log.snapshot.offset <= log.log_end_offset
        known = dict(model.entries)
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            found = await log.read(offset, max_bytes=3000)
            assert found, f"{name} has a hole at {offset}"
            for entry in found:
                base = _base_of(payload(entry), entry.last_offset)
                assert base <= offset, f"{name} skips from {offset} to {base}"
                assert known.get(base) == payload(entry), f"{name} changed at {base}"
                offset = entry.last_offset + 1
        model.entries = [(base, data) for base, data in model.entries if base < log.log_end_offset]
        model.end, model.first, model.survives_kill = (
            log.log_end_offset,
            log.log_start_offset,
            log.log_end_offset,
        )
        model.survives_power_loss = min(model.survives_power_loss, model.end)
        if log.policy.flush is Flush.always:
            model.survives_power_loss = model.end

    def _note_what_is_visible(self) -> None:
        for name, log in self.logs.items():
            model = self.models[name]
            if not model.lazy:
                model.survives_power_loss = max(model.survives_power_loss, log.high_watermark)

    def _forget_what_may_be_lost(self) -> None:
        for model in self.models.values():
            if self.power_lost:
                model.survives_kill = model.survives_power_loss

    def _random_policy(self) -> LedgerPolicy:
        dice = self.dice
        return LedgerPolicy(
            flush=dice.choice(self.flushes),
            max_ledger_bytes=dice.choice((0, 3_000, 20_000)),
            max_ledger_entries=dice.choice((0, 5, 20)),
            max_ledger_ms=dice.choice((0, 1_000)),
            retention_bytes=dice.choice((-1, 10_000)),
        )

    def _clock(self) -> int:
        return NOW_MS + int(self.loop.time() * 1000)


def _base_of(data: bytes, last_offset: int) -> int:
    return last_offset - int.from_bytes(data[23:27], "big")
