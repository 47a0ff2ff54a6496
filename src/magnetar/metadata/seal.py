"""The seal: a small file beside the database that notices what SQLite by itself would not.

    offset  size  field
         0     8  magic b"MGSEAL01"
         8     8  commits: how many transactions the database has seen
        16     8  size of the database file; 0 while a broker has it open
        24     4  crc32c of the whole database file; 0 while open
        28     4  crc32c of the 28 bytes before

Closed in order there is one seal of these 32 bytes, put in place whole, and every byte of the database is covered,
also those of free pages. While a broker has it open there are two, written in turn, so that a write that tears leaves
the one before it; the later one counts. After a crash the rows protect themselves; ``commits`` then tells a write-ahead
log that lost its end: SQLite takes a damaged frame for the end of the log and drops what follows without a word. The
seal may lag behind the database, but never leads it: a commit does not fail because its seal could not be written.
"""

from __future__ import annotations

import logging
import os
import struct
from pathlib import Path
from typing import NamedTuple

from magnetar.metadata.errors import MetadataCorrupt
from magnetar.metadata.modes import FILE_MODE
from magnetar.records.crc import crc32c

_SEAL = struct.Struct(">8sQQI")
_CRC = struct.Struct(">I")
_MAGIC = b"MGSEAL01"
_CHUNK_BYTES = 1 << 20
SEAL_BYTES = _SEAL.size + _CRC.size
_log = logging.getLogger("magnetar.metadata")


class Seal(NamedTuple):
    """What the seal says; ``size`` is 0 while the database is open or was left open."""

    commits: int
    size: int
    crc: int


def encode_seal(seal: Seal) -> bytes:
    head = _SEAL.pack(_MAGIC, *seal)
    return head + _CRC.pack(crc32c(head))


def decode_seal(data: bytes, path: str) -> Seal:
    """Read a seal file's content: one seal, or the later of two; raise `MetadataCorrupt` naming the file."""
    if len(data) <= SEAL_BYTES:
        return _decode_one(data, path)
    found = []
    for at in (0, SEAL_BYTES):
        try:
            found.append(_decode_one(data[at : at + SEAL_BYTES], path))
        except MetadataCorrupt as error:
            damage = error
    if len(found) == 1:
        _log.warning("%s: one of its two seals is torn or damaged; the other one counts", path)
    if not found:
        raise damage
    if any(seal.size for seal in found):
        raise MetadataCorrupt(path, "a seal of a closed database has another beside it")
    return max(found)


def _decode_one(data: bytes, path: str) -> Seal:
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
        self._fd = -1
        self._commits = 0
        self._slot = 0
        self._lags = False

    def verify(self) -> Seal:
        """Hold the database against its seal; raise `MetadataCorrupt` when bytes changed while it was closed."""
        try:
            data = self.path.read_bytes()[: 2 * SEAL_BYTES]
        except FileNotFoundError:
            data = b""
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
        """Say durably that the database is about to change. Raises ``OSError`` with the seal as it was."""
        self._commits = commits
        self._put(2 * encode_seal(Seal(commits, 0, 0)))
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    def follow(self, commits: int) -> None:
        """Note the number of commits that are durable by now, as well as the disk lets us."""
        self._commits = commits
        self._slot ^= 1
        data = encode_seal(Seal(commits, 0, 0))
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(self._fd, data[done:], self._slot * SEAL_BYTES + done)
        except OSError as error:
            self._slot ^= 1  # the other one is whole
            if not self._lags:
                _log.warning("%s lags behind the commits: %s", self.path, error)
            self._lags = True
        else:
            self._lags = False

    def close(self) -> None:
        """Seal the database if nothing of it is left in a write-ahead log."""
        self.abandon()
        wal = self._database.with_name(self._database.name + "-wal")
        try:
            if not wal.exists() or wal.stat().st_size == 0:
                size = self._database.stat().st_size
                self._put(encode_seal(Seal(self._commits, size, file_crc(self._database))))
        except OSError as error:
            _log.warning("%s does not cover the closed database: %s", self.path, error)

    def abandon(self) -> None:
        """Leave the seal as it is."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _put(self, content: bytes) -> None:
        """Put a file with this content in the seal's place, durably: there is the old one or the new one."""
        draft = self.path.with_name(self.path.name + ".tmp")
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        try:
            done = 0
            while done < len(content):
                done += os.write(fd, content[done:])
            os.fsync(fd)
        finally:
            os.close(fd)
        draft.rename(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def file_crc(path: Path) -> int:
    """Return the crc32c of a whole file, read in pieces."""
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            crc = crc32c(chunk, crc)
    return crc
