"""Tiered storage in a directory: on another disk, or on a file system that several machines have mounted.

An object is a file, made beside its place, flushed and renamed, so it is whole or not there; what it was written with
stands in a file beside it, ``KEY.attributes``, as JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound, TierFailed
from magnetar.ledger.tiers.objects import ObjectStore, StoredObject
from magnetar.metadata.modes import FILE_MODE, FOLDER_MODE
from magnetar.records.compression import Buffer

_ATTRIBUTES, _DRAFT = ".attributes", ".draft"


class DirectoryStore(ObjectStore):
    """Files below ``root``, which is made when the first object is written."""

    def __init__(self, root: Path) -> None:
        self.where = str(root)
        self._root = root

    def put(self, key: str, pieces: Iterable[Buffer], attributes: Mapping[str, str]) -> None:
        with self._failing("write"):
            self._root.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            self._write(key + _ATTRIBUTES, [json.dumps(dict(attributes)).encode()])
            self._write(key, pieces)
            self._flush_names()

    def _write(self, name: str, pieces: Iterable[Buffer]) -> None:
        draft = self._root / (name + _DRAFT)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
        try:
            with open(fd, "wb", buffering=0) as file:
                for piece in pieces:
                    left = memoryview(piece).cast("B")
                    while left:
                        left = left[file.write(left) :]
                os.fsync(file.fileno())
            os.replace(draft, self._root / name)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise

    def _flush_names(self) -> None:
        fd = os.open(self._root, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read(self, key: str, start: int, size: int) -> bytes:
        with self._failing("read"), self._opened(key) as fd:
            data = os.pread(fd, size, start)
            while len(data) < size and (more := os.pread(fd, size - len(data), start + len(data))):
                data += more
        if len(data) < size:
            raise LedgerCorrupt(
                f"{self.where}/{key}: ends at byte {start + len(data)}, and {start + size} were written",
                at=start + len(data),
            )
        return data

    def whole(self, key: str) -> bytes:
        with self._failing("read"), self._opened(key) as fd, open(fd, "rb", closefd=False) as file:
            return file.read()

    @contextmanager
    def _opened(self, key: str) -> Iterator[int]:
        try:
            fd = os.open(self._root / key, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise LedgerNotFound(f"{self.where} has no object {key}") from None
        try:
            yield fd
        finally:
            os.close(fd)

    def size(self, key: str) -> int:
        with self._failing("read"):
            try:
                return (self._root / key).stat().st_size
            except FileNotFoundError:
                return -1

    def attributes(self, key: str) -> Mapping[str, str]:
        with self._failing("read"):
            try:
                found = json.loads((self._root / (key + _ATTRIBUTES)).read_bytes())
                return {str(name): str(value) for name, value in found.items()}
            except (FileNotFoundError, ValueError, AttributeError):
                return {}

    def delete(self, keys: Iterable[str]) -> None:
        with self._failing("delete"):
            for key in keys:
                for name in (key, key + _DRAFT, key + _ATTRIBUTES, key + _ATTRIBUTES + _DRAFT):
                    (self._root / name).unlink(missing_ok=True)

    def listed(self) -> Iterator[StoredObject]:
        with self._failing("list"):
            if not self._root.is_dir():
                return
            for path in sorted(self._root.iterdir()):
                name = path.name.removesuffix(_DRAFT)  # what a crash left of one is as good as one
                if not name.endswith(_ATTRIBUTES) and path.is_file():
                    stat = path.stat()
                    yield StoredObject(name, stat.st_size, stat.st_mtime_ns // 1_000_000)

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TierFailed(
                f"tiered storage in {self.where}: cannot {what}: {error.strerror or error}. "
                "Make room there, mount it, or give this process the right to it"
            ) from error
