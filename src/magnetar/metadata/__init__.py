"""Small facts that must survive: which topics exist, which ledgers they are made of, who owns what."""

from __future__ import annotations

from magnetar.metadata.errors import (
    BadVersion,
    DirectoryInUse,
    InvalidPath,
    MetadataCorrupt,
    MetadataError,
    MetadataUnavailable,
    NotFound,
    RowsMismatch,
)
from magnetar.metadata.lock import DirectoryLock
from magnetar.metadata.memory import MemoryStore
from magnetar.metadata.port import MUST_NOT_EXIST, MetadataStore, Stored
from magnetar.metadata.sqlite import SqliteStore

__all__ = [
    "MUST_NOT_EXIST",
    "BadVersion",
    "DirectoryInUse",
    "DirectoryLock",
    "InvalidPath",
    "MemoryStore",
    "MetadataCorrupt",
    "MetadataError",
    "MetadataStore",
    "MetadataUnavailable",
    "NotFound",
    "RowsMismatch",
    "SqliteStore",
    "Stored",
]
