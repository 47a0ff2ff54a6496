"""Lines of Python source with indentation, and the conditions on ``version`` in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from message_importer.schema import Versions


class Source:
    """Collects lines; knows which versions can reach the current line, to leave out needless tests."""

    def __init__(self, reachable: Versions) -> None:
        self.lines: list[str] = []
        self.reachable = reachable
        self.sink = "append"  # the function that takes what generated code writes
        self._depth = 0

    def __call__(self, *lines: str) -> None:
        self.lines += ["    " * self._depth + line for line in lines]

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self(head)
        self._depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self("pass")
        self._depth -= 1

    @contextmanager
    def within(self, versions: Versions) -> Iterator[None]:
        """Narrow what is reachable, without a test."""
        outer, self.reachable = self.reachable, self.reachable & versions
        yield
        self.reachable = outer

    @contextmanager
    def when(self, versions: Versions) -> Iterator[bool]:
        """Write what follows for these versions only; gives False where none of them comes here."""
        narrowed = self.reachable & versions
        if not narrowed:
            mark = len(self.lines)
            yield False
            assert len(self.lines) == mark, "wrote what cannot be reached"
        elif versions.covers(self.reachable):
            yield True
        else:
            with self.block(f"if {self.test(versions)}:"), self.within(narrowed):
                yield True

    def test(self, versions: Versions) -> str:
        """Return the condition that tells these versions from the others that come here."""
        low = versions.low > self.reachable.low
        high = versions.high < self.reachable.high
        if low and high:
            return f"{versions.low} <= version <= {versions.high}"
        return f"version >= {versions.low}" if low else f"version <= {versions.high}"

    def outside(self, versions: Versions) -> str | None:
        """Return the condition for reachable versions other than these; "True" for all, None for none."""
        if versions.covers(self.reachable):
            return None
        if not self.reachable & versions:
            return "True"
        low = versions.low > self.reachable.low
        high = versions.high < self.reachable.high
        if low and high:
            return f"not {versions.low} <= version <= {versions.high}"
        return f"version < {versions.low}" if low else f"version > {versions.high}"
