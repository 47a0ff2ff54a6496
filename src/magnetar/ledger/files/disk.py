"""The disk, as storage sees it: a port, so that a simulated one can tear, lose and fill up instead.

Positions and sizes are bytes. Failures are ``OSError``; the caller decides what they mean for its promise.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import mmap
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from magnetar.ledger.files.kernel_writes import KernelWrites
from magnetar.metadata.modes import FILE_MODE, FOLDER_MODE
from magnetar.records.compression import Buffer

BLOCK_BYTES = 4096
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
_DESCRIPTOR_S = 10.0
_IOV_MAX = 1024
_SMALL_BYTES = 16 << 10
_PROBE = bytearray(1)  # its content is not used


class File(ABC):
    """One open file."""

    @abstractmethod
    def write(self, parts: Sequence[Buffer], at: int) -> None:
        """Write all of ``parts`` end to end from ``at``, into the page cache."""

    @abstractmethod
    def read(self, size: int, at: int) -> bytes:
        """Return up to ``size`` bytes from ``at``: fewer only at the end of the file."""

    @abstractmethod
    def read_now(self, size: int, at: int) -> Buffer | None:
        """Return ``size`` bytes from ``at`` if that takes no waiting for the disk."""

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Cut or extend the file to ``size``."""

    @abstractmethod
    def size(self) -> int: ...

    @abstractmethod
    def sync(self) -> None:
        """Return once all that was written is on the disk."""

    @abstractmethod
    def close(self) -> None: ...


class JournalFile(ABC):
    """A pre-written file for writes that are durable when they return."""

    descriptor: int | None = None
    """Of a file that takes writes by `KernelWrites`; None if it does not."""

    @abstractmethod
    def write(self, data: memoryview, at: int) -> None:
        """Write whole blocks of ``BLOCK_BYTES`` from ``at`` and wait until they are on the disk."""

    @abstractmethod
    def close(self) -> None: ...


class Disk(ABC):
    """A directory tree."""

    @abstractmethod
    def open(self, path: Path, *, create: bool = False) -> File:
        """Open a file for reading and writing; ``create`` makes it and its folders."""

    @abstractmethod
    def open_journal(self, path: Path, size: int) -> JournalFile:
        """Open a journal file of ``size`` bytes, written full of zeros first if it is new or shorter."""

    def kernel_writes(self, loop: asyncio.AbstractEventLoop) -> KernelWrites | None:
        """Return what writes to journal files that have a descriptor, without a thread; None if nothing does."""
        return None

    @abstractmethod
    def buffer(self, size: int) -> memoryview:
        """Return zeroed memory that ``JournalFile.write`` takes without a copy."""

    @abstractmethod
    def replace(self, files: Mapping[Path, Buffer]) -> None:
        """Replace whole files, each atomically and durably: a reader sees the old one or the new one."""

    @abstractmethod
    def remove(self, path: Path) -> None:
        """Delete a file; a missing one is no error."""

    @abstractmethod
    def list(self, folder: Path, pattern: str) -> list[Path]:
        """Return the files below ``folder`` that match, sorted; none if there is no such folder."""

    @abstractmethod
    def sync(self, paths: Iterable[Path]) -> None:
        """Make the contents of these files durable; missing ones were deleted meanwhile."""


