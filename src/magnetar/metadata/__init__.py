"""Small facts that must survive: which topics exist, which ledgers they are made of, who owns what."""

from __future__ import annotations

from magnetar.metadata.blocking import BlockingStore
from magnetar.metadata.errors import (
    BadVersion,
    DirectoryInUse,
    InvalidPath,
    MetadataCorrupt,
    MetadataError,
    MetadataFailed,
    MetadataFull,
    MetadataUnavailable,
    MetadataUncertain,
    NotEmpty,
    NotFound,
    ParentIsEphemeral,
    RowsMismatch,
    TooLarge,
)
from magnetar.metadata.formats import NewerFormat
from magnetar.metadata.lock import DirectoryLock
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.metadata.ops import (
    ANY,
    MAX_COMMIT_BYTES,
    MUST_NOT_EXIST,
    Check,
    Delete,
    Op,
    Put,
    Stored,
)
from magnetar.metadata.port import Changes, MetadataStore, Session, Watch
from magnetar.metadata.sqlite import SqliteStore
from magnetar.metadata.sqlite_file import SqliteFile

__all__ = [
    "ANY",
    "MAX_COMMIT_BYTES",
    "MUST_NOT_EXIST",
    "BadVersion",
    "BlockingStore",
    "Changes",
    "Check",
    "Delete",
    "DirectoryInUse",
    "DirectoryLock",
    "InvalidPath",
    "MemoryStore",
    "MemoryTree",
    "MetadataCorrupt",
    "MetadataError",
    "MetadataFailed",
    "MetadataFull",
    "MetadataStore",
    "MetadataUnavailable",
    "MetadataUncertain",
    "NewerFormat",
    "NotEmpty",
    "NotFound",
    "Op",
    "ParentIsEphemeral",
    "Put",
    "RowsMismatch",
    "Session",
    "SqliteFile",
    "SqliteStore",
    "Stored",
    "TooLarge",
    "Watch",
]
