"""Hundreds of random worlds in virtual time; and worlds with a bug planted in them, which must be found."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable

import pytest

from magnetar.ledger.errors import LedgerError
from magnetar.ledger.files import (
    appending,
    checkpoints,
    journal,
    journal_rounds,
    ledger_file,
    recovery,
    replay,
)
from magnetar.ledger.formats import sparse
from magnetar.ledger.port import Snapshot
from tests.simulation.world import World

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
SEEDS = int(os.environ.get("MAGNETAR_SEEDS", "300"))
FIRST = int(os.environ.get("MAGNETAR_SEED", random.randrange(1 << 30)))


@pytest.fixture(autouse=True)
def small_house(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Make everything small, so that little data meets every boundary."""
    monkeypatch.setattr(journal, "SEGMENT_BYTES", 12 * 4096)
    monkeypatch.setattr(journal, "ROUND_BYTES", 4 * 4096)
    monkeypatch.setattr(journal, "MAX_BUSY", 2)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_BYTES", 10_000)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_ENTRIES", 15)
    monkeypatch.setattr(sparse, "POINT_EVERY_BYTES", 700)
    monkeypatch.setattr(ledger_file, "POINT_EVERY_BYTES", 700)
    caplog.set_level(logging.CRITICAL, logger="magnetar.ledger")


def one_world(seed: int, *, failing_flushes: bool = False) -> None:
    try:
        World(seed, failing_flushes=failing_flushes).run()
    except BaseException as error:
        raise AssertionError(
            f"seed {seed}, run it alone with MAGNETAR_SEED={seed} MAGNETAR_SEEDS=1"
        ) from error


@pytest.mark.slow
def test_no_world_breaks_a_promise() -> None:
    for seed in range(FIRST, FIRST + SEEDS):
        one_world(seed)


@pytest.mark.slow
def test_failing_flushes_break_no_promise() -> None:
    for seed in range(FIRST, FIRST + SEEDS // 3):
        one_world(seed, failing_flushes=True)


# -- planted bugs


def acknowledges_before_the_journal_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    write = journal.Journal._write

    def hasty(self: journal.Journal, current: journal_rounds.Round) -> None:
        write(self, current)
        for mark, value in current.marks.items():
            mark(value)
        current.settle()

    monkeypatch.setattr(journal.Journal, "_write", hasty)


def reuses_a_segment_before_its_ledgers_are_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal.Journal, "_flush_behind", lambda self, full: self._free.append(full))


def counts_entries_that_were_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    take_back = ledger_file.LedgerFile.take_back

    def proud(self: ledger_file.LedgerFile, mark: sparse.Mark) -> None:
        after = self.index.mark()
        take_back(self, mark)
        self.index.end, self.index.entries, self.index.next_offset, self.index.max_timestamp = after

    monkeypatch.setattr(ledger_file.LedgerFile, "take_back", proud)


def tells_of_what_was_gathered_before_the_journal_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    append = journal.Journal.append

    def hasty(self: journal.Journal, *about: object) -> object:
        done = append(self, *about)  # type: ignore[arg-type]
        if about[-1] is not None:
            done.settle()
        return done

    monkeypatch.setattr(journal.Journal, "append", hasty)


def shows_what_is_only_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    append = appending.Appender.append

    def hasty(self: appending.Appender, message: list[bytes], **about: int) -> object:
        appended = append(self, message, **about)
        if self._gathered_from is not None:
            self._state.made_durable(self._state.written_offset)
        return appended

    monkeypatch.setattr(appending.Appender, "append", hasty)


def shows_what_waits_for_a_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = appending.Appender._wait_for_ledger

    def hasty(self: appending.Appender, *about: object) -> object:
        pending = wait(self, *about)  # type: ignore[arg-type]
        self._queue[-1].done.settle()
        return pending

    monkeypatch.setattr(appending.Appender, "_wait_for_ledger", hasty)


def forgets_what_waits_for_a_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    take_back = appending.Appender._take_back

    def forgetful(self: appending.Appender, offset: int, error: Exception) -> object:
        end = self._log.log_end_offset
        gone = take_back(self, offset, error)  # type: ignore[arg-type]
        if gone:
            self._log.log_end_offset = end
        return gone

    monkeypatch.setattr(appending.Appender, "_take_back", forgetful)


def forgets_to_flush_what_recovery_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = recovery.Recovery.__init__

    def careless(self: recovery.Recovery, *args: object, **about: object) -> None:
        begin(self, *args, **{**about, "durable": False})  # type: ignore[arg-type]

    monkeypatch.setattr(recovery.Recovery, "__init__", careless)


def trusts_a_snapshot_from_beyond_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusting(self: checkpoints.Checkpoints, data: bytes, end: int) -> bool:
        if len(data) >= 8:
            self._log.snapshot = Snapshot(int.from_bytes(data[:8], "big"), data[8:])
        return True

    async def late(
        self: checkpoints.Checkpoints, old: ledger_file.LedgerFile, noted: checkpoints.Checkpoint
    ) -> None:
        await asyncio.sleep(0.001)
        await seal(self, old, self._of(old))

    seal = checkpoints.Checkpoints._seal
    monkeypatch.setattr(checkpoints.Checkpoints, "_adopt_snapshot", trusting)
    monkeypatch.setattr(checkpoints.Checkpoints, "_seal", late)


def replays_a_journal_that_was_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        replay, "records_of", lambda rounds, path: journal_rounds.records_of(rounds[:-1], path)
    )


def trusts_the_journal_while_lazy_appends_lie_before(monkeypatch: pytest.MonkeyPatch) -> None:
    journaled = appending.Appender._journal

    def hasty(self: appending.Appender, *about: object) -> object:
        self.lazy.files.clear()
        return journaled(self, *about)  # type: ignore[arg-type]

    monkeypatch.setattr(appending.Appender, "_journal", hasty)


def trusts_in_another_boot_what_was_not_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse.SparseIndex, "back_to", lambda self, mark: None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        acknowledges_before_the_journal_is_written,
        reuses_a_segment_before_its_ledgers_are_flushed,
        counts_entries_that_were_not_written,
        shows_what_is_only_gathered,
        shows_what_waits_for_a_ledger,
        forgets_what_waits_for_a_ledger,
        tells_of_what_was_gathered_before_the_journal_is_written,
        forgets_to_flush_what_recovery_shows,
        trusts_a_snapshot_from_beyond_the_end,
        replays_a_journal_that_was_cut_off,
        trusts_the_journal_while_lazy_appends_lie_before,
        trusts_in_another_boot_what_was_not_flushed,
    ],
)
def test_simulation_finds_planted_bugs(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(1000):
        try:
            World(seed).run()
        except (AssertionError, LedgerError):
            return
    pytest.fail("a thousand worlds did not find it")
