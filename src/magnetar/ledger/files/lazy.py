"""Appends to a log that were not made durable, and how its journal becomes sufficient again.

The journal restores what it contains and nothing before it. So a durable append after lazy ones has to wait until the
files themselves are flushed.
"""

from __future__ import annotations

from pathlib import Path

from magnetar.ledger.errors import LedgerError
from magnetar.ledger.files.ledger_file import LedgerFile
from magnetar.ledger.files.shared import EngineParts
from magnetar.ledger.files.state import LogState
from magnetar.ledger.port import Done, DoneTogether


class LazyAppends:
    """The files of one log with appends that are not durable yet."""

    __slots__ = ("_flushing", "_is_catching_up", "_state", "_waiting", "_work", "files")

    def __init__(self, shared: EngineParts, state: LogState) -> None:
        self.files: set[LedgerFile] = set()
        self._flushing = shared.flushing
        self._work = shared.work
        self._state = state
        self._waiting: DoneTogether | None = None
        self._is_catching_up = False

    async def flush(self) -> None:
        """Make them durable; raise ``LedgerError``. They are counted on: more may have been appended meanwhile."""
        if self.files:
            await self._flushing.flush(self._paths())

    def durable(self, done: Done | None = None) -> Done:
        """Return a `Done` for when all that was appended so far is durable: ``done``, if it is given."""
        if self._waiting is None:
            self._waiting = DoneTogether([])
        if done is not None:
            self._waiting.those.append(done)
        if not self._is_catching_up:
            self._is_catching_up = True
            self._work.background(self._catch_up())
        return self._waiting

    async def _catch_up(self) -> None:
        """Flush files until no append waits any more; from then on the journal is sufficient."""
        state, flushing, rounds = self._state, self._flushing, 0
        while self._waiting is not None:
            waiting, self._waiting, next_offset = self._waiting, None, state.written_offset
            try:
                await flushing.flush(self._paths())
                rounds += 1
                if rounds > 1:
                    # The little that came meanwhile: the loop waits for it, or this would never end under load.
                    next_offset = state.written_offset
                    flushing.flush_now(self._paths())
            except LedgerError as error:
                waiting.settle(error)
                continue
            if next_offset == state.written_offset:
                self.files.clear()
            waiting.settle()  # before readers, as the journal does it
            state.made_durable(next_offset)
        self._is_catching_up = False

    def _paths(self) -> list[Path]:
        return sorted(each.path for each in self.files)
