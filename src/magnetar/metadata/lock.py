"""One live process per data directory, enforced by the kernel: the lock is gone as soon as its owner is."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from magnetar.metadata.errors import DirectoryInUse

_TRIES = 3
_BETWEEN_SECONDS = 0.01


class DirectoryLock:
    """Hold a data directory for this process; raise `DirectoryInUse` with the owner's pid when it is taken."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not self._taken():
            pid = _pid_in(self._fd)
            os.close(self._fd)
            raise DirectoryInUse(str(directory), pid)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)

    def _taken(self) -> bool:
        """Take the lock; those who only look whether somebody holds it do so for an instant, so try again."""
        for _ in range(_TRIES):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_BETWEEN_SECONDS)
            else:
                return True
        return False

    def release(self) -> None:
        """Let others in. The file stays: to remove it would let two processes lock two different files."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _pid_in(fd: int) -> int:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else 0
