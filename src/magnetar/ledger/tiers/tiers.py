"""What all logs of a broker share of tiered storage: stores by their place, threads, and a cache of blocks.

It is made when the first ledger is offloaded, or read from there: a broker without has none of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from magnetar.ledger.errors import CannotOffload
from magnetar.ledger.tiers.cache import BlockCache
from magnetar.ledger.tiers.objects import ObjectStore
from magnetar.ledger.tiers.place import DIRECTORY_DRIVER, DRIVERS, S3_DRIVERS, TierPlace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TierSettings:
    """How tiered storage is used. Sizes in bytes."""

    key_id: str = ""
    secret: str = ""
    """The access key of S3; empty for what the environment says."""
    block_bytes: int = 1 << 20
    """About what is read at once: the size of a block of what is offloaded from now on."""
    cache_bytes: int = 32 << 20
    ahead: int = 3
    """So many blocks are read before somebody asks for them who reads straight on."""
    upload_threads: int = 2
    read_threads: int = 4


class Tiers:
    """Tiered storage, as one process uses it."""

    def __init__(self, settings: TierSettings | None = None) -> None:
        self.settings = settings or TierSettings()
        self.cache = BlockCache(self.settings.cache_bytes)
        self.uploading: set[str] = set()
        """The attempts, by their uuid, that are on their way right now: nobody deletes anything of theirs."""
        self.bytes_read = self.bytes_written = 0
        self._stores: dict[TierPlace, ObjectStore] = {}
        self._readers = ThreadPoolExecutor(self.settings.read_threads, "tier-read")
        self._writers = ThreadPoolExecutor(self.settings.upload_threads, "tier-write")

    def store(self, place: TierPlace) -> ObjectStore:
        """Return the store at a place, made when it is first asked for; raise ``CannotOffload`` or ``TierFailed``."""
        found = self._stores.get(place)
        if found is None:
            found = self._stores[place] = open_store(place, self.settings)
        return found

    def reading(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call that reads away from the loop."""
        return asyncio.get_running_loop().run_in_executor(self._readers, call)

    def writing(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call that writes, lists or deletes, and may take minutes, away from the loop."""
        return asyncio.get_running_loop().run_in_executor(self._writers, call)

    def close(self) -> None:
        """Begin nothing more; what runs ends by itself."""
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._writers.shutdown(wait=False, cancel_futures=True)


def open_store(place: TierPlace, settings: TierSettings) -> ObjectStore:
    """Return the store at a place; raise ``CannotOffload`` for one that cannot be, or ``TierFailed``."""
    if place.driver in S3_DRIVERS:
        from magnetar.ledger.tiers.s3 import S3Store

        if not place.bucket:
            raise CannotOffload(f"driver {place.driver} needs a bucket: set managedLedgerOffloadBucket")
        return S3Store(place, settings.key_id, settings.secret)
    if place.driver == DIRECTORY_DRIVER:
        from magnetar.ledger.tiers.directory import DirectoryStore

        if not place.path.startswith("/"):
            raise CannotOffload(
                f"driver {place.driver} needs a directory: set fileSystemURI=file:///DIRECTORY"
            )
        return DirectoryStore(Path(place.path))
    raise CannotOffload(f"there is no driver {place.driver!r}: it is one of {', '.join(DRIVERS)}")
