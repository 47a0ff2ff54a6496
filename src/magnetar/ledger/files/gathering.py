"""Appends that come together: written at the end, with one write for each log. See `LedgerEngine.gathering`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

from magnetar.ledger.errors import LedgerError
from magnetar.ledger.port import Done, ManagedLedger

_log = logging.getLogger("magnetar.ledger")


class Gathering(AbstractContextManager[None]):
    """The gathering of an engine: one that begins within another ends with it."""

    __slots__ = ("_to_settle", "_writes", "depth", "refused")

    def __init__(self) -> None:
        self.refused: dict[ManagedLedger, LedgerError] = {}
        """The logs that could not be written to within this gathering."""
        self.depth = 0
        """If above 0, appends are written at the end."""
        self._writes: list[Callable[[], None]] = []
        self._to_settle: list[tuple[Done, LedgerError | None]] = []

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *failed: object) -> None:
        if self.depth > 1:
            self.depth -= 1
            return
        if self._writes:
            self._write()
            self.depth = 0
            self._settle()
        else:
            self.depth = 0

    def write_later(self, write: Callable[[], None]) -> None:
        """Schedule the write of a log's gathered appends for the end; ``write`` reports its own failures."""
        self._writes.append(write)

    def settle_later(self, done: Done, error: LedgerError | None) -> None:
        """Report the outcome of appends when all logs are written: no caller resumes while some are not."""
        self._to_settle.append((done, error))

    def _write(self) -> None:
        while self._writes:
            writes, self._writes = self._writes, []
            for write in writes:
                try:
                    write()
                except Exception:  # raised by a callback; the write is done already
                    _log.exception("a reader failed when it was told of more")
        self.refused = {}

    def _settle(self) -> None:
        to_settle, self._to_settle = self._to_settle, []
        for done, error in to_settle:
            try:
                done.settle(error)
            except Exception:
                _log.exception("one that appended failed when it was told what became of it")
