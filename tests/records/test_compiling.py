"""Machine code that is kept from one process to the next: it is of the sources that are there, and does not pile up."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import magnetar
from magnetar.records import kept_code

SOURCES = Path(magnetar.__file__).parent
INNER = """
from numba import types
from magnetar.records.compiling import compiled

@compiled(types.int64())
def leader_epoch():
    return {epoch}
"""
OUTER = """
from numba import types
from magnetar.records.compiling import compiled
from magnetar.records.constants import MORE
from magnetar.records.inner_kernel import leader_epoch

@compiled(types.int64())
def asked():
    return leader_epoch() + MORE
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A package with two kernels, of which one calls the other, cached beside them as in an installation."""
    records = tmp_path / "magnetar" / "records"
    records.mkdir(parents=True)
    shutil.copy(SOURCES / "__init__.py", tmp_path / "magnetar")
    for name in ("__init__.py", "compiling.py", "kept_code.py"):
        shutil.copy(SOURCES / "records" / name, records)
    (records / "constants.py").write_text("MORE = 0\n")
    (records / "inner_kernel.py").write_text(INNER.format(epoch=0))
    (records / "outer_kernel.py").write_text(OUTER)
    return records


def answer(copy: Path) -> tuple[int, int]:
    """Return what the outer kernel says in a new process, and how often it was compiled there."""
    code = (
        "from magnetar.records.outer_kernel import asked; stats = asked.stats; "
        "print(asked(), sum(stats.cache_misses.values()))"
    )
    environment = {
        "PYTHONPATH": str(copy.parents[1]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    value, compiled = done.stdout.split()
    return int(value), int(compiled)


def directories(copy: Path) -> list[Path]:
    return sorted((copy / "__pycache__").glob("kernels-*"))


def test_a_kernel_is_compiled_anew_when_what_it_imports_has_changed(copy: Path) -> None:
    assert answer(copy) == (0, 1)
    assert answer(copy) == (0, 0), "the second process loads what the first one compiled"
    (copy / "inner_kernel.py").write_text(INNER.format(epoch=-1))
    assert answer(copy) == (-1, 1)
    (copy / "constants.py").write_text("MORE = 10\n")
    assert answer(copy) == (9, 1)
    assert len(directories(copy)) == 3


def test_a_kernel_is_compiled_anew_when_a_constant_in_a_folder_below_has_changed(copy: Path) -> None:
    below = copy / "kernels"
    below.mkdir()
    (below / "__init__.py").touch()
    (below / "constants.py").write_text("MORE = 0\n")
    (copy / "outer_kernel.py").write_text(OUTER.replace("records.constants", "records.kernels.constants"))
    assert answer(copy) == (0, 1)
    (below / "constants.py").write_text("MORE = 10\n")
    assert answer(copy) == (10, 1)


def test_a_new_version_compiles_anew(copy: Path) -> None:
    assert answer(copy) == (0, 1)
    package = copy.parent / "__init__.py"
    package.write_text(package.read_text().replace(magnetar.__version__, "99.0"))
    assert answer(copy) == (0, 1)


def test_machine_code_of_earlier_sources_does_not_pile_up(copy: Path) -> None:
    """Those of four earlier sources stay, for processes that still run, and other installations' are not touched."""
    name = subprocess.run(
        [sys.executable, "-c", "from magnetar.records import kept_code as c; print(c._NAME)"],
        env={"PYTHONPATH": str(copy.parents[1])}, check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    shutil.rmtree(copy / "__pycache__")  # made by that
    (copy / "__pycache__" / "kernels-of-another-installation").mkdir(parents=True)
    for number in range(7):
        (copy / "__pycache__" / f"{name}{number}").mkdir()
    assert answer(copy) == (0, 1)
    left = {each.name for each in directories(copy)}
    assert {f"{name}{number}" for number in range(3, 7)} < left
    assert "kernels-of-another-installation" in left
    assert len(left) == kept_code.KEPT + 2


def test_kernels_import_only_what_the_directory_is_named_after() -> None:
    kernels = [each for each in SOURCES.rglob("*.py") if "records.compiling import" in each.read_text()]
    assert len(kernels) > 7
    for kernel in kernels:
        for node in ast.walk(ast.parse(kernel.read_text())):
            names = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [each.name for each in node.names]
                if isinstance(node, ast.Import)
                else []
            )
            for name in names:
                assert not name.startswith("magnetar") or name.startswith("magnetar.records"), (kernel, name)
