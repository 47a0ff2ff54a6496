"""What commits are made of, and what paths may be: values that every store shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from magnetar.metadata.errors import InvalidPath, TooLarge

MUST_NOT_EXIST: Final = -1
"""As expected version: the operation succeeds only if nothing is stored there."""

ANY: Final = -2
"""As expected version: whoever wrote last, and for a `Put` also where nothing is stored."""

MAX_COMMIT_BYTES: Final = 1_000_000
"""What all paths and values of a commit may amount to; ZooKeeper's limit is 1,048,575 bytes with its own framing."""

_OVERHEAD_BYTES = 64  # of each operation on the wire
_AT_ONCE_BYTES = MAX_COMMIT_BYTES // 4


class Stored(NamedTuple):
    """One value and how often it was written since it was created (0 = once)."""

    value: bytes
    version: int


class Put(NamedTuple):
    """Store ``value`` if the version is ``expected``; an ``ephemeral`` new node ends with the store's session."""

    path: str
    value: bytes
    expected: int
    ephemeral: bool = False


class Delete(NamedTuple):
    """Remove a node that is there, in the version ``expected`` or in `ANY`, and has no nodes beneath it."""

    path: str
    expected: int


class Check(NamedTuple):
    """Let the commit succeed only if the node has this version; `ANY`: it exists in some version."""

    path: str
    expected: int


Op = Put | Delete | Check


def check_path(path: str) -> str:
    """Return the path if it is well formed, otherwise raise `InvalidPath`."""
    if not path.startswith("/") or path.endswith("/") or "//" in path or "\0" in path:
        raise InvalidPath(f"not a metadata path: {path!r}")
    return path


def check_ops(ops: Sequence[Op]) -> None:
    """Raise `InvalidPath` or `TooLarge` for a commit that no store may take."""
    size = sum(map(_size_of, ops))
    if size > MAX_COMMIT_BYTES:
        raise TooLarge(size, ops[0].path)


def in_commits(ops: Iterable[Op]) -> Iterator[list[Op]]:
    """Cut operations, in order, into as much as one commit should hold: others' have their turn between two of them."""
    some: list[Op] = []
    size = 0
    for op in ops:
        more = _size_of(op)
        if some and size + more > _AT_ONCE_BYTES:
            yield some
            some, size = [], 0
        some.append(op)
        size += more
    if some:
        yield some


def _size_of(op: Op) -> int:
    return len(check_path(op.path)) + _OVERHEAD_BYTES + (len(op.value) if isinstance(op, Put) else 0)


def child_names(path: str, paths: Iterable[str]) -> list[str]:
    """Return the distinct, sorted first segments of ``paths``, all of which lie beneath ``path``."""
    start = 1 if path == "/" else len(path) + 1
    return sorted({below[start:].partition("/")[0] for below in paths})


def below(path: str) -> str:
    """Return the prefix that all nodes beneath ``path`` share; ``/`` is the root."""
    return "/" if path == "/" else check_path(path) + "/"
