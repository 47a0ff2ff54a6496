"""Mutants of one source file: each is one small change of its syntax tree, made in its text.

Comparisons are moved by one or turned round, conditions fixed or negated, numbers moved by one, ``and`` and ``or``
swapped, returned values taken away, statements dropped. Left alone is what no test could hold: annotations,
docstrings, what is logged, the words of errors, and defaults of dataclasses' and settings' fields are not looked into.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOGGERS = ("_log", "log", "logger", "logging")


@dataclass(frozen=True)
class Mutant:
    """One change: the bytes ``[start, end)`` of a file become ``new``."""

    path: str
    where: str
    """The function or class that it is in."""
    line: int
    start: int
    end: int
    old: str
    new: str

    @property
    def key(self) -> str:
        """What it is called; the same after lines elsewhere were changed."""
        return f"{self.path}::{self.where}: {_one_line(self.old)} -> {_one_line(self.new)}"

    def applied(self, source: bytes) -> bytes:
        """Return the file with the change."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a file that are Python still, without two of one name."""
    found: dict[str, Mutant] = {}
    for mutant in _Walk(path, source).run():
        try:
            compile(mutant.applied(source), path, "exec", dont_inherit=True)
        except SyntaxError:
            continue
        found.setdefault(mutant.key, mutant)
    return list(found.values())


def sample(mutants: list[Mutant], most: int, seed: str) -> list[Mutant]:
    """Return at most so many of them, the same for the same seed whatever else there is."""
    by_chance = sorted(mutants, key=lambda each: hashlib.sha256(f"{seed}\0{each.key}".encode()).digest())
    return by_chance[:most]


def _one_line(text: str) -> str:
    return " ".join(text.split())


class _Walk:
    """Walks one file's tree."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path = path
        self._source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._names: list[str] = []

    def run(self) -> Iterator[Mutant]:
        yield from self._body(ast.parse(self._source).body)

    # -- statements

    def _body(self, body: list[ast.stmt]) -> Iterator[Mutant]:
        for statement in body:
            yield from self._statement(statement)

    def _statement(self, node: ast.stmt) -> Iterator[Mutant]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._names.append(node.name)
            yield from self._body(node.body)
            self._names.pop()
            return
        if not self._names or isinstance(node, ast.Import | ast.ImportFrom | ast.Assert | ast.AnnAssign):
            if isinstance(node, ast.AnnAssign) and node.value is not None and len(self._names) > 1:
                yield from self._expression(node.value)
            return
        if isinstance(node, ast.If | ast.While):
            yield from self._condition(node.test)
            if isinstance(node, ast.If):
                yield self._to(node.test, "False")
        if isinstance(node, ast.Return):
            yield from self._return(node)
        if self._may_go(node):
            yield self._to(node, "pass")
        for field in ("test", "iter", "value", "exc"):
            part = getattr(node, field, None)
            if isinstance(part, ast.expr) and not (field == "exc" or self._is_logging(part)):
                yield from self._expression(part)
        if isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                yield from self._expression(item.context_expr)
        for field in ("body", "orelse", "finalbody"):
            yield from self._body(getattr(node, field, []))
        for handler in getattr(node, "handlers", []):
            yield from self._body(handler.body)

    def _condition(self, test: ast.expr) -> Iterator[Mutant]:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            yield self._to(test, self._text(test.operand))
        elif not isinstance(test, ast.Compare | ast.Constant):
            yield self._to(test, f"not ({self._text(test)})")

    def _return(self, node: ast.Return) -> Iterator[Mutant]:
        value = node.value
        if value is None or isinstance(value, ast.Constant):
            return
        yield self._to(value, "None")

    def _may_go(self, node: ast.stmt) -> bool:
        """Whether to leave out a statement may be noticed, and not only because a name is missing then."""
        if isinstance(node, ast.Expr):
            value = node.value.value if isinstance(node.value, ast.Await) else node.value
            return isinstance(value, ast.Call) and not self._is_logging(value)
        if isinstance(node, ast.Assign):
            return all(isinstance(each, ast.Attribute | ast.Subscript) for each in node.targets) and (
                self._names[-1] != "__init__"
            )
        return isinstance(node, ast.AugAssign | ast.Raise | ast.Delete)

    # -- expressions

    def _expression(self, node: ast.expr) -> Iterator[Mutant]:
        if isinstance(node, ast.JoinedStr) or self._is_logging(node):
            return
        yield from self._changes(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.keyword):
                child = child.value
            if isinstance(child, ast.comprehension):
                yield from self._expression(child.iter)
                for test in child.ifs:
                    yield from self._condition(test)
                    yield from self._expression(test)
            elif isinstance(child, ast.expr):
                yield from self._expression(child)

    def _changes(self, node: ast.expr) -> Iterator[Mutant]:
        if isinstance(node, ast.Compare):
            for at, op in enumerate(node.ops):
                other = _COMPARISONS.get(type(op))
                if other is not None:
                    ops = [other() if number == at else each for number, each in enumerate(node.ops)]
                    yield self._to(node, f"({ast.unparse(ast.Compare(node.left, ops, node.comparators))})")
        elif isinstance(node, ast.BoolOp):
            swapped = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield self._to(node, f"({ast.unparse(ast.BoolOp(swapped, node.values))})")
        elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            if not (isinstance(node.op, ast.Add | ast.Mult) and self._is_text(node)):
                turned = ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
                yield self._to(node, f"({ast.unparse(turned)})")
        elif isinstance(node, ast.IfExp):
            yield from self._condition(node.test)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
            yield self._to(node.func, _CALLS[node.func.id])
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield self._to(node, str(not node.value))
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield self._to(node, str(node.value + 1))

    @staticmethod
    def _is_text(node: ast.BinOp) -> bool:
        """Whether what is added or multiplied is plainly text, bytes or a list."""
        kinds = ast.JoinedStr | ast.List | ast.Tuple | ast.Dict | ast.ListComp
        return any(
            isinstance(each, kinds)
            or (isinstance(each, ast.Constant) and isinstance(each.value, str | bytes))
            for each in (node.left, node.right)
        )

    @staticmethod
    def _is_logging(node: ast.expr) -> bool:
        func = node.func if isinstance(node, ast.Call) else None
        target = func.value if isinstance(func, ast.Attribute) else None
        return isinstance(target, ast.Name) and target.id in _LOGGERS

    # -- text

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._lines[node.lineno - 1] + node.col_offset,
            self._lines[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()

    def _to(self, node: ast.expr | ast.stmt, new: str) -> Mutant:
        start, end = self._span(node)
        where = ".".join(self._names)
        return Mutant(self._path, where, node.lineno, start, end, self._text(node), new)