class RealFile(File):
    """A file of the operating system."""

    def __init__(self, path: Path, *, create: bool) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            self._fd = os.open(path, flags, FILE_MODE)
        except FileNotFoundError:
            if not create:
                raise
            _make_folder(path.parent)
            self._fd = os.open(path, flags, FILE_MODE)

    def write(self, parts: Sequence[Buffer], at: int) -> None:
        due = sum(map(len, parts))
        if len(parts) <= _IOV_MAX:
            done = os.pwritev(self._fd, parts, at)
            if done == due:
                return
        else:
            done = 0
        rest = memoryview(b"".join(parts))
        while done < due:
            done += os.pwrite(self._fd, rest[done:], at + done)

    def read(self, size: int, at: int) -> bytes:
        return os.pread(self._fd, size, at)

    def read_now(self, size: int, at: int) -> Buffer | None:
        if size <= _SMALL_BYTES:
            buffer = bytearray(size)
            return buffer if self._read_into(buffer, at) == size else None
        # The ends tell of what lies between, and bytes are not cleared before they are filled.
        if self._read_into(_PROBE, at) and self._read_into(_PROBE, at + size - 1):
            return os.pread(self._fd, size, at)
        return None

    def _read_into(self, buffer: bytearray, at: int) -> int:
        """Read what is in the page cache; return how many bytes that are."""
        try:
            return os.preadv(self._fd, [buffer], at, os.RWF_NOWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:  # tmpfs and the like live in memory
                return os.preadv(self._fd, [buffer], at)
            raise

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class RealJournalFile(JournalFile):
    """Direct, synchronous writes past the page cache; where a file system has none, RWF_DSYNC through it."""

    def __init__(self, path: Path, size: int) -> None:
        _make_folder(path.parent)
        self._prepare(path, size)
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            self._fd, self._flags = os.open(path, flags | os.O_DIRECT | os.O_DSYNC), 0
            self.descriptor = self._fd
        except OSError:
            self._fd, self._flags = os.open(path, flags), os.RWF_DSYNC

    @staticmethod
    def _prepare(path: Path, size: int) -> None:
        """Write the file once, so that later writes change no metadata of the file system."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            zeros = bytes(1 << 20)
            at = os.fstat(fd).st_size
            while at < size:
                at += os.pwrite(fd, zeros[: min(len(zeros), size - at)], at)
            os.fsync(fd)
        except OSError:
            path.unlink()  # a part of a journal would only take room
            raise
        finally:
            os.close(fd)
        _sync_folder(path.parent)

    def write(self, data: memoryview, at: int) -> None:
        while data:
            done = os.pwritev(self._fd, [data], at, self._flags)
            data, at = data[done:], at + done

    def close(self) -> None:
        os.close(self._fd)


class RealDisk(Disk):
    """The operating system's disk."""

    def open(self, path: Path, *, create: bool = False) -> File:
        return RealFile(path, create=create)

    def open_journal(self, path: Path, size: int) -> JournalFile:
        return RealJournalFile(path, size)

    def kernel_writes(self, loop: asyncio.AbstractEventLoop) -> KernelWrites | None:
        return KernelWrites.open_for(loop)

    def buffer(self, size: int) -> memoryview:
        return memoryview(mmap.mmap(-1, size))  # page-aligned, as direct writes want it

    def replace(self, files: Mapping[Path, Buffer]) -> None:
        drafts = [(_draft_of(path, data), path) for path, data in files.items()]
        self.sync(draft for draft, _ in drafts)
        for draft, path in drafts:
            draft.rename(path)
        for folder in {path.parent for path in files}:
            _sync_folder(folder)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def list(self, folder: Path, pattern: str) -> list[Path]:
        return sorted(folder.glob(pattern))

    def sync(self, paths: Iterable[Path]) -> None:
        found = list(paths)
        if len(found) > 8 and self._sync_file_system(found[0]):
            return
        for path in found:
            with contextlib.suppress(FileNotFoundError):
                fd = _opened(path)
                try:
                    os.fdatasync(fd)
                finally:
                    os.close(fd)

    @staticmethod
    def _sync_file_system(path: Path) -> bool:
        """Do one ``syncfs`` for many files; return whether that was possible."""
        with contextlib.suppress(FileNotFoundError):
            fd = _opened(path)
            try:
                return bool(ctypes.CDLL(None, use_errno=True).syncfs(fd) == 0)
            finally:
                os.close(fd)
        return False


def _opened(path: Path) -> int:
    """Open a file to flush. A lack of descriptors is no failure of the disk: wait for one for a while."""
    until = time.monotonic() + _DESCRIPTOR_S
    while True:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR or time.monotonic() > until:
                raise
        time.sleep(_DESCRIPTOR_S / 100)


def _draft_of(path: Path, data: Buffer) -> Path:
    draft = path.with_name(path.name + ".tmp")
    _make_folder(path.parent)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    with open(fd, "wb", 0) as file:
        _write_all(file.fileno(), data)
    return draft


def _write_all(fd: int, data: Buffer) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _make_folder(folder: Path) -> None:
    """Make a folder, and its entries in those above it durable."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(FOLDER_MODE, exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
