"""A metadata store that forgets: for tests, and for brokers that keep nothing."""

from __future__ import annotations

from asyncio import sleep
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from magnetar.metadata.blocking import BlockingStore
from magnetar.metadata.errors import BadVersion, NotFound
from magnetar.metadata.local import LocalStore, T
from magnetar.metadata.ops import (
    Stored,
    below,
    check_path,
    child_names,
)
from magnetar.metadata.staging import Node, Outcome, StagedCommit, Staging, stored


class MemoryTree(BlockingStore):
    """All of the port's promises but durability. ``makes_parents``: parents come into being as ZooKeeper's must."""

    def __init__(self, *, makes_parents: bool = False) -> None:
        super().__init__()
        self._makes_parents = makes_parents
        self._nodes: dict[str, Node] = {}
        self._paths: list[str] = []
        """Of the nodes, sorted."""
        self._undo: list[tuple[str, Node | None]] | None = None

    def get(self, path: str) -> Stored | None:
        return stored(self._nodes.get(check_path(path)))

    def children(self, path: str) -> list[str]:
        return child_names(path, self._starting(below(path)))

    def scan(self, prefix: str) -> Iterator[tuple[str, Stored]]:
        return iter([(path, Stored(*self._nodes[path][:2])) for path in self._starting(prefix)])

    def commit_all(self, commits: Sequence[StagedCommit]) -> list[Outcome]:
        staging = Staging(
            self._nodes.get, lambda path: self._starting(below(path)), makes_parents=self._makes_parents
        )
        outcomes = [staging.attempt(commit) for commit in commits]
        for path, node in staging.changed.items():
            self._set(path, node)
        if self._undo is None:
            self._tell(staging.changed.keys())
        return outcomes

    def end_session(self, session: int) -> None:
        ended = [path for path, node in self._nodes.items() if node.owner == session]
        for path in ended:
            self._set(path, None)
        self._tell(ended)

    def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        old = self.get(path)
        actual = -1 if old is None else old.version
        if expected_version is not None and expected_version != actual:
            raise BadVersion(path, expected_version, actual)
        with self.transaction():
            self._set(path, Node(bytes(value), actual + 1))
        return actual + 1

    def delete(self, path: str, expected_version: int | None = None) -> None:
        old = self.get(path)
        if old is None:
            raise NotFound(path)
        if expected_version is not None and expected_version != old.version:
            raise BadVersion(path, expected_version, old.version)
        with self.transaction():
            self._set(path, None)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._undo is not None:
            yield
            return
        undo = self._undo = []
        try:
            yield
        except BaseException:
            for path, old in reversed(undo):
                self._set(path, old)
            raise
        finally:
            self._undo = None
        self._tell({path for path, _ in undo})

    def close(self) -> None:
        """Nothing is kept, so nothing is left to do."""

    def _starting(self, prefix: str) -> Iterator[str]:
        at = bisect_left(self._paths, prefix)
        while at < len(self._paths) and self._paths[at].startswith(prefix):
            yield self._paths[at]
            at += 1

    def _set(self, path: str, node: Node | None) -> None:
        old = self._nodes.get(path)
        if self._undo is not None:
            self._undo.append((path, old))
        if node is None:
            if old is not None:
                del self._nodes[path]
                del self._paths[bisect_left(self._paths, path)]
            return
        self._nodes[path] = node
        if old is None:
            insort(self._paths, path)


class MemoryStore(LocalStore):
    """One client of a tree in memory; others of the same tree see what it writes, as its watches see theirs."""

    def __init__(self, tree: MemoryTree | None = None) -> None:
        super().__init__(tree or MemoryTree())

    async def _read(self, read: Callable[[], T]) -> T:
        await sleep(0)  # a caller that counts on an answer at once is found out here
        return read()

    async def _commit(self, commit: StagedCommit) -> Outcome:
        await sleep(0)
        return self.blocking.commit_all([commit])[0]
