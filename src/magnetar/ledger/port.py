"""The port: what a storage engine offers to the broker. Engines: ``files``, ``bookkeeper``, ``memory``.

A managed ledger is one endless log. Its entries are addressed by ``Position``; its messages by their *index*,
one counter without gaps (PIP-70), which Kafka calls the offset.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from magnetar.ledger.cursors.store import CursorStore
from magnetar.ledger.durations import Durations
from magnetar.ledger.errors import CannotOffload, LedgerError
from magnetar.ledger.leases import Leases
from magnetar.ledger.pending import Done, DoneTogether, Gathered, Pending, TakenBack, when_done
from magnetar.ledger.room import Room
from magnetar.ledger.tiers.place import TierPlace
from magnetar.ledger.tiers.tiers import Tiers
from magnetar.ledger.transactions import LogTransactions
from magnetar.ledger.values import (
    NOWHERE,
    Compacted,
    LedgerSummary,
    NewEntry,
    Position,
    Snapshot,
    StoredEntry,
)
from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.compression import Buffer

__all__ = [
    "AppendInterceptor",
    "Compacted",
    "CompactionReport",
    "CompactionRules",
    "CompactionStatus",
    "Done",
    "DoneTogether",
    "Flush",
    "Gathered",
    "LedgerEngine",
    "LedgerPolicy",
    "LedgerSummary",
    "LedgerWriter",
    "ManagedLedger",
    "NOWHERE",
    "NewEntry",
    "Pending",
    "Position",
    "Snapshot",
    "StoredEntry",
    "TakenBack",
    "wall_clock_ms",
    "when_done",
]


def wall_clock_ms() -> int:
    """Return the time in ms since 1970."""
    return time.time_ns() // 1_000_000


_ENDLESS = Room()


class Flush(StrEnum):
    """When an append is acknowledged: once on disk, immediately with periodic flushes, or immediately without."""

    always = "always"
    interval = "interval"
    os = "os"


@dataclass(frozen=True, slots=True)
class LedgerPolicy:
    """The policy of one managed ledger, on any engine. Sizes in bytes, times in ms; 0 or less means no bound.

    Further parameters of an engine (copies, quorums, digests) are settings that its factory brings.
    """

    flush: Flush = Flush.always
    """What an acknowledgement promises at least; an engine that is always durable first promises more."""
    max_ledger_bytes: int = 1 << 30
    max_ledger_entries: int = 0
    max_ledger_ms: int = 7 * 24 * 3600 * 1000
    retention_ms: int = -1
    retention_bytes: int = -1


class CompactionStatus(StrEnum):
    """The status of a log's last compaction, in Pulsar's words."""

    NOT_RUN = "NOT_RUN"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


@dataclass(slots=True)
class CompactionReport:
    """The outcome of a log's compactions since it was opened. Times in ms, 0 for never."""

    status: CompactionStatus = CompactionStatus.NOT_RUN
    error: str = ""
    succeeded_ms: int = 0
    failed_ms: int = 0
    took_ms: int = 0
    removed: int = 0
    """Messages that the last one removed."""


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """The rules for compacting a log. Sizes in bytes, times in ms."""

    replaces: bool = False
    """Whether sealed ledgers below the horizon are deleted (Kafka), or the history stays (Pulsar)."""
    tombstones_ms: int = -1
    """How long deletions are retained; -1 for not at all, and then empty values delete, too, as in Pulsar."""
    null_keys: bool = False
    """Whether messages without a key are retained."""
    min_age_ms: int = 0
    """How old a ledger's newest message must be."""
    buffer_bytes: int = 128 << 20
    """The memory that the map of keys may take."""


class LedgerWriter(ABC):
    """A new ledger that is written from its first entry to its last, and counts only when the metadata name it.

    Offsets only grow, and may have gaps. Raises ``LedgerError``, and then it has to be discarded.
    """

    ledger_id: int
    frame_bytes: int = 0
    """The bytes that an entry takes in addition to its own."""

    @abstractmethod
    async def append(self, entries: Sequence[NewEntry]) -> None:
        """Write some more entries; they are durable after `seal`."""

    @abstractmethod
    async def seal(self) -> LedgerSummary:
        """Make it whole and durable; nothing can be written after that."""

    @abstractmethod
    async def discard(self) -> None:
        """Remove it as if it had never been."""


