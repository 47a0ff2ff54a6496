"""A disk that crashes. What was not flushed may be lost or torn, page by page and in any order, with the power.

Kill -9 keeps what is in the page cache. A crash comes in the middle of one numbered step, and every later one raises
``Crashed``. Creating, removing and cutting files is as lazy as writing them; ``sync`` and ``replace`` are not.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from random import Random

from magnetar.ledger.files.disk import BLOCK_BYTES, Disk, File, JournalFile
from magnetar.metadata import MemoryStore, MetadataFull, MetadataUncertain, Put
from magnetar.metadata.staging import Outcome, StagedCommit
from magnetar.records.compression import Buffer

PAGE = 512  # small, so that small files have many


class Crashed(BaseException):
    """The process, or the machine, is no more."""


@dataclass(slots=True)
class Inode:
    """A file: as the page cache has it, as the disk has it, and which pages differ."""

    cached: bytearray = field(default_factory=bytearray)
    stored: bytearray | None = None  # None: not even its name is on the disk
    dirty: set[int] = field(default_factory=set)

    def touch(self, start: int, end: int) -> None:
        self.dirty.update(range(start // PAGE, (max(end, start + 1) - 1) // PAGE + 1))

    def flush(self) -> None:
        self.stored = bytearray(self.cached)
        self.dirty.clear()

    def lose(self) -> None:
        """Take what was not flushed for flushed, as Linux does after it could not be."""
        if self.stored is None:
            self.stored = bytearray()
        self.dirty.clear()

    def after_power_loss(self, dice: Random) -> bytearray | None:
        """Return what is left when each dirty page may or may not have reached the disk."""
        if self.stored is None and dice.random() < 0.5:
            return None
        left = bytearray(self.stored or b"")
        if len(self.cached) != len(left) and dice.random() < 0.7:
            size = dice.choice(
                (
                    len(self.cached),
                    dice.randrange(min(len(left), len(self.cached)), len(self.cached) + 1)
                    if len(self.cached) > len(left)
                    else len(self.cached),
                )
            )
            del left[size:]
            left.extend(bytes(size - len(left)))
        chance = dice.choice((0.0, 0.3, 0.8, 1.0))
        for page in sorted(self.dirty):
            if dice.random() < chance:
                piece = self.cached[page * PAGE : (page + 1) * PAGE][: max(0, len(left) - page * PAGE)]
                left[page * PAGE : page * PAGE + len(piece)] = piece
        return left


class SimulatedDisk(Disk):
    """All files of one machine. ``crash_at`` numbers the step in which it crashes."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.files: dict[Path, Inode] = {}
        self.removed: dict[Path, Inode] = {}
        self.full = False
        self.sync_fails = 0.0
        self.steps = 0
        self.crash_at = -1
        self.crashed = False

    def step(self) -> bool:
        """Count one more; tell whether this is the one in whose middle it all ends."""
        if self.crashed:
            raise Crashed
        self.steps += 1
        if self.steps != self.crash_at:
            return False
        self.crashed = True
        return True

    def restart(self, *, power_lost: bool) -> None:
        """Come up again."""
        if power_lost:
            kept = {**self.removed, **self.files} if self.dice.random() < 0.5 else self.files
            left = {path: inode.after_power_loss(self.dice) for path, inode in kept.items()}
            self.files = {
                path: Inode(bytearray(data), data) for path, data in left.items() if data is not None
            }
            self.removed = {}
        self.crashed, self.crash_at, self.full, self.sync_fails = False, -1, False, 0.0

    # -- the port

    def open(self, path: Path, *, create: bool = False) -> File:
        last = self.step()
        if path not in self.files:
            if not create:
                if last:
                    raise Crashed
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self.files[path] = Inode()
        if last:
            raise Crashed
        return SimulatedFile(self, self.files[path])

    def open_journal(self, path: Path, size: int) -> JournalFile:
        last = self.step()
        inode = self.files.get(path)
        if inode is None or len(inode.cached) < size:
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            inode = self.files[path] = Inode(bytearray(size))
            if not last:
                inode.flush()
        if last:
            raise Crashed
        return SimulatedJournalFile(self, inode)

    def buffer(self, size: int) -> memoryview:
        return memoryview(bytearray(size))

    def replace(self, files: Mapping[Path, Buffer]) -> None:
        for path, data in files.items():
            last = self.step()
            if self.full and not last:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if not last or self.dice.random() < 0.5:
                self.files[path] = Inode(bytearray(data), bytearray(data))
            if last:
                raise Crashed

    def remove(self, path: Path) -> None:
        last = self.step()
        inode = self.files.pop(path, None)
        if inode is not None and inode.stored is not None:
            self.removed[path] = inode
        if last:
            raise Crashed

    def list(self, folder: Path, pattern: str) -> list[Path]:
        inside = (path for path in self.files if path.is_relative_to(folder))
        return sorted(path for path in inside if fnmatch(str(path.relative_to(folder)), pattern))

    def sync(self, paths: Iterable[Path]) -> None:
        for path in paths:
            inode = self.files.get(path)
            last = self.step()
            if inode is None:
                continue
            if last:
                raise Crashed
            if self.dice.random() < self.sync_fails:
                inode.lose()
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            inode.flush()


