"""What was appended to a log without being made durable, and how its journal becomes enough again.

The journal brings back what it holds and nothing before it. So a durable append behind lazy ones has to wait until the
files themselves are flushed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.ledger.errors import LedgerError
from magnetar.ledger.files.ledger_file import LedgerFile
from magnetar.ledger.port import Done, DoneTogether

if TYPE_CHECKING:
    from magnetar.ledger.files.engine import FilesEngine


class LazyAppends:
    """The files of one log with appends that nothing has made durable; ``made_durable`` is told the next offset."""

    __slots__ = ("_engine", "_is_catching_up", "_made_durable", "_waiting", "_written_offset", "files")

    def __init__(
        self,
        engine: FilesEngine,
        written_offset: Callable[[], int],
        made_durable: Callable[[int], None],
    ) -> None:
        self.files: set[LedgerFile] = set()
        self._engine = engine
        self._written_offset = written_offset
        self._made_durable = made_durable
        self._waiting: DoneTogether | None = None
        self._is_catching_up = False

    async def flush(self) -> None:
        """Make them durable; raise ``LedgerError``. They are counted on: more may have been appended meanwhile."""
        if self.files:
            await self._engine.flush(self._paths())

    def durable(self, done: Done | None = None) -> Done:
        """Return what tells when all that was appended so far is durable; ``done``, where it is given, does so, too."""
        if self._waiting is None:
            self._waiting = DoneTogether([])
        if done is not None:
            self._waiting.those.append(done)
        if not self._is_catching_up:
            self._is_catching_up = True
            self._engine.background(self._catch_up())
        return self._waiting

    async def _catch_up(self) -> None:
        """Flush files until nothing waits for it any more; from then on the journal is enough."""
        engine, rounds = self._engine, 0
        while self._waiting is not None:
            waiting, self._waiting, next_offset = self._waiting, None, self._written_offset()
            try:
                await engine.flush(self._paths())
                rounds += 1
                if rounds > 1:
                    # The little that came meanwhile: the loop waits for it, or this would never end under load.
                    next_offset = self._written_offset()
                    engine.flush_now(self._paths())
            except LedgerError as error:
                waiting.settle(error)
                continue
            if next_offset == self._written_offset():
                self.files.clear()
            waiting.settle()  # before readers, as the journal does it
            self._made_durable(next_offset)
        self._is_catching_up = False

    def _paths(self) -> list[Path]:
        return sorted(each.path for each in self.files)
