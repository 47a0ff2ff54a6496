"""A metadata store that forgets: for tests, and for brokers that keep nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from magnetar.metadata.errors import BadVersion, NotFound
from magnetar.metadata.port import MetadataStore, Stored, below, check_path, child_names


class MemoryStore(MetadataStore):
    """All of the port's promises but durability."""

    def __init__(self) -> None:
        self._nodes: dict[str, Stored] = {}
        self._undo: list[tuple[str, Stored | None]] | None = None

    def get(self, path: str) -> Stored | None:
        return self._nodes.get(check_path(path))

    def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        old = self.get(path)
        actual = -1 if old is None else old.version
        if expected_version is not None and expected_version != actual:
            raise BadVersion(path, expected_version, actual)
        self._remember(path, old)
        self._nodes[path] = Stored(bytes(value), actual + 1)
        return actual + 1

    def delete(self, path: str, expected_version: int | None = None) -> None:
        old = self.get(path)
        if old is None:
            raise NotFound(path)
        if expected_version is not None and expected_version != old.version:
            raise BadVersion(path, expected_version, old.version)
        self._remember(path, old)
        del self._nodes[path]

    def children(self, path: str) -> list[str]:
        prefix = below(path)
        return child_names(path, (node for node in self._nodes if node.startswith(prefix)))

    def scan(self, prefix: str) -> Iterator[tuple[str, Stored]]:
        return iter(sorted((path, node) for path, node in self._nodes.items() if path.startswith(prefix)))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._undo is not None:
            yield
            return
        self._undo = []
        try:
            yield
        except BaseException:
            for path, old in reversed(self._undo):
                self._restore(path, old)
            raise
        finally:
            self._undo = None

    def close(self) -> None:
        """Nothing is kept, so nothing is left to do."""

    def _remember(self, path: str, old: Stored | None) -> None:
        if self._undo is not None:
            self._undo.append((path, old))

    def _restore(self, path: str, old: Stored | None) -> None:
        if old is None:
            self._nodes.pop(path, None)
        else:
            self._nodes[path] = old
