"""Values that may outgrow a commit: stored whole while they fit, otherwise in parts beside a small head.

    PATH                                     the value itself, or the head: b"\\0MGPARTS1" and the JSON
                                             {"generation": "6f3a...", "parts": 3, "size": 2400000, "crc": 123}
    /magnetar/parts/GENERATION/0, 1, 2, ...  the parts

The parts of a new generation are stored first and the head after them, with the version that is expected: so a value
changes in one step, like any other, and whoever loses that race leaves nothing that counts. Readers that find a part
gone read the head again. Parts of which a crash left no head are waste, a few megabytes at most.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import suppress

from magnetar.metadata.errors import BadVersion, MetadataCorrupt, MetadataFailed, NotFound
from magnetar.metadata.ops import ANY, MAX_COMMIT_BYTES, MUST_NOT_EXIST, Delete, Op, Put, Stored
from magnetar.metadata.port import MetadataStore
from magnetar.records.crc import crc32c

_ROOT = "/magnetar/parts"
_MAGIC = b"\0MGPARTS1"
WHOLE_BYTES = MAX_COMMIT_BYTES - 10_000
"""What a value may have to be stored whole, beside its path and a few other operations of its commit."""
_TRIES = 100


async def put_value(
    store: MetadataStore,
    path: str,
    value: bytes,
    expected: int,
    beside: Sequence[Op] = (),
    *,
    over_parts: bool = True,
) -> int:
    """Store a value of any size, ``beside`` small other operations, and return its version; raise as ``commit``.

    ``expected`` is a version or `MUST_NOT_EXIST`: it decides which parts are whose. Not ``over_parts``: what is
    expected there is known to be whole (`is_whole`), and is not looked at.
    """
    assert expected != ANY
    before = await _head_of(store, path, expected) if over_parts else []
    head: bytes = value
    parts: list[str] = []
    if not is_whole(value):
        head, parts = await _put_parts(store, value)
    try:
        version = (await store.commit([Put(path, head, expected), *beside]))[0]
    except BadVersion:
        await _drop(store, parts)  # after other errors the head may count
        raise
    await _drop(store, before)
    return version


async def delete_value(store: MetadataStore, path: str, expected: int) -> None:
    """Delete a value that `put_value` stored; raise as ``commit``."""
    before = await _head_of(store, path, expected)
    await store.commit([Delete(path, expected)])
    await _drop(store, before)


async def get_value(store: MetadataStore, path: str) -> Stored | None:
    """Return what `put_value` stored, and the version of its head; raise `MetadataCorrupt` if parts are missing."""
    for _ in range(_TRIES):
        stored = await store.get(path)
        if stored is None or not is_head(stored.value):
            return stored
        head = _decode(path, stored.value)
        parts = await store.get_many(_paths(head))
        value = b"".join(part.value for part in parts if part is not None)
        if all(parts) and (len(value), crc32c(value)) == (head["size"], head["crc"]):
            return Stored(value, stored.version)
        if await store.get(path) == stored:
            raise MetadataCorrupt(path, "parts of it are missing or not whole")
    raise MetadataCorrupt(path, "it changes faster than it can be read")


def is_whole(value: bytes) -> bool:
    """Return True if `put_value` stores a value as it is."""
    return len(value) <= WHOLE_BYTES and not value.startswith(_MAGIC)


def is_head(value: bytes) -> bool:
    """Whether this is the head of a value in parts, for which `get_value` is to be asked."""
    return value.startswith(_MAGIC)


async def _head_of(store: MetadataStore, path: str, expected: int) -> list[str]:
    """Return the parts of the value that is expected to be there; none if it is another by now."""
    if expected == MUST_NOT_EXIST:
        return []
    stored = await store.get(path)
    if stored is None or stored.version != expected or not is_head(stored.value):
        return []
    return _paths(_decode(path, stored.value))


async def _put_parts(store: MetadataStore, value: bytes) -> tuple[bytes, list[str]]:
    pieces = [value[at : at + WHOLE_BYTES] for at in range(0, len(value), WHOLE_BYTES)]
    head = {
        "generation": uuid.uuid4().hex,
        "parts": len(pieces),
        "size": len(value),
        "crc": int(crc32c(value)),
    }
    paths = _paths(head)
    for path, piece in zip(paths, pieces, strict=True):
        await store.commit([Put(path, piece, MUST_NOT_EXIST)])
    return _MAGIC + json.dumps(head).encode(), paths


async def _drop(store: MetadataStore, paths: Sequence[str]) -> None:
    """Remove parts that count no more; what cannot be removed is waste and nothing worse."""
    if not paths:
        return
    folder = paths[0].rpartition("/")[0]
    with suppress(NotFound, MetadataFailed):
        await store.commit([Delete(path, ANY) for path in paths])
        if await store.get(folder) is not None:  # a store that makes parents made it
            await store.commit([Delete(folder, ANY)])


def _paths(head: dict[str, object]) -> list[str]:
    count = head["parts"]
    assert isinstance(count, int)
    return [f"{_ROOT}/{head['generation']}/{number}" for number in range(count)]


def _decode(path: str, value: bytes) -> dict[str, object]:
    try:
        head = json.loads(value.removeprefix(_MAGIC))
        if not (isinstance(head["parts"], int) and isinstance(head["generation"], str)):
            raise TypeError("its fields are of other types")
        return {name: head[name] for name in ("generation", "parts", "size", "crc")}
    except (ValueError, KeyError, TypeError) as error:
        raise MetadataCorrupt(path, f"not the head of a value in parts: {error!r}") from error
