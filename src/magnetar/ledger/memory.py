"""The memory engine: the files engine on a disk that forgets. It keeps all of the port's promises but durability."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from fnmatch import fnmatch
from pathlib import Path
from uuid import uuid4

from magnetar.ledger.files.disk import Disk, File, JournalFile
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.leases import Lease, LeaseExpired, Leases
from magnetar.ledger.port import wall_clock_ms
from magnetar.metadata import MemoryStore, MetadataStore
from magnetar.records.compression import Buffer


class MemoryFile(File):
    """Bytes under a name. Every open file of that name shares them."""

    def __init__(self, disk: MemoryDisk, data: bytearray) -> None:
        self._disk = disk
        self._data = data

    def write(self, parts: Sequence[Buffer], at: int) -> None:
        content = b"".join(parts)
        self._disk.make_room(max(0, at + len(content) - len(self._data)))
        if at > len(self._data):
            self._data.extend(bytes(at - len(self._data)))
        self._data[at : at + len(content)] = content

    def read(self, size: int, at: int) -> bytes:
        return bytes(self._data[at : at + size])

    def read_now(self, size: int, at: int) -> bytes:
        return self.read(size, at)

    def truncate(self, size: int) -> None:
        del self._data[size:]
        self._data.extend(bytes(size - len(self._data)))

    def size(self) -> int:
        return len(self._data)

    def sync(self) -> None:
        """Memory has nothing to wait for."""

    def close(self) -> None:
        """There is no handle to give back."""


class MemoryJournalFile(JournalFile):
    """Takes rounds and forgets them: what it would be read for has not outlived this process either."""

    def write(self, data: memoryview, at: int) -> None: ...

    def close(self) -> None: ...


class MemoryLeases(Leases):
    """Leases that live as long as the disk whose ledgers they hold."""

    def __init__(self, kept: dict[str, Lease], clock: Callable[[], int]) -> None:
        self._kept = kept
        self._clock = clock

    async def take(self, needs: Mapping[str, int], *, for_ms: int) -> Lease:
        return self._put(Lease(uuid4().hex, dict(needs), self._clock() + for_ms))

    async def renew(self, lease: Lease, needs: Mapping[str, int] | None = None, *, for_ms: int) -> Lease:
        if not self._counts(lease.lease_id):
            raise LeaseExpired(lease.lease_id)
        needs = lease.needs if needs is None else needs
        return self._put(Lease(lease.lease_id, dict(needs), self._clock() + for_ms))

    async def release(self, lease: Lease) -> None:
        self._kept.pop(lease.lease_id, None)

    async def needed(self, name: str) -> int | None:
        counting = [self._kept[lease_id].needs for lease_id in list(self._kept) if self._counts(lease_id)]
        return min((needs[name] for needs in counting if name in needs), default=None)

    def _put(self, lease: Lease) -> Lease:
        self._kept[lease.lease_id] = lease
        return lease

    def _counts(self, lease_id: str) -> bool:
        """True if a lease still counts; one whose time is over is forgotten."""
        lease = self._kept.get(lease_id)
        if lease is not None and lease.until_ms <= self._clock():
            del self._kept[lease_id]
            return False
        return lease is not None


class MemoryDisk(Disk):
    """Files in a dict, at most ``capacity`` bytes of them (None: no bound)."""

    def __init__(self, *, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.leases: dict[str, Lease] = {}
        self._files: dict[Path, bytearray] = {}

    def make_room(self, size: int) -> None:
        """Raise ``OSError`` (ENOSPC) unless ``size`` more bytes may be kept."""
        if self.capacity is not None and size and self.used() + size > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def used(self) -> int:
        """Return how many bytes are kept."""
        return sum(map(len, self._files.values()))

    def open(self, path: Path, *, create: bool = False) -> File:
        if path not in self._files and not create:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return MemoryFile(self, self._files.setdefault(path, bytearray()))

    def open_journal(self, path: Path, size: int) -> JournalFile:
        return MemoryJournalFile()

    def buffer(self, size: int) -> memoryview:
        return memoryview(bytearray(size))

    def replace(self, files: Mapping[Path, Buffer]) -> None:
        for path, data in files.items():
            self.make_room(max(0, len(data) - len(self._files.get(path, b""))))
            self._files[path] = bytearray(data)

    def remove(self, path: Path) -> None:
        self._files.pop(path, None)

    def list(self, folder: Path, pattern: str) -> list[Path]:
        inside = (path for path in self._files if path.is_relative_to(folder))
        return sorted(path for path in inside if fnmatch(str(path.relative_to(folder)), pattern))

    def sync(self, paths: Iterable[Path]) -> None:
        """Memory has nothing to wait for."""


class MemoryEngine(FilesEngine):
    """Managed ledgers in memory. Hand the same disk and metadata to another one to open them again."""

    def __init__(
        self,
        metadata: MetadataStore | None = None,
        disk: MemoryDisk | None = None,
        *,
        root: Path = Path("/memory"),
        clock: Callable[[], int] = wall_clock_ms,
        executor: Executor | None = None,
    ) -> None:
        """``root`` is where files would lie."""
        disk = disk or MemoryDisk()
        super().__init__(
            root,
            metadata or MemoryStore(),
            disk,
            clock=clock,
            boot=lambda: "memory",
            executor=executor,
            leases=MemoryLeases(disk.leases, clock),
        )
