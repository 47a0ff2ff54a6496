"""A log's cursors as another owner finds them in the metadata store."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from magnetar.ledger.cursors.keeper import CursorKeeper
from magnetar.ledger.cursors.kept import KeptCursors
from magnetar.ledger.cursors.store import CursorLedgers
from magnetar.ledger.errors import LedgerNotFound
from magnetar.ledger.port import ManagedLedger, Position, wall_clock_ms
from magnetar.metadata import MetadataStore


class Ledgers(CursorLedgers):
    """Ledgers of cursors in a dict."""

    def __init__(self) -> None:
        self.states: dict[int, bytes] = {}
        self._next = 1000

    async def write(self, state: bytes) -> int:
        self._next += 1
        self.states[self._next] = state
        return self._next

    async def read(self, ledger_id: int) -> bytes:
        if ledger_id not in self.states:
            raise LedgerNotFound(f"no ledger {ledger_id}")
        return self.states[ledger_id]

    def forget(self, ledger_ids: Iterable[int]) -> None:
        for ledger_id in ledger_ids:
            del self.states[ledger_id]


async def kept(
    log: ManagedLedger,
    store: MetadataStore,
    ledgers: CursorLedgers | None = None,
    clock: Callable[[], int] = wall_clock_ms,
) -> KeptCursors:
    """Return the log's cursors as another owner would find them in the store."""
    cursors = KeptCursors(log, CursorKeeper(store, ledgers or Ledgers(), clock))
    await cursors.load()
    return cursors


async def mark_of(log: ManagedLedger, store: MetadataStore, name: str = "c") -> Position:
    return (await (await kept(log, store)).open(name)).mark_delete_position
