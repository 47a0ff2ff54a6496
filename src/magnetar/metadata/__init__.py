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
from magnetar.metadata.lock import DirectoryLock
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.metadata.port import (
    ANY,
    MAX_COMMIT_BYTES,
    MUST_NOT_EXIST,
    Changes,
    Check,
    Delete,
    MetadataStore,
    Op,
    Put,
    Session,
    Stored,
    Watch,
)
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
