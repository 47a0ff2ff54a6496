"""A test that fails twice tells what failed each time; one that passes in the end tells what failed at first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
from tests import first_tries

def pytest_configure(config):
    config.pluginmanager.register(first_tries)
"""
TESTS = """
import itertools
import pytest

pytestmark = pytest.mark.flaky(reruns=1)
tries, made = itertools.count(), itertools.count()

def test_twice():
    pytest.fail(["the topic is lost", "the topic is there already"][next(tries)])

@pytest.fixture
def house():
    if next(made) == 0:
        pytest.fail("there is no house")

def test_once(house): pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_first_failures_are_told(tmp_path: Path, workers: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    root = str(Path(__file__).parents[1])
    environment["PYTHONPATH"] = os.pathsep.join([root, environment.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"-n{workers}", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "1 failed, 1 passed, 2 rerun" in run.stdout
    told = [
        "= FAILURES =",
        "Failed: the topic is there already",
        "at first, in call",
        "Failed: the topic is lost",
        "at first: test_it.py::test_once",
        "Failed: there is no house",
    ]
    places = [run.stdout.find(each) for each in told]
    assert -1 not in places, run.stdout
    assert places == sorted(places), run.stdout
    assert "at first: test_it.py::test_twice" not in run.stdout, "it is told once"
