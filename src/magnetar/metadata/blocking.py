"""A store for whoever has no event loop: what a tool opens, and what the thread of a `MetadataStore` works on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager

from magnetar.metadata.errors import MetadataError
from magnetar.metadata.ops import (
    Op,
    Stored,
    check_ops,
)
from magnetar.metadata.staging import Outcome, StagedCommit


class BlockingStore(ABC):
    """The same tree and the same commits as in `MetadataStore`, each done when the call returns."""

    trouble: str = ""
    """What the disk refused last, until a commit succeeds again."""

    def __init__(self) -> None:
        self.on_changed: list[Callable[[Collection[str]], None]] = []
        """Called with the paths of each commit, after it is durable, by the thread that made it."""

    @abstractmethod
    def get(self, path: str) -> Stored | None:
        """Return what is stored at exactly this path."""

    @abstractmethod
    def children(self, path: str) -> list[str]:
        """Return the sorted names right beneath ``path``, also of nodes that only have nodes beneath them."""

    @abstractmethod
    def scan(self, prefix: str) -> Iterator[tuple[str, Stored]]:
        """Return all nodes whose path starts with the text ``prefix``, sorted, as they are at the time of the call."""

    @abstractmethod
    def commit_all(self, commits: Sequence[StagedCommit]) -> list[Outcome]:
        """Do many commits with one write, each wholly or not at all; raise `MetadataFailed` for all of them."""

    def commit(self, ops: Sequence[Op]) -> list[int]:
        """Do as `MetadataStore.commit`."""
        check_ops(ops)
        (outcome,) = self.commit_all([StagedCommit(ops)])
        if isinstance(outcome, MetadataError):
            raise outcome
        return outcome

    @abstractmethod
    def end_session(self, session: int) -> None:
        """Remove the nodes that live by a session."""

    def is_writable(self) -> bool:
        """Return whether commits succeed, tried anew where the last one did not; the words are in ``trouble``."""
        return True

    @abstractmethod
    def close(self) -> None:
        """Leave everything in order on disk. Closing twice is harmless."""

    # What is written one by one; goes when the last caller commits instead.

    @abstractmethod
    def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        """Store ``value`` and give its version; raise `BadVersion` unless the version is as expected."""

    @abstractmethod
    def delete(self, path: str, expected_version: int | None = None) -> None:
        """Remove one node (not those below it); raise `NotFound` or `BadVersion`."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Make all writes in the block one: all of them are kept, or none when the block raises."""

    def _tell(self, paths: Collection[str]) -> None:
        if paths:
            for told in tuple(self.on_changed):
                told(paths)
