"""What is to become less does not become more: counts of the source, with a bound each (docs/decisions/0239).

Whoever brings a count down lowers its bound in the same commit. A bound is raised by a decision that says why.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "magnetar"
GENERATED = SOURCE / "wire" / "kafka" / "messages"
LONG = 450
_KINDS_OF_GROUPS = re.compile(
    r"\bis_(?:consumer|share|streams|classic)\(|isinstance\([^()]*ClassicGroup\)"
    r"|\b(?:CONSUMER|SHARE|STREAMS|CLASSIC)\.own\("
)


@cache
def trees() -> dict[Path, ast.Module]:
    """Return what was written by hand, parsed."""
    return {
        path: ast.parse(path.read_text())
        for path in sorted(SOURCE.rglob("*.py"))
        if GENERATED not in path.parents and not path.name.endswith("_pb2.py")
    }


def files_in_the_largest_folder() -> int:
    """The files of one drawer; the handlers are one file per API, which is an order of its own."""
    folders = Counter(path.parent for path in trees())
    return max(count for folder, count in folders.items() if folder != SOURCE / "kafka" / "handlers")


def attributes_of_broker() -> int:
    """What anybody may reach by way of a `Broker`."""
    (broker,) = [
        node
        for node in trees()[SOURCE / "node" / "broker.py"].body
        if isinstance(node, ast.ClassDef) and node.name == "Broker"
    ]
    (make,) = [node for node in broker.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    return len({name for name in assigned(make) if not name.startswith("_")})


def assigned(function: ast.AST) -> Iterator[str]:
    """Yield the names of the attributes of ``self`` that a function sets."""
    for node in ast.walk(function):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in targets:
                if (
                    isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id == "self"
                ):
                    yield target.attr


def modules_that_import_broker() -> int:
    """Modules that may use every part of a broker, where the constructors of others name the parts they use."""
    return sum(
        any(
            isinstance(node, ast.ImportFrom) and node.module == "magnetar.node.broker"
            for node in ast.walk(tree)
        )
        for tree in trees().values()
    )


def slots() -> int:
    """Attributes that are a lambda until somebody assigns what is really meant."""
    return sum(
        isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Attribute)
        and isinstance(node.value, ast.Lambda)
        for tree in trees().values()
        for node in ast.walk(tree)
    )


def imports_in_functions() -> int:
    """What the top of a file does not say that it needs."""
    return len(
        {
            node
            for tree in trees().values()
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
    )


def uses_of_paced() -> int:
    """Places that see to fairness by themselves."""
    return sum(path.read_text().count("paced(") for path in trees())


def questions_for_the_kind_of_a_group() -> int:
    """Branches that a fifth kind of groups would have to be put into."""
    return sum(len(_KINDS_OF_GROUPS.findall(path.read_text())) for path in trees())


def lines_of_guards() -> int:
    """Code that answers what clients may not do, by the interpreter or by hand."""
    lines = sum(
        path.read_text().count("\n") for path in trees() if SOURCE / "kafka" / "authorization" in path.parents
    )
    return lines + sum(
        (node.end_lineno or 0) - node.lineno + 1
        for path, tree in trees().items()
        if SOURCE / "kafka" / "handlers" in path.parents
        for node in tree.body
        if isinstance(node, ast.AsyncFunctionDef) and node.name == "guard"
    )


def long_files() -> int:
    """Files of more than 450 lines."""
    return sum(path.read_text().count("\n") > LONG for path in trees())


BOUNDS = {
    files_in_the_largest_folder: 50,
    attributes_of_broker: 20,
    modules_that_import_broker: 71,
    slots: 0,
    imports_in_functions: 504,
    uses_of_paced: 180,
    questions_for_the_kind_of_a_group: 7,
    lines_of_guards: 1226,
    long_files: 18,
}


@pytest.mark.parametrize("count", BOUNDS, ids=lambda count: count.__name__)
def test_nothing_that_is_to_become_less_becomes_more(count: object) -> None:
    assert count() <= BOUNDS[count]  # type: ignore[operator, index]
