"""The port's part about cursors: what an engine keeps of the reading states of one log, and how one gets at them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from magnetar.ledger.cursors.cursor import Cursor, Start
from magnetar.ledger.formats.cursor_info import CursorInfo


class CursorStore(ABC):
    """The cursors of one managed ledger, which gives it (`ManagedLedger.cursors`).

    What a cursor is done with counts in memory at once. It is durable after `save`, and without being asked
    ``save_interval_ms`` after the last time, if it is changed again then. Whoever changes one that was deleted, or that
    another owner changed, is told by ``LedgerFenced``.
    """

    save_interval_ms: int = 0
    watchers: list[Callable[[], None]]
    """Called when a cursor was changed of which something is in memory only."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of the durable cursors, open or not, sorted."""

    @abstractmethod
    async def open(self, name: str, start: Start = Start.latest) -> Cursor:
        """Open a durable cursor, or make it, durably; return the same one each time.

        One that begins at the latest begins behind the last entry that may be read: what is on its way comes.
        Raises ``LedgerCorrupt`` or ``LedgerNotFound`` where what is kept of it cannot be read: it is not made anew.
        """

    @abstractmethod
    async def non_durable(self, start: Start = Start.latest) -> Cursor:
        """Return a cursor of one's own that nobody else sees."""

    @abstractmethod
    async def delete(self, name: str) -> None:
        """Forget a durable cursor; unknown names are no error."""

    @property
    @abstractmethod
    def unsaved(self) -> bool:
        """Whether cursors have something in memory only."""

    @abstractmethod
    async def save(self) -> None:
        """Make what cursors have in memory durable; raise ``LedgerError`` where that failed, and it stays in memory."""

    @abstractmethod
    async def read(self, name: str) -> CursorInfo | None:
        """Return what is kept of a durable cursor, as it is; raises as `open`."""

    @abstractmethod
    def change(self, name: str, info: Callable[[], CursorInfo]) -> None:
        """Have a durable cursor that nobody opens become what ``info`` returns when it is saved."""


class CursorLedgers(ABC):
    """Where an engine keeps the state of a cursor that is too large for the metadata: a ledger of its own."""

    @abstractmethod
    async def write(self, state: bytes) -> int:
        """Keep a state in a new ledger, durably; return the ledger's id. Raises ``LedgerError``."""

    @abstractmethod
    async def read(self, ledger_id: int) -> bytes:
        """Return the state that lies in a ledger; raise ``LedgerNotFound`` or ``LedgerCorrupt``."""

    @abstractmethod
    def forget(self, ledger_ids: Iterable[int]) -> None:
        """Let go of ledgers that no cursor refers to any more."""
