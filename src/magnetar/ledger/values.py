"""The values of the port: where entries lie, what is read and written, what is known of ledgers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from magnetar.records.batch import UNKNOWN_TIME
from magnetar.records.compression import Buffer


class Position(NamedTuple):
    """Where an entry lies. Within a log, what lies behind has the higher position."""

    ledger_id: int
    entry_id: int


NOWHERE = Position(-1, -1)


class StoredEntry(NamedTuple):
    """One entry as read: its position, the offset of its last message, and its bytes (a view, checked by CRC).

    ``at`` is where the view begins in the bytes that were read at once, ``data.obj``; -1 if nobody knows.
    """

    ledger_id: int
    entry_id: int
    last_offset: int
    data: memoryview
    at: int = -1
    kafka_at: int = -1
    """Where in it the payload begins, if whoever read it saw that it is in format ``kafka``."""
    copy: int = -1
    """The compacted ledger that it was read from, where position and offset are those of the original."""


class NewEntry(NamedTuple):
    """An entry to be written, whole: the broker's entry metadata included."""

    data: Buffer
    last_offset: int
    max_timestamp: int


class Snapshot(NamedTuple):
    """What the owner of a log knew of all messages below ``offset``, so that it need not read them again."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Offload:
    """How far a ledger has come on its way to tiered storage: what Pulsar calls its ``OffloadContext``."""

    uuid: str = ""
    """Names this attempt, and with the ledger's id its objects; empty where whoever wrote it said none."""
    driver: str = ""
    place: Mapping[str, str] = field(default_factory=dict)
    """Where its objects lie, in the words of Pulsar's ``driverMetadata``."""
    complete: bool = False
    """Whether it is all there; before, nothing of it counts."""
    deleted: bool = False
    """Whether it lies there alone (Pulsar's ``bookkeeperDeleted``)."""
    timestamp_ms: int = 0
    """When it was complete."""
    unknown: bytes = b""
    """Fields that others have written."""


@dataclass(slots=True)
class LedgerSummary:
    """What is known of one ledger of a managed ledger without opening its file."""

    ledger_id: int
    first_offset: int
    last_offset: int = -1
    entries: int = 0
    size: int = 0
    max_timestamp: int = -1
    created_ms: int = 0
    sealed: bool = False
    compacted: bool = False
    """Whether its own file is gone, and what is left of it is in the compacted ledger. ``size`` is of that."""
    min_timestamp: int = UNKNOWN_TIME
    """A time that no message of a sealed ledger is earlier than; `UNKNOWN_TIME` where nobody knows."""
    offload: Offload | None = None
    """What was begun to bring it to tiered storage, and how far that has come."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """What others noted of it."""
    unknown: bytes = b""
    """Fields of its metadata that others have written."""

    @property
    def offloaded(self) -> bool:
        """True if it lies in tiered storage alone."""
        return self.offload is not None and self.offload.complete and self.offload.deleted


@dataclass(frozen=True, slots=True)
class Compacted:
    """The compacted ledger beside a managed ledger: the newest message of every key up to a horizon."""

    ledger: LedgerSummary
    horizon: Position
    """The last entry that was looked at."""
    horizon_offset: int
