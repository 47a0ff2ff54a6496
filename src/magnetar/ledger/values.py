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
    offloaded: bool = False
    """Whether it lies in tiered storage alone, as a Pulsar broker has left it: nothing can be read of it here."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """What others noted of it."""
    unknown: bytes = b""
    """Fields of its metadata that others have written."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The compacted ledger beside a managed ledger: the newest message of every key up to a horizon."""

    ledger: LedgerSummary
    horizon: Position
    """The last entry that was looked at."""
    horizon_offset: int