class AppendInterceptor(Protocol):
    """Sees every entry before it is written (Pulsar's ManagedLedgerInterceptor): may change or refuse it."""

    def before_append(self, log: ManagedLedger, message: Sequence[Buffer], messages: int) -> Sequence[Buffer]:
        """Return what to write instead of ``message``. Its offset will be ``log.log_end_offset``."""
        ...


class ManagedLedger(ABC):
    """The endless log of one partition. One event loop uses it, so appends never overlap."""

    name: str
    policy: LedgerPolicy
    log_start_offset: int
    """The first offset that may be read."""
    log_end_offset: int
    """The offset that the next message gets."""
    high_watermark: int
    """All messages below it may be read."""
    snapshot: Snapshot | None
    """The newest stored snapshot of the log's owner that still counts."""
    on_moved: Callable[[], None] | None
    """Called after ``high_watermark`` or ``log_start_offset`` moved."""
    on_taken_back: list[Callable[[TakenBack], None]]
    """Called when storage did not store what was appended, before the futures of those appends fail.

    That may be at any time after they were placed. ``log_end_offset`` has gone back by then, and the log goes on.
    """
    watchers: list[Callable[[], None]]
    """Called then too: a log has one owner, and others may read along."""
    on_closed: list[Callable[[LedgerError], None]]
    """Called once with the reason, when the engine drops the log: closed, released, deleted or fenced.

    Its holders have to drop it, too; opening its name from now on returns another one.
    """
    before_compaction: list[Callable[[], Awaitable[None]]]
    """Awaited before compacted ledgers replace history: what is only known from entries must be stored now."""
    compaction: CompactionReport
    take_snapshot: Callable[[], bytes] | None
    """Called for the data of a new snapshot as often as the engine likes, at the latest before it closes the log.

    It is taken at ``log_end_offset``, and stored only once all below that is durable: a snapshot that covers messages
    which were lost or taken back is never returned.
    """

    keeps_epochs = False
    """Whether where leader epochs begin is stored with it."""

    epoch_starts: str | None = None
    """Where leader epochs begin (`magnetar.ledger.epoch_starts`), the one that it was opened under included.

    None where that is stored elsewhere. What it is set to is stored before anything that is appended from then on.
    """

    room: Room = _ENDLESS
    """The free space for producers' messages; callers check it before they append these."""

    transactions: LogTransactions | None = None
    """Open and aborted transactions; None in a log without transactions, or until they have been loaded."""

    @property
    def last_stable_offset(self) -> int:
        """All messages below it may be read by readers of committed messages only; never above ``high_watermark``.

        Without open transactions everything is.
        """
        found = self.transactions
        return (
            self.high_watermark if found is None else found.stable(self.high_watermark, self.log_start_offset)
        )

    @property
    @abstractmethod
    def has_transactions(self) -> bool:
        """True if there may ever have been transactions in it: readers have to load them first."""

    @abstractmethod
    async def note_transactions(self) -> None:
        """Set `has_transactions` from now on, durable on return. Raises ``LedgerError``."""

    @abstractmethod
    def append(
        self,
        message: Sequence[Buffer],
        *,
        messages: int,
        timestamp_ms: int,
        earliest_ms: int = UNKNOWN_TIME,
        tail_crc: int | None = None,
    ) -> Pending:
        """Place one entry of so many messages, the latest of ``timestamp_ms``, at the log's end; it waits for nothing.

        No message is earlier than ``earliest_ms``, which only helps to find them by time; `UNKNOWN_TIME` if the caller
        does not know. ``message`` is all that follows the broker's entry metadata; it may lie in memory that
        is used again as soon as this returns or, within a `LedgerEngine.gathering`, as soon as that has ended. Raises
        ``LedgerError`` with nothing placed. What was placed may still be taken back, and all after it: see `Pending`.
        ``tail_crc`` is the CRC32C of the last part of ``message``, if the caller has checked it against the bytes: then
        an engine need not compute it again.
        """

    @abstractmethod
    async def read(self, offset: int, *, max_bytes: int, up_to: int | None = None) -> list[StoredEntry]:
        """Return the entries from the one that contains ``offset``, below ``up_to`` (default: what is visible).

        At least one entry comes, if there is one, then as many as fit ``max_bytes``; they may end at the end
        of a ledger, or after some thousands of entries. Raises ``OffsetOutOfRange`` or ``LedgerCorrupt``.
        """

    @abstractmethod
    async def find_by_time(self, timestamp_ms: int) -> StoredEntry | None:
        """Return the first entry with a message of ``timestamp_ms`` or later, or None."""

    @abstractmethod
    async def find_max_timestamp(self) -> StoredEntry | None:
        """Return the first entry with the latest timestamp of all."""

    @abstractmethod
    async def find_first(self, wanted: Callable[[StoredEntry], bool]) -> StoredEntry | None:
        """Return the first entry for which ``wanted`` holds, if it holds for all later ones too (OpFindNewest)."""

    @abstractmethod
    async def entry(self, position: Position) -> StoredEntry:
        """Return the entry at ``position``; raise ``LedgerNotFound``."""

    @abstractmethod
    async def trim(self, before: int) -> None:
        """Delete all messages below offset ``before`` (DeleteRecords); whole ledgers leave the disk."""

    @abstractmethod
    async def retain(self, now_ms: int) -> None:
        """Delete the ledgers that the policy's retention no longer covers; roll an old one over."""

    @property
    @abstractmethod
    def compacted(self) -> Compacted | None:
        """The compacted ledger, if there is one."""

    @abstractmethod
    async def read_compacted(
        self, offset: int, *, max_bytes: int, up_to: int | None = None
    ) -> list[StoredEntry]:
        """Return what ``read`` does, but up to the horizon the copies, even of what was deleted from the history."""

    @abstractmethod
    async def offset_behind(self, position: Position) -> int:
        """Return the offset right after the entry at ``position``, whether that is still there or compacted away."""

    @abstractmethod
    async def compact(self, rules: CompactionRules) -> bool:
        """Compact what is not yet; return whether there was anything to do. One at a time; nothing waits for it.

        Raises ``LedgerError``, and then all is as it was. ``compaction`` has its status.
        """

    @abstractmethod
    def dirty_bytes(self, rules: CompactionRules) -> tuple[int, int, int]:
        """Return the bytes compacted already, those that could be now, and since when (ms) the oldest of these
        waits.
        """

    @abstractmethod
    async def cursors(self) -> CursorStore:
        """Return the log's cursors, the same store each time; raise ``LedgerError`` where they cannot be listed."""

    @abstractmethod
    async def roll(self, older_than_ms: int = 0) -> None:
        """Seal the open ledger, if it has entries and was begun before that time (0: whenever)."""

    async def offload(self, ledger_id: int, place: TierPlace) -> None:
        """Copy one sealed ledger to tiered storage; it is there, checked and noted on return, and is here as well.

        Raises ``CannotOffload`` for a ledger or an engine that cannot be, ``TierFailed`` where the same may be tried
        again, and other ``LedgerError``: then it is here alone. One that is there already is no error.
        """
        raise CannotOffload(f"{self.name}: this engine keeps its ledgers to itself")

    async def delete_local(self, ledger_ids: Collection[int]) -> None:
        """Delete the local copies of ledgers that are in tiered storage, too; others are left alone."""
        raise CannotOffload(f"{self.name}: this engine keeps its ledgers to itself")

    @property
    @abstractmethod
    def terminated(self) -> Position | None:
        """The last entry of a log that was terminated, None of any other."""

    @abstractmethod
    async def terminate(self) -> Position:
        """End the log for good: appends raise ``LedgerTerminated`` from now on, also after a restart.

        Returns the last entry; an entry id of -1 if the last ledger has none.
        """

    @abstractmethod
    def ledgers(self) -> list[LedgerSummary]:
        """Return the ledgers, oldest first; the last one is open."""

    @abstractmethod
    def size(self) -> int:
        """Return how many bytes the ledgers take on disk."""

    @property
    def is_unused(self) -> bool:
        """True if it has no listeners and nothing of it is in flight: `LedgerEngine.let_go` would close it."""
        return False

    @abstractmethod
    async def close(self) -> None:
        """Make everything durable, store a checkpoint, and close."""


