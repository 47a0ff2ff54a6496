"""The seal: a 32-byte file beside the database that notices what SQLite by itself would not.

    offset  size  field
         0     8  magic b"MGSEAL01"
         8     8  commits: how many transactions the database has seen
        16     8  size of the database file; 0 while a broker has it open
        24     4  crc32c of the whole database file; 0 while open
        28     4  crc32c of the 28 bytes before

Closed in order, every byte of the database is covered, also those of free pages. After a crash the rows protect
themselves; ``commits`` then tells a write-ahead log that lost its end: SQLite takes a damaged frame for the
end of the log and drops what follows without a word. The seal may lag behind the database, but never leads it.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

from magnetar.metadata.errors import MetadataCorrupt
from magnetar.records.crc import crc32c

_SEAL = struct.Struct(">8sQQI")
_CRC = struct.Struct(">I")
_MAGIC = b"MGSEAL01"
_CHUNK_BYTES = 1 << 20


class Seal(NamedTuple):
    """What the seal says; ``size`` is 0 while the database is open or was left open."""

    commits: int
    size: int
    crc: int


def encode_seal(seal: Seal) -> bytes:
    head = _SEAL.pack(_MAGIC, *seal)
    return head + _CRC.pack(crc32c(head))


def decode_seal(data: bytes, path: str) -> Seal:
    """Read a seal, or raise `MetadataCorrupt` naming its file."""
    head, crc = data[: _SEAL.size], data[_SEAL.size :]
    if len(head) != _SEAL.size or crc != _CRC.pack(crc32c(head)):
        raise MetadataCorrupt(path, "the seal's checksum does not match")
    magic, commits, size, file_crc = _SEAL.unpack(head)
    if magic != _MAGIC:
        raise MetadataCorrupt(path, "not a seal of a version known here")
    return Seal(commits, size, file_crc)


class SealFile:
    """The seal of one database, kept open to follow every commit with one small write."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self.path = database.with_name(database.name + ".seal")
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._commits = 0

    def verify(self) -> Seal:
        """Hold the database against its seal; raise `MetadataCorrupt` when bytes changed while it was closed."""
        data = os.pread(self._fd, 64, 0)
        if not data:
            return Seal(0, 0, 0)
        seal = decode_seal(data, str(self.path))
        size = self._database.stat().st_size if self._database.exists() else 0
        if size == 0 and seal.commits:
            raise MetadataCorrupt(str(self._database), f"it is empty or gone, after {seal.commits} commits")
        if seal.size and (seal.size, seal.crc) != (size, file_crc(self._database)):
            raise MetadataCorrupt(str(self._database), "its bytes changed while no broker had it open")
        return seal

    def break_open(self, commits: int) -> None:
        """Say durably that the database is about to change."""
        self.follow(commits)
        os.fsync(self._fd)

    def follow(self, commits: int) -> None:
        """Note the number of commits that are durable by now."""
        self._commits = commits
        os.pwrite(self._fd, encode_seal(Seal(commits, 0, 0)), 0)

    def close(self) -> None:
        """Seal the database if nothing of it is left in a write-ahead log."""
        wal = self._database.with_name(self._database.name + "-wal")
        if not wal.exists() or wal.stat().st_size == 0:
            size = self._database.stat().st_size
            os.pwrite(self._fd, encode_seal(Seal(self._commits, size, file_crc(self._database))), 0)
            os.fsync(self._fd)
        os.close(self._fd)

    def abandon(self) -> None:
        """Leave the seal as it is."""
        os.close(self._fd)


def file_crc(path: Path) -> int:
    """Give the crc32c of a whole file, read in pieces."""
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            crc = crc32c(chunk, crc)
    return crc
