"""Appends that come together: written at the end, the entries of one log at once. See `LedgerEngine.gathering`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager

from magnetar.ledger.errors import LedgerError
from magnetar.ledger.port import Done, ManagedLedger

_log = logging.getLogger("magnetar.ledger")


class Gathering(AbstractContextManager[None]):
    """The one of an engine: what begins within another ends with that."""

    __slots__ = ("_to_settle", "_writes", "depth", "refused")

    def __init__(self) -> None:
        self.refused: dict[ManagedLedger, LedgerError] = {}
        """The logs that could not be written to within this gathering."""
        self.depth = 0
        """Above 0 what is appended is written at the end."""
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
        """Have what is gathered for a log written at the end; ``write`` tells for itself what could not be."""
        self._writes.append(write)

    def settle_later(self, done: Done, error: LedgerError | None) -> None:
        """Tell what became of appends when all logs are written: nobody goes on while some are not."""
        self._to_settle.append((done, error))

    def _write(self) -> None:
        while self._writes:
            writes, self._writes = self._writes, []
            for write in writes:
                try:
                    write()
                except Exception:  # raised by whoever was told of it; it is written already
                    _log.exception("a reader failed when it was told of more")
        self.refused = {}

    def _settle(self) -> None:
        to_settle, self._to_settle = self._to_settle, []
        for done, error in to_settle:
            try:
                done.settle(error)
            except Exception:
                _log.exception("one that appended failed when it was told what became of it")
