"""What delta-rs neither tells nor writes: deletion vectors, read from Delta's log and written into it.

A deletion vector is a Roaring bitmap of a file's deleted rows. Ours stand in the log itself (``storageType`` ``i``), as
Z85 of the magic number and the bitmap, so there is no file that could be missing, or be left over. Those of other
writers may be in files next to the data (``u``), which are read too.

A commit is a file ``_delta_log/<version>.json`` that must not be there yet. It is made aside, flushed, and linked to
its name, on this machine's file systems only.
"""

from __future__ import annotations

import base64
import json
import os
import re
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from magnetar.pipeline.tables.deleted_rows import packed, unpacked
from magnetar.pipeline.tables.directory import TableDirectory
from magnetar.pipeline.tables.errors import TableError

FEATURE = "deletionVectors"
HIDDEN = "commit-"
"""What a commit's file is called, next to the writer's notes, before it has its name."""
_LOG = "_delta_log"
_MAGIC = struct.pack("<I", 1681511377)
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.\d{10})?\.parquet")
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

Descriptor = Mapping[str, Any]
"""What an ``add`` action says of its file's deletion vector."""


class DeltaLog:
    """The log of one table, as far as deletion vectors go."""

    def __init__(self, place: TableDirectory) -> None:
        self._place = place
        self._log = place.child(_LOG)
        self._version = -1
        self._vectors: dict[str, Descriptor] = {}
        self._rows: dict[tuple[str, int], bytes] = {}

    def vectors(self, version: int) -> dict[str, Descriptor]:
        """Return the deletion vectors of a version by their files; versions may only ascend."""
        if self._version < 0:
            self._read_checkpoint(version)
        while self._version < version:
            try:
                with self._log.open(f"{self._version + 1:020d}.json") as source:
                    self._apply(json.loads(line) for line in source.read().splitlines() if line)
            except FileNotFoundError:  # cleaned away since, and so there is a checkpoint
                before = self._version
                self._read_checkpoint(version)
                if self._version <= before:
                    raise TableError(f"{self._place}: version {before + 1} is missing in its log") from None
                continue
            self._version += 1
        return self._vectors

    def deleted(self, descriptor: Descriptor) -> bytes:
        """Return the deleted rows that a descriptor means."""
        key = str(descriptor["pathOrInlineDv"]), int(descriptor.get("offset") or 0)
        if key not in self._rows:
            if len(self._rows) > 2 * len(self._vectors) + 16:
                self._rows.clear()
            self._rows[key] = self._unpack(descriptor)
        return self._rows[key]

    def write(self, version: int, actions: Iterable[Mapping[str, Any]], made: Callable[[], object]) -> None:
        """Make a commit; raise ``FileExistsError`` if that version is there already. ``made`` is called before."""
        content = "".join(f"{json.dumps(each, separators=(',', ':'))}\n" for each in actions)
        hidden = self._place.directory / "_magnetar" / f"{HIDDEN}{uuid.uuid4().hex}"
        with hidden.open("w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        made()
        try:
            os.link(hidden, self._log.directory / f"{version:020d}.json")
        finally:
            hidden.unlink()
        self._log.sync([])

    def _read_checkpoint(self, version: int) -> None:
        names = [each for each in map(_CHECKPOINT.fullmatch, self._log.names()) if each]
        newest = max((int(each[1]) for each in names if int(each[1]) <= version), default=-1)
        self._vectors = {}
        for name in (each[0] for each in names if int(each[1]) == newest):
            with self._log.open(name) as source:
                parquet = pq.ParquetFile(source)
                wanted = [f"add.{each}" for each in ("path", "deletionVector")]
                for batch in parquet.iter_batches(columns=wanted):
                    rows = [each for each in batch.to_pylist() if each["add"] is not None]
                    self._apply({"add": each["add"]} for each in rows)
        self._version = newest

    def _apply(self, actions: Iterable[Mapping[str, Any]]) -> None:
        adds, removals = [], []
        for each in actions:
            adds += [each["add"]] if each.get("add") else []
            removals += [each["remove"]] if each.get("remove") else []
        for each in removals:
            self._vectors.pop(unquote(each["path"]), None)
        for each in adds:
            vector = each.get("deletionVector")
            if vector:
                self._vectors[unquote(each["path"])] = vector
            else:
                self._vectors.pop(unquote(each["path"]), None)

    def _unpack(self, descriptor: Descriptor) -> bytes:
        text, size = str(descriptor["pathOrInlineDv"]), int(descriptor["sizeInBytes"])
        kind = descriptor["storageType"]
        if kind == "i":
            raw = _from_z85(text)[:size]
        elif kind == "u":
            raw = self._read_file(text, int(descriptor.get("offset") or 0), size)
        else:
            raise TableError(f"{self._place}: deletion vectors of storage type {kind!r} are not known here")
        if raw[:4] != _MAGIC:
            raise TableError(f"{self._place}: a deletion vector is damaged, or of a kind not known here")
        return packed(unpacked(raw[4:]))

    def _read_file(self, text: str, offset: int, size: int) -> bytes:
        prefix, name = text[:-20], uuid.UUID(bytes=_from_z85(text[-20:]))
        path = f"{prefix}/deletion_vector_{name}.bin" if prefix else f"deletion_vector_{name}.bin"
        with self._place.open(path) as source:
            source.seek(offset)
            raw = bytes(source.read(4 + size + 4))
        content = raw[4 : 4 + size]
        if struct.unpack(">I", raw[:4])[0] != size or zlib.crc32(content) != struct.unpack(">I", raw[-4:])[0]:
            raise TableError(f"{self._place}: the deletion vector in {path} is damaged")
        return content


def descriptor_of(deleted: bytes) -> dict[str, Any]:
    """Return deleted rows as Delta's log has them."""
    raw = _MAGIC + deleted
    return {
        "storageType": "i",
        "pathOrInlineDv": _to_z85(raw),
        "sizeInBytes": len(raw),
        "cardinality": len(unpacked(deleted)),
    }


def _to_z85(raw: bytes) -> str:
    return base64.b85encode(raw, pad=True).translate(bytes.maketrans(_B85, _Z85)).decode()


def _from_z85(text: str) -> bytes:
    return base64.b85decode(text.encode().translate(bytes.maketrans(_Z85, _B85)))
