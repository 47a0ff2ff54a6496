"""One live process per data directory, enforced by the kernel: the lock is gone as soon as its owner is."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from magnetar.metadata.errors import DirectoryInUse


class DirectoryLock:
    """Hold a data directory for this process; raise `DirectoryInUse` with the owner's pid when it is taken."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = _pid_in(self._fd)
            os.close(self._fd)
            raise DirectoryInUse(str(directory), pid) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Let others in. The file stays: to remove it would let two processes lock two different files."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _pid_in(fd: int) -> int:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else 0
