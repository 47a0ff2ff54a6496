"""No file needs, by way of others, the package that it lies in.

``lint-imports`` sees every other circle of files and folders (see `pyproject.toml`); its contract looks at what stands
beside each other, and never at a package's own ``__init__``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOTS = ("magnetar", "pyspark_magnetar", "pyspark_magnetar_table")


def circles(graph: grimp.ImportGraph) -> Iterator[tuple[str, ...]]:
    """Yield the ways from a package to a file in it that imports the package."""
    for module in sorted(graph.modules):
        for package in graph.find_modules_directly_imported_by(module):
            if module.startswith(f"{package}."):
                chain = graph.find_shortest_chain(package, module)
                if chain is not None:
                    yield chain


def test_no_file_needs_the_package_it_lies_in() -> None:
    graph = grimp.build_graph(*ROOTS, cache_dir=None)
    assert len(graph.modules) > 400
    assert list(circles(graph)) == []


@pytest.mark.parametrize("guard", ["", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "])
def test_one_that_does_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: str) -> None:
    texts = {
        "__init__": "import round.a",
        "a": "import round.b",
        "b": f"{guard}import round",
        "c": "import round",
    }
    (tmp_path / "round").mkdir()
    for name, text in texts.items():
        (tmp_path / f"round/{name}.py").write_text(text + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    graph = grimp.build_graph("round", cache_dir=None)
    assert list(circles(graph)) == [("round", "round.a", "round.b")]
