"""One live process per data directory, enforced by the kernel: the lock is gone as soon as its owner is.

Two things are locked: the directory itself, which nobody removes beneath a broker, and the file ``lock`` in it, which
tells who holds it. The file alone would not do: whoever takes it for a stale one and removes it would let a second
broker in, and two brokers destroy each other's metadata. Where a file system has no locks for directories (NFS), the
file is all there is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path

from magnetar.metadata.errors import DirectoryInUse
from magnetar.metadata.modes import FILE_MODE, FOLDER_MODE

_TRIES = 3
_BETWEEN_SECONDS = 0.01
_NO_DIRECTORY_LOCKS = errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP


class DirectoryLock:
    """Hold a data directory for this process; raise `DirectoryInUse` with the owner's pid when it is taken."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        self.directory = directory
        self._path = directory / "lock"
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._file = -1
        try:
            self._hold_directory()
            self._hold_file()
        except BaseException:
            self.release()
            raise

    @classmethod
    def inherited(cls, directory: Path, held: int, file: int) -> DirectoryLock:
        """Return a lock that another process took: it lasts until all that have its descriptors let go of it."""
        lock = cls.__new__(cls)
        lock.directory, lock._path = directory, directory / "lock"
        lock._directory, lock._file = held, file
        return lock

    @property
    def descriptors(self) -> tuple[int, int]:
        """The directory and the file, for processes that are to hold them, too."""
        return self._directory, self._file

    def _hold_directory(self) -> None:
        try:
            taken = _taken(self._directory)
        except OSError as error:
            if error.errno not in _NO_DIRECTORY_LOCKS:
                raise
            return
        if not taken:
            raise DirectoryInUse(str(self._path.parent), _pid_of(self._path))

    def _hold_file(self) -> None:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            if not _taken(file):
                raise DirectoryInUse(str(self._path.parent), _pid_in(file))
            os.ftruncate(file, 0)
            os.pwrite(file, b"%d\n" % os.getpid(), 0)
        except BaseException:
            os.close(file)
            raise
        if self._file >= 0:
            os.close(self._file)
        self._file = file

    def renew(self) -> bool:
        """Make the lock file again where somebody removed or replaced it, and tell whether that was so.

        Raises `DirectoryInUse` where the one that stands there now is another's, and ``OSError``.
        """
        if self._file < 0 or self._is_ours():
            return False
        self._hold_file()
        return True

    def _is_ours(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let others in. The file stays: to remove it would let two processes lock two different files."""
        for fd in (self._file, self._directory):
            if fd >= 0:
                os.close(fd)
        self._file = self._directory = -1


def _taken(fd: int) -> bool:
    """Take a lock; those who only look whether somebody holds it do so for an instant, so try again."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_BETWEEN_SECONDS)
        else:
            return True
    return False


def _pid_of(path: Path) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return _pid_in(fd)
    finally:
        os.close(fd)


def _pid_in(fd: int) -> int:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else 0