class SimulatedFile(File):
    def __init__(self, disk: SimulatedDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def write(self, parts: Sequence[Buffer], at: int) -> None:
        data = b"".join(parts)
        cached = self._inode.cached
        last = self._disk.step()
        short = self._disk.full and at + len(data) > len(cached)
        if last or short:
            data = data[: self._disk.dice.randrange(len(data) + 1)]
        if data:
            if at > len(cached):
                self._inode.touch(len(cached), at)
                cached.extend(bytes(at - len(cached)))
            cached[at : at + len(data)] = data
            self._inode.touch(at, at + len(data))
        if last:
            raise Crashed
        if short:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def read(self, size: int, at: int) -> bytes:
        if self._disk.crashed:
            raise Crashed
        return bytes(self._inode.cached[at : at + size])

    def read_now(self, size: int, at: int) -> bytes | None:
        return self.read(size, at) if self._disk.dice.random() < 0.8 else None

    def truncate(self, size: int) -> None:
        if self._disk.step():
            raise Crashed
        cached = self._inode.cached
        self._inode.touch(size, max(size, len(cached)))
        del cached[size:]
        cached.extend(bytes(size - len(cached)))

    def size(self) -> int:
        return len(self._inode.cached)

    def sync(self) -> None:
        if self._disk.step():
            raise Crashed
        self._inode.flush()

    def close(self) -> None: ...


class SimulatedJournalFile(JournalFile):
    """Durable when a write returns; torn block by block when it does not."""

    def __init__(self, disk: SimulatedDisk, inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def write(self, data: memoryview, at: int) -> None:
        assert len(data) % BLOCK_BYTES == at % BLOCK_BYTES == 0
        last = self._disk.step()
        for block in range(0, len(data), BLOCK_BYTES):
            if not last or self._disk.dice.random() < 0.5:
                self._inode.cached[at + block : at + block + BLOCK_BYTES] = data[block : block + BLOCK_BYTES]
        self._inode.flush()
        if last:
            raise Crashed

    def close(self) -> None: ...


class SimulatedMetadata(MemoryStore):
    """Keeps what a commit returned for; a crash comes before or after one, and a full disk refuses it.

    Now and then nobody can tell whether it was kept, of what managed ledgers are: whoever asks next finds out.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__()
        self._disk = disk

    async def _commit(self, commit: StagedCommit) -> Outcome:
        disk, dice = self._disk, self._disk.dice
        await asyncio.sleep(dice.choice((0, 0, 0.001)))
        last = disk.step()
        if last and dice.random() < 0.5:
            raise Crashed
        if disk.full and dice.random() < 0.3:
            raise MetadataFull("database or disk is full")
        doubtful = dice.random() < 0.03 and all(
            isinstance(op, Put) and op.path.startswith("/managed-ledgers") for op in commit.ops
        )
        if doubtful and dice.random() < 0.5:
            raise MetadataUncertain("the connection was lost")
        outcome = await super()._commit(commit)
        if last:
            raise Crashed
        if doubtful:
            raise MetadataUncertain("the connection was lost")
        return outcome
