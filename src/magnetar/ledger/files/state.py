"""The common state of the parts of one log: its files, its list of ledgers, and its holders to notify."""

from __future__ import annotations

import logging

from magnetar.ledger.errors import LedgerError
from magnetar.ledger.files.ledger_file import LedgerFile
from magnetar.ledger.ledger_list import LedgerList
from magnetar.ledger.port import ManagedLedger, TakenBack

_log = logging.getLogger("magnetar.ledger")


class LogState:
    """The state of one log. Its bounds are in ``log`` itself, where its holders read them."""

    __slots__ = ("closed", "is_deleted", "ledger_list", "log", "open_files", "writer")

    def __init__(self, log: ManagedLedger, ledger_list: LedgerList) -> None:
        self.log = log
        self.ledger_list = ledger_list
        self.open_files: dict[int, LedgerFile] = {}
        """By ledger id: those that were read from, and the open one."""
        self.writer: LedgerFile | None = None
        """The open ledger."""
        self.closed: LedgerError | None = None
        """Why it is closed, None while it is open."""
        self.is_deleted = False

    def check_open(self) -> None:
        """Raise ``LedgerError`` if the log is closed."""
        if self.closed is not None:
            raise self.closed

    @property
    def written_offset(self) -> int:
        """The offset after the last message that has been written."""
        return self.log.log_end_offset if self.writer is None else self.writer.index.next_offset

    def made_durable(self, next_offset: int) -> None:
        """Make all below ``next_offset`` readable."""
        if next_offset > self.log.high_watermark:
            self.log.high_watermark = next_offset
            self.tell_moved()

    def tell_moved(self) -> None:
        """Notify the log's holders that one of its bounds has moved."""
        log = self.log
        if log.on_moved is not None:
            log.on_moved()
        for watcher in log.watchers:
            watcher()

    def tell_taken_back(self, what: TakenBack) -> None:
        """Notify the log's holders that appends were taken back."""
        for holder in tuple(self.log.on_taken_back):
            try:
                holder(what)
            except Exception:  # the others have to learn of it all the same
                _log.exception("a holder of %s failed when appends were taken back", self.log.name)

    def tell_closed(self) -> None:
        """Notify its holders of why it is closed, each once."""
        reason = self.closed
        assert reason is not None
        self.ledger_list.end(reason)
        holders, self.log.on_closed = self.log.on_closed, []
        for holder in holders:
            try:
                holder(reason)
            except Exception:  # the others have to learn of it all the same
                _log.exception("a holder of %s failed when it was closed", self.log.name)
