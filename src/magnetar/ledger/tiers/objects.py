"""The port of an object store: what tiered storage needs of one. Everything blocks, so it is called in threads.

`magnetar.ledger.tiers.s3` fills it for S3 and what speaks like it, `directory` for a directory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from magnetar.records.compression import Buffer

DATA_SUFFIX, INDEX_SUFFIX = "", "-index"
VERSION_ATTRIBUTE = "s3managedledgeroffloaderformatversion"
"""What Pulsar's reader looks for on every object, and of which it knows version 1."""
DELETIONS = "/magnetar/offload-deletions"
"""Where metadata notes what is to be deleted (`magnetar.ledger.tiers.deletions`)."""
CLUSTER_ID = "/magnetar/cluster-id"
"""Where metadata keeps what tells objects of this cluster from others'."""
CLUSTER_ATTRIBUTE, LOG_ATTRIBUTE = "magnetar-cluster", "magnetar-managed-ledger"


class StoredObject(NamedTuple):
    """One object of a listing. ``modified_ms`` is when it was written, in ms since 1970."""

    key: str
    size: int
    modified_ms: int


class ObjectStore(ABC):
    """Objects by their keys. All raise ``TierFailed``, which names the store and says what may help."""

    where: str
    """What people call the place, as in ``s3://bucket``."""

    @abstractmethod
    def put(self, key: str, pieces: Iterable[Buffer], attributes: Mapping[str, str]) -> None:
        """Write one object of these pieces; it is whole and durable on return, and is not there before."""

    @abstractmethod
    def read(self, key: str, start: int, size: int) -> bytes:
        """Return exactly ``size`` bytes from ``start``; raise ``LedgerCorrupt`` where the object is too short."""

    @abstractmethod
    def whole(self, key: str) -> bytes:
        """Return an object; raise ``LedgerNotFound`` where there is none."""

    @abstractmethod
    def size(self, key: str) -> int:
        """Return how long an object is; -1 where there is none."""

    @abstractmethod
    def attributes(self, key: str) -> Mapping[str, str]:
        """Return what an object was written with; nothing where there is none."""

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that are not there are no error."""

    @abstractmethod
    def listed(self) -> Iterator[StoredObject]:
        """Return all objects below the place."""


def data_key(uuid: str, ledger_id: int) -> str:
    """Return the key of a ledger's data object, as Pulsar names it."""
    return f"{uuid}-ledger-{ledger_id}"


def index_key(uuid: str, ledger_id: int) -> str:
    """Return the key of a ledger's index object, as Pulsar names it."""
    return data_key(uuid, ledger_id) + INDEX_SUFFIX


def parse_key(key: str) -> tuple[str, int] | None:
    """Return (uuid, ledger id) of an object of a ledger; None for what is none."""
    uuid, found, number = key.removesuffix(INDEX_SUFFIX).rpartition("-ledger-")
    return (uuid, int(number)) if found and len(uuid) == 36 and number.isdecimal() else None
