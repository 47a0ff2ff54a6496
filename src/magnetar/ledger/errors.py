"""The errors of storage. Protocols translate these once; here are storage's own words."""

from __future__ import annotations

from magnetar.metadata.errors import MetadataFull


class LedgerError(Exception):
    """The base of all errors that storage raises."""


class LedgerNotFound(LedgerError):
    """No managed ledger, or no ledger, of that name."""


class LedgerClosed(LedgerError):
    """The managed ledger was closed or deleted while in use."""


class LedgerTerminated(LedgerError):
    """The managed ledger was terminated: it takes no more entries, and is read as before."""


class LedgerFenced(LedgerError):
    """Another owner took the ledger over; this writer must not write again."""


class StorageFull(LedgerError):
    """The disk has no room. Nothing was written; trying again later may succeed."""


class StorageFailed(LedgerError):
    """The disk failed to write or to read. What was under way may or may not be stored."""


class StorageNotReady(StorageFailed):
    """A prerequisite of storage is missing, or not as it should be; ``next_step`` is what to do about it."""

    def __init__(self, words: str, next_step: str) -> None:
        super().__init__(words)
        self.next_step = next_step


class TierFailed(LedgerError):
    """A request to tiered storage failed. Nothing is lost: it may be repeated."""


class CannotOffload(LedgerError):
    """This ledger, or this log, cannot be brought to tiered storage."""


class LedgerCorrupt(LedgerError):
    """Bytes on disk are not what was written. The message names the file and the place in it; ``at`` is its byte."""

    def __init__(self, words: str, *, at: int = -1) -> None:
        super().__init__(words)
        self.at = at


class TierObjectMissing(LedgerCorrupt):
    """Tiered storage has no object where the metadata says that a ledger lies."""


class OffsetOutOfRange(LedgerError):
    """The offset lies before the first or after the last retained one."""


def metadata_failed(error: Exception) -> LedgerError:
    """Return an error of the metadata store as a storage error."""
    words = f"the metadata store failed: {error}"
    return StorageFull(words) if isinstance(error, MetadataFull) else StorageFailed(words)
