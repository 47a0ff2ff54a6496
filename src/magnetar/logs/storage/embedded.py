"""The stores and engines that come with the broker, and need no other process."""

from __future__ import annotations

from pathlib import Path

from magnetar.base.errors import InvalidConfig
from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.files.half_copy import METADATA, refuse_half_a_copy
from magnetar.ledger.port import LedgerEngine
from magnetar.logs.storage.factories import MetadataStoreFactory, StorageEngineFactory
from magnetar.logs.storage.old_names import mend_names
from magnetar.logs.storage.tiering import make_tiers
from magnetar.metadata.lock import DirectoryLock
from magnetar.metadata.memory import MemoryStore
from magnetar.metadata.port import MetadataStore
from magnetar.metadata.sqlite import SqliteStore
from magnetar.settings.settings import Settings


class SqliteStores(MetadataStoreFactory):
    """``sqlite:`` is the file ``metadata.sqlite`` in the data directory."""

    scheme = "sqlite"

    async def open(self, url: str, settings: Settings, held: DirectoryLock) -> MetadataStore:
        _bare("metadata.url", url)
        refuse_half_a_copy(held.directory)
        store = SqliteStore(held.directory / METADATA, lock=held)
        try:
            await mend_names(store)
        except BaseException:
            await store.close()
            raise
        return store


class MemoryStores(MetadataStoreFactory):
    """``memory:`` is gone with the broker."""

    scheme = "memory"

    async def open(self, url: str, settings: Settings, held: DirectoryLock) -> MetadataStore:
        _bare("metadata.url", url)
        return MemoryStore()


class FilesEngines(StorageEngineFactory):
    """``files:`` are ledgers and a journal in the data directory."""

    scheme = "files"

    async def open(
        self, url: str, settings: Settings, held: DirectoryLock, store: MetadataStore
    ) -> LedgerEngine:
        _bare("storage.url", url)
        if isinstance(store, MemoryStore):
            raise InvalidConfig("storage.url=files: keeps ledgers that metadata.url=memory: would forget")
        return files_engine(held.directory, settings, store)


def files_engine(directory: Path, settings: Settings, store: MetadataStore, worker: int = 0) -> FilesEngine:
    """Return an engine on a data directory; ``worker`` is the number of one of several that share it."""
    return FilesEngine(
        directory,
        store,
        RealDisk(),
        flush_interval_ms=settings.topics.flush_interval_ms,
        make_tiers=lambda: make_tiers(settings),
        worker=worker,
    )


class MemoryEngines(StorageEngineFactory):
    """``memory:`` is gone with the broker."""

    scheme = "memory"

    async def open(
        self, url: str, settings: Settings, held: DirectoryLock, store: MetadataStore
    ) -> LedgerEngine:
        from magnetar.ledger.memory import MemoryEngine

        _bare("storage.url", url)
        if not isinstance(store, MemoryStore):
            raise InvalidConfig(
                "storage.url=memory: forgets its ledgers, so metadata.url must be memory:, too"
            )
        return MemoryEngine(store, root=held.directory)


def _bare(setting: str, url: str) -> None:
    if url.partition(":")[2].strip("/"):
        raise InvalidConfig(f"{setting}: nothing follows {url.partition(':')[0]}:, which lies in data.dir")
