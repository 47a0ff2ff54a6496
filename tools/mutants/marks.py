"""Marks before every statement, so that it is known which test comes where: also in the processes that a test starts.

A marked file sets one byte of a map in memory before each of its statements: ``__mark__[17] = 1``. All processes that
import the marked copy share that map, whoever started them and however they end, and the plugin in the test run
(`tools.mutants.in_pytest`) reads and clears it after each test. Coverage's own contexts know one process only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tools.mutants.generate import Mutant

MODULE = "mutants_map"
"""What marked files import; written beside the packages of the copy."""
MODULE_SOURCE = """\
import mmap, os
MAP = mmap.mmap(os.open(os.path.splitext(os.path.abspath(__file__))[0] + ".bytes", os.O_RDWR), 0)
"""


@dataclass(frozen=True, slots=True)
class Marks:
    """The statements of one file that are inside a function, in the order of their marks."""

    first: int
    spans: tuple[tuple[tuple[int, int], tuple[int, int]], ...]
    """Where each begins and ends: line and column in bytes."""

    @property
    def end(self) -> int:
        """Return the first mark that is not this file's."""
        return self.first + len(self.spans)

    def of(self, mutant: Mutant, source: bytes) -> int | None:
        """Return the mark of the innermost statement that holds a change; None outside functions."""
        before = source[: mutant.start]
        at = before.count(b"\n") + 1, mutant.start - (before.rfind(b"\n") + 1)
        inside = [(span[0], number) for number, span in enumerate(self.spans) if span[0] <= at < span[1]]
        return self.first + max(inside)[1] if inside else None


def layout(sources: Mapping[str, bytes]) -> dict[str, Marks]:
    """Return the marks of these files, by path; no two have one number."""
    found: dict[str, Marks] = {}
    first = 0
    for path in sorted(sources):
        found[path] = Marks(first, tuple(_span(each) for each in _statements(ast.parse(sources[path]))))
        first = found[path].end
    return found


def marked(source: bytes, first: int) -> bytes:
    """Return the file with marks from ``first`` on."""
    tree = ast.parse(source)
    numbers = {id(each): first + number for number, each in enumerate(_statements(tree))}
    for node in ast.walk(tree):
        for body in _bodies(node):
            body[:] = [part for each in body for part in _with_mark(each, numbers.get(id(each)))]
    late = next(number for number, each in enumerate(tree.body) if not _is_first(each))
    tree.body[late:late] = ast.parse(f"from {MODULE} import MAP as __mark__").body
    return ast.unparse(ast.fix_missing_locations(tree)).encode()


def _with_mark(node: ast.stmt, number: int | None) -> Sequence[ast.stmt]:
    return (node,) if number is None else (*ast.parse(f"__mark__[{number}] = 1").body, node)


def _statements(tree: ast.AST, *, inside: bool = False) -> Iterator[ast.stmt]:
    """Walk through all that is inside functions, docstrings left out: outermost first."""
    for body in _bodies(tree):
        for each in body:
            if inside and not _is_first(each):
                yield each
            is_function = isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _statements(
                each, inside=is_function or (inside and not isinstance(each, ast.ClassDef))
            )


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        body = getattr(node, field, None)
        if isinstance(body, list):
            yield body
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield from _bodies(part)


def _is_first(node: ast.stmt) -> bool:
    """Whether it must stay before all others: what comes from the future, and docstrings (they cost nothing)."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def _span(node: ast.stmt) -> tuple[tuple[int, int], tuple[int, int]]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
