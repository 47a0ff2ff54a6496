"""The port's part about cursors: how an engine stores the reading states of one log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from magnetar.ledger.cursors.cursor import Cursor, Start
from magnetar.ledger.formats.cursor_info import CursorInfo


class CursorStore(ABC):
    """The cursors of one managed ledger (`ManagedLedger.cursors` returns it).

    Acknowledgements count in memory immediately. They are durable after `save`, and automatically ``save_interval_ms``
    after the last time, if the cursor is changed again then. A change of a cursor that was deleted, or that another
    owner changed, raises ``LedgerFenced``.
    """

    save_interval_ms: int = 0
    watchers: list[Callable[[], None]]
    """Called when a cursor was changed, and has something in memory only."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of the durable cursors, open or not, sorted."""

    @abstractmethod
    async def open(self, name: str, start: Start = Start.latest) -> Cursor:
        """Open a durable cursor, or create it durably; return the same one each time.

        One that begins at the latest begins after the last entry that may be read: entries in flight will come.
        Raises ``LedgerCorrupt`` or ``LedgerNotFound`` if its stored state cannot be read: it is not created again.
        """

    @abstractmethod
    async def non_durable(self, start: Start = Start.latest) -> Cursor:
        """Return a private cursor of the caller."""

    @abstractmethod
    async def delete(self, name: str) -> None:
        """Delete a durable cursor; unknown names are no error."""

    @property
    @abstractmethod
    def unsaved(self) -> bool:
        """True if cursors have something in memory only."""

    @abstractmethod
    async def save(self) -> None:
        """Make what cursors have in memory durable; raise ``LedgerError`` if that failed, and it stays in memory."""

    @abstractmethod
    async def read(self, name: str) -> CursorInfo | None:
        """Return the stored state of a durable cursor, as it is; raises as `open`."""

    @abstractmethod
    def change(self, name: str, info: Callable[[], CursorInfo]) -> None:
        """Replace the state of a durable cursor that is not open by what ``info`` returns when it is saved."""


class CursorLedgers(ABC):
    """The store for cursor states that are too large for the metadata: a ledger for each."""

    @abstractmethod
    async def write(self, state: bytes) -> int:
        """Store a state in a new ledger, durably; return the ledger's id. Raises ``LedgerError``."""

    @abstractmethod
    async def read(self, ledger_id: int) -> bytes:
        """Return the state in a ledger; raise ``LedgerNotFound`` or ``LedgerCorrupt``."""

    @abstractmethod
    def forget(self, ledger_ids: Iterable[int]) -> None:
        """Delete ledgers that no cursor refers to any more."""
