"""The parts that an engine on bookies shares with its logs, and a log as its writer sees it."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from magnetar.ledger.bookkeeper.bookies import Bookies
from magnetar.ledger.bookkeeper.opening import LogCheckpoint
from magnetar.ledger.bookkeeper.reading import BookieReader
from magnetar.ledger.bookkeeper.tail import Tail
from magnetar.ledger.compaction.compactor import CompactableLog
from magnetar.ledger.compaction.workers import CompactionWorkers
from magnetar.ledger.cursors.keeper import CursorKeeper
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.leases import Leases
from magnetar.ledger.ledger_list import LedgerList
from magnetar.ledger.port import AppendInterceptor, TakenBack
from magnetar.ledger.tiers.tiers import Tiers
from magnetar.metadata import MetadataStore


@dataclass(slots=True)
class BookKeeperParts:
    """The parts of an engine that its logs use."""

    bookies: Bookies
    metadata: MetadataStore
    clock: Callable[[], int]
    interceptors: Sequence[AppendInterceptor]
    tail: Tail
    leases: Leases
    workers: CompactionWorkers
    cursor_keeper: CursorKeeper
    one_compaction: asyncio.Lock
    background: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    """Runs something in the background; the engine's ``close`` waits for it."""
    dropped: Callable[[Any], None]
    """Forget a log that was lost to another owner."""
    release: Callable[[str], Coroutine[Any, Any, None]]
    kept: Callable[[float, int], None]
    """Count an append that is stored now: how long that took, in seconds, and its bytes."""
    make_tiers: Callable[[], Tiers]
    grace_ms: int
    """How long another broker may continue to write objects of an attempt that this one gives up."""
    has_doomed: bool = True
    """Brokers delete for each other, so there may always be something."""
    counts_cache: tuple[Callable[[int], None], Callable[[], bool]] | None = None
    used_tiers: Tiers | None = None
    """Tiered storage, if anything has needed it."""

    @property
    def tiers(self) -> Tiers:
        """Tiered storage; created on first use."""
        if self.used_tiers is None:
            self.used_tiers = self.make_tiers()
            if self.counts_cache is not None:
                self.used_tiers.cache.count(*self.counts_cache)
        return self.used_tiers


class WrittenLog(CompactableLog):
    """A log as its writer sees it."""

    engine: BookKeeperParts
    list: LedgerList
    custom: dict[str, bytes]
    """The custom metadata of each ledger, as in Pulsar."""
    closed: LedgerError | None
    readers: dict[int, BookieReader]

    @abstractmethod
    def tell_moved(self) -> None:
        """Notify waiting readers that a bound has moved."""

    @abstractmethod
    def tell_taken_back(self, what: TakenBack) -> None:
        """Notify holders of what was taken back."""

    @abstractmethod
    async def keep_snapshot(self, checkpoint: LogCheckpoint) -> None:
        """Store what is known now, for the next owner of the log."""

    @abstractmethod
    def lost(self, reason: LedgerError) -> None:
        """Close it immediately: another owner has it."""

    @abstractmethod
    def remove(self, ledger_ids: Sequence[int]) -> None:
        """Delete ledgers that nothing refers to."""
