"""What storage can say went wrong. Protocols translate these once; here are storage's own words."""

from __future__ import annotations

from magnetar.metadata.errors import MetadataFull


class LedgerError(Exception):
    """The root of all that storage raises."""


class LedgerNotFound(LedgerError):
    """No managed ledger, or no ledger, of that name."""


class LedgerClosed(LedgerError):
    """The managed ledger was closed or deleted while in use."""


class LedgerTerminated(LedgerError):
    """The managed ledger was ended: it takes nothing more, and is read as before."""


class LedgerFenced(LedgerError):
    """Another owner took the ledger over; this writer must not write again."""


class StorageFull(LedgerError):
    """The disk has no room. Nothing was written; trying again later may succeed."""


class StorageFailed(LedgerError):
    """The disk failed to write or to read. What was under way may or may not be kept."""


class StorageNotReady(StorageFailed):
    """What storage needs to begin is not there, or not as it should be; ``next_step`` is what to do about it."""

    def __init__(self, words: str, next_step: str) -> None:
        super().__init__(words)
        self.next_step = next_step


class TierFailed(LedgerError):
    """Tiered storage did not do what it was asked for. Nothing is lost: the same may be asked for again."""


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
    """The offset lies before the first or behind the last one that is kept."""


def metadata_failed(error: Exception) -> LedgerError:
    """Return in storage's words what the metadata store said."""
    words = f"the metadata store failed: {error}"
    return StorageFull(words) if isinstance(error, MetadataFull) else StorageFailed(words)