class LedgerEngine(ABC):
    """All managed ledgers of one broker."""

    opens_slowly: bool = False
    """Whether opening a log that its last owner did not close takes so long that `left_open` is worth a call.

    Unused logs stay open then.
    """
    can_offload: bool = False
    """Whether it offloads ledgers to tiered storage, and reads them there."""
    leases: Leases
    """The needs of readers outside the broker: retention and compaction respect them."""

    @abstractmethod
    async def start(self) -> None:
        """Recover what a crash left behind; only then may ledgers be opened."""

    @property
    def room(self) -> Room | None:
        """The free space where it writes; None for an engine whose storage manages that itself."""
        return None

    @property
    def writes_for_s(self) -> float:
        """How long, in seconds, the write that makes appends durable has been under way; 0 if there is none."""
        return 0.0

    @property
    def failed(self) -> LedgerError | None:
        """Why nothing more can be made durable until a restart; None without a failure."""
        return None

    def __init__(self) -> None:
        self.on_failed: list[Callable[[LedgerError], None]] = []
        """Each is called once, on the failure."""
        self.flushes = Durations()
        """The flushes for which appends waited."""
        self.flushed_bytes = 0

    def report_failure(self, error: LedgerError) -> None:
        """Notify of a failure after which nothing more can be made durable."""
        for notify in self.on_failed:
            notify(error)

    def gathering(self) -> AbstractContextManager[None]:
        """Gather what is appended within: an engine may write all of it at the end, a log's entries together.

        The event loop must not go on within. Nothing of it is visible before the end. What is within another is part
        of that. An engine that saves nothing by it does nothing.
        """
        return nullcontext()

    @abstractmethod
    async def open(self, name: str, policy: LedgerPolicy, epoch: int = 0) -> ManagedLedger:
        """Open or create the managed ledger ``name`` (``tenant/ns/persistent/topic``); return the same one each time.

        It is taken from whichever engine on the same storage had it: that one may write nothing more of it. ``epoch``
        is that of the ownership under which it is opened. Raises ``LedgerFenced`` where there has been a later one, so
        that nobody who is late takes it back; 0, a sole owner's, is not compared.
        """

    @property
    def tiers(self) -> Tiers | None:
        """Tiered storage as this engine uses it; None for an engine that has none."""
        return None

    def count_tier_cache(self, held: Callable[[int], None], has_room: Callable[[], bool]) -> None:
        """Call ``held`` with each change, in bytes, of what is cached of tiered storage.

        Nothing is read ahead of readers while ``has_room`` says no.
        """
        return

    async def delete_doomed(self) -> None:
        """Delete from tiered storage what nothing refers to any more; raise ``TierFailed``, and then try again."""
        return

    async def let_go(self, logs: Iterable[ManagedLedger]) -> None:
        """Close those of the managed ledgers that are unused.

        An `open` meanwhile waits, and opens the log again.
        """
        return

    @abstractmethod
    async def release(self, name: str) -> None:
        """Close the managed ledger, even with listeners, with all it has stored; one that is not open is no error.

        Its holders are notified by ``on_closed``. An `open` meanwhile waits, and opens the log again.
        """

    @abstractmethod
    async def delete(self, name: str) -> None:
        """Delete the managed ledger with all its content; unknown names are no error."""

    async def forget(self, name: str) -> None:
        """Drop a managed ledger that another engine on the same storage deletes."""
        await self.release(name)

    @abstractmethod
    async def summaries(self, name: str) -> list[LedgerSummary]:
        """Return the ledgers of a managed ledger, open or not, without opening it; none if there is no such one."""

    async def bookie_ids(self) -> list[str]:
        """Return the bookies that logs may be on; an engine without bookies has none. Raises ``StorageFailed``."""
        return []

    async def left_open(self, names: Sequence[str]) -> list[str]:
        """Return which of these their last writer did not close, as far as that makes opening them slow."""
        return []

    @abstractmethod
    def opened(self) -> list[ManagedLedger]:
        """Return the managed ledgers that are open now."""

    @abstractmethod
    async def close(self) -> None:
        """Close every managed ledger, then the storage."""
