"""The metadata store: a small tree of versioned values, with the paths and meanings of Pulsar's own store.

A path is ``/`` separated and names one value. A node needs no parent to be stored first. Versions start at 0 and
grow by one with every ``put``. Every write is durable when the call returns, or when its transaction ends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

from magnetar.metadata.errors import InvalidPath

MUST_NOT_EXIST = -1
"""As ``expected_version``: the write succeeds only if nothing is stored there yet."""


class Stored(NamedTuple):
    """One value and how often it was written since it was created (0 = once)."""

    value: bytes
    version: int


class MetadataStore(ABC):
    """What every store promises; ``tests/contracts/metadata_store.py`` holds each of them to it."""

    trouble: str = ""
    """What the disk refused last, until a commit succeeds again."""

    def is_writable(self) -> bool:
        """Whether commits succeed, tried anew where the last one did not; the words are in ``trouble``."""
        return True

    @abstractmethod
    def get(self, path: str) -> Stored | None:
        """Give what is stored at exactly this path."""

    @abstractmethod
    def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        """Store ``value`` and give its version; raise `BadVersion` unless the version is as expected."""

    @abstractmethod
    def delete(self, path: str, expected_version: int | None = None) -> None:
        """Remove one node (not those below it); raise `NotFound` or `BadVersion`."""

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """Give the sorted names right below ``path``, also of nodes that only have nodes below them."""

    @abstractmethod
    def scan(self, prefix: str) -> Iterator[tuple[str, Stored]]:
        """Give all nodes whose path starts with the text ``prefix``, sorted, as they are at the time of the call."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Make all writes in the block one: all of them are kept, or none when the block raises.

        A block inside a block belongs to the outer one.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave everything in order on disk. Closing twice is harmless."""


def check_path(path: str) -> str:
    """Give the path back if it is well formed, else raise `InvalidPath`."""
    if not path.startswith("/") or path.endswith("/") or "//" in path or "\0" in path:
        raise InvalidPath(f"not a metadata path: {path!r}")
    return path


def child_names(path: str, paths: Iterator[str]) -> list[str]:
    """Give the distinct, sorted first segments of ``paths``, all of which lie below ``path``."""
    start = 1 if path == "/" else len(path) + 1
    return sorted({below[start:].partition("/")[0] for below in paths})


def below(path: str) -> str:
    """Give the prefix that all nodes below ``path`` share; ``/`` is the root."""
    return "/" if path == "/" else check_path(path) + "/"
