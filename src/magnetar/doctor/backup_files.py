"""Files of backups: copied with a digest, no faster than wanted, and durable on return."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class BackupFile:
    """One file of a data directory in a snapshot: where it lies there and below the place, its size and digest."""

    path: str
    stored: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BackupSnapshot:
    """Contents of a backup that was made at one time. ``copied_bytes`` are those that earlier ones did not have."""

    name: str
    made_ms: int
    source: str
    ledgers: int
    bytes: int
    copied_bytes: int
    offloaded: int
    """Ledgers that lie in tiered storage alone, and are not in the backup."""


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of ``verify``: how much was read, and what was not as the manifest says."""

    name: str
    files: int
    bytes: int
    damage: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        return not self.damage


class Pace:
    """Copies no faster than so many bytes a second; 0 for no bound."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._began = time.monotonic()
        self._copied = 0

    def copied(self, nbytes: int) -> None:
        self._copied += nbytes
        if self._bytes_per_s > 0:
            ahead_s = self._copied / self._bytes_per_s - (time.monotonic() - self._began)
            if ahead_s > 0:
                time.sleep(ahead_s)


def copied(source: BinaryIO, target: Path, size: int, pace: Pace) -> tuple[int, str]:
    """Copy the first ``size`` bytes, durable on return; return how many there were, and their SHA-256."""
    digest, left = hashlib.sha256(), size
    with _new(target) as file:
        while left and (chunk := source.read(min(left, _CHUNK_BYTES))):
            digest.update(chunk)
            file.write(chunk)
            left -= len(chunk)
            pace.copied(len(chunk))
        file.flush()
        os.fsync(file.fileno())
    return size - left, digest.hexdigest()


def digest_of(path: Path) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def ends(file: BinaryIO, size: int) -> tuple[bytes, bytes]:
    file.seek(0)
    first = file.read(4096)
    file.seek(max(size - 4096, 0))
    return first, file.read(4096)


def ends_of(path: Path, size: int) -> tuple[bytes, bytes]:
    with path.open("rb") as file:
        return ends(file, size)


def _new(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640), "wb")


def write_durably(path: Path, data: bytes) -> None:
    with _new(path) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
