"""One word stands for one thing: whoever reads ``from ... import Refused`` knows what was refused."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = ("messages", "pulsar_pb2.py")
SOURCES = [
    path for path in sorted(ROOT.glob("src/**/*.py")) if not any(part in GENERATED for part in path.parts)
]


def classes(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


@pytest.mark.slow
def test_a_class_name_stands_for_one_class() -> None:
    # `magnetar.testing` is for users, who know no other class here: its names are theirs.
    places = defaultdict(list)
    for path in SOURCES:
        for name in () if "testing" in path.parts else classes(path):
            places[name].append(str(path.relative_to(ROOT)))
    assert len(places) > 500
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


@pytest.mark.slow
@pytest.mark.parametrize("word", ["Give ", "Gives "])
def test_what_a_function_returns_is_said_so(word: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (ast.get_docstring(node) or "").startswith(word)
        and node.returns is not None
        and ast.unparse(node.returns) != "None"
    ]
    assert found == []
