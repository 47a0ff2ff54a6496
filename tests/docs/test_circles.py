"""No file needs, by way of others, itself: whoever changes one of a circle has to know all of it.

``lint-imports`` has contracts between folders, none about circles of files; this looks with what it is made of.
An import for the type checker alone counts as well: it cannot fail when the program starts, but whoever reads the one
file has to read the other. Modules that are named in strings (`magnetar.kafka.route`) are not seen, and are no circle:
those that name them know nothing of what is in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import grimp
import pytest

ROOTS = ("magnetar", "pyspark_magnetar", "pyspark_magnetar_table")
KNOWN = {"magnetar.ledger.files"}
"""Folders whose circles are known: to be emptied, never filled."""


def circles(graph: grimp.ImportGraph) -> Iterator[list[str]]:
    """Yield the strongly connected modules (Tarjan's way, without recursion)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    for start in sorted(graph.modules):
        if start in number:
            continue
        work = [(start, iter(sorted(graph.find_modules_directly_imported_by(start))))]
        while work:
            module, imported = work[-1]
            if module not in number:
                number[module] = low[module] = len(number)
                path.append(module)
                on_path.add(module)
            for other in imported:
                if other not in number:
                    work.append((other, iter(sorted(graph.find_modules_directly_imported_by(other)))))
                    break
                if other in on_path:
                    low[module] = min(low[module], low[other])
            else:
                work.pop()
                if low[module] == number[module]:
                    at = path.index(module)
                    found, path[at:] = path[at:], []
                    on_path.difference_update(found)
                    if len(found) > 1:
                        yield sorted(found)
                if work:
                    before = work[-1][0]
                    low[before] = min(low[before], low[module])


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph(*ROOTS, cache_dir=None)
    assert len(graph.modules) > 400
    found = list(circles(graph))
    folders = {module.rpartition(".")[0] for each in found for module in each}
    unknown = [each for each in found if {module.rpartition(".")[0] for module in each} - KNOWN]
    assert not unknown, "\n".join(" <-> ".join(each) for each in unknown)
    assert folders == KNOWN, f"no circle is left in {KNOWN - folders}: take it off the list"


@pytest.mark.parametrize("guard", ["", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "])
def test_a_circle_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: str) -> None:
    texts = {
        "__init__": "",
        "a": "import round.b",
        "b": f"{guard}import round.c",
        "c": "import round.a",
        "d": "import round.a",
    }
    (tmp_path / "round").mkdir()
    for name, text in texts.items():
        (tmp_path / f"round/{name}.py").write_text(dedent(text) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    graph = grimp.build_graph("round", cache_dir=None)
    assert list(circles(graph)) == [["round.a", "round.b", "round.c"]]
