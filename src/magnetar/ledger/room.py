"""What is left in the file system of a data directory, and how much of it producers may take.

The last of it is for the broker itself: committed offsets, ends of transactions, metadata. Without it a full disk stops
what would make room again. Between two looks at the file system, what ledgers write is counted here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from magnetar.ledger.errors import StorageFull

_AGAIN = 1.25
"""Producers are taken again with so many times the reserve, so that they do not come and go with each ledger."""
_BEFORE_A_LOOK = 1 << 62


class Space(NamedTuple):
    """A file system at one moment: bytes and inodes, each in all and those that the process may still have."""

    total_bytes: int
    free_bytes: int
    total_inodes: int
    free_inodes: int


class Reserve(NamedTuple):
    """The part that producers may not use, in bytes and in inodes; 0 for nothing."""

    bytes: int
    inodes: int


def space_of(directory: Path) -> Space:
    """Ask the file system that ``directory`` lies in; raise ``OSError``. It may take long where that is a network's."""
    found = os.statvfs(directory)
    return Space(
        found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, found.f_files, found.f_favail
    )


class Room:
    """The space that producers may still use. Everything runs on the event loop."""

    __slots__ = ("_left", "_reserve", "on_refused", "refusal", "space")

    def __init__(self) -> None:
        self.space: Space | None = None
        """As of the last look."""
        self.refusal = ""
        """Why producers are refused; empty while they are not."""
        self.on_refused: list[Callable[[], None]] = []
        """Each is called when that begins."""
        self._reserve = Reserve(0, 0)
        self._left = _BEFORE_A_LOOK

    def check(self) -> None:
        """Raise ``StorageFull`` if producers may write nothing now."""
        if self.refusal:
            raise StorageFull(self.refusal)

    def take(self, size: int) -> None:
        """Count what was written."""
        self._left -= size
        if self._left < 0 and not self.refusal and self._reserve.bytes:
            self._refuse(f"{max(self._left + self._reserve.bytes, 0):,} bytes", self._reserve.bytes, "bytes")

    def has(self, size: int) -> bool:
        """Return whether so many bytes are left above half of the reserve: for what may be done without, or later."""
        return not self._reserve.bytes or self._left + self._reserve.bytes // 2 >= size

    def looked(self, space: Space, reserve: Reserve) -> None:
        """Take what the file system has now; producers are refused, or taken again, by that."""
        self.space, self._reserve = space, reserve
        self._left = space.free_bytes - reserve.bytes
        factor = _AGAIN if self.refusal else 1.0
        if reserve.bytes and space.free_bytes < reserve.bytes * factor:
            self._refuse(f"{space.free_bytes:,} bytes", reserve.bytes, "bytes")
        # Some file systems make inodes as they are needed, and have no number of them.
        elif space.total_inodes and space.free_inodes < reserve.inodes * factor:
            self._refuse(f"{space.free_inodes:,} inodes", reserve.inodes, "inodes")
        else:
            self.refusal = ""

    def _refuse(self, left: str, reserve: int, unit: str) -> None:
        begins = not self.refusal
        self.refusal = (
            f"no room on the disk for producers: {left} are left, and the last {reserve:,} {unit} are for the broker "
            "itself (disk.min.free.bytes)"
        )
        if begins:
            for notify in self.on_refused:
                notify()
