"""A test that fails twice tells what failed each time, and its second try finds nothing that the first has left."""

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

@pytest.fixture(scope="session")
def broker():
    topics = []
    yield topics
    assert topics[-1] == "closed", "it ended before its client"

@pytest.fixture(scope="module")
def client(broker):
    yield broker
    broker.append("closed")

def test_before(client):
    client.append("before")

def test_on_a_broker_of_the_session(client, broker):
    assert client is broker
    assert "mine" not in broker
    broker.append("mine")
    assert broker == ["mine"], "as if others had been there"

def test_after(client):
    assert client == ["mine"]
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
        [
            *(sys.executable, "-m", "pytest", "-q", f"-n{workers}"),
            *("-p", "no:cacheprovider", "-p", "no:warnings", f"--basetemp={tmp_path / 'files'}"),
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "1 failed, 4 passed, 3 rerun" in run.stdout
    told = [
        "= FAILURES =",
        "Failed: the topic is there already",
        "at first, in call",
        "Failed: the topic is lost",
        "at first: test_it.py::test_once",
        "Failed: there is no house",
        "as if others had been there",
    ]
    places = [run.stdout.find(each) for each in told]
    assert -1 not in places, run.stdout
    assert places == sorted(places), run.stdout
    assert "at first: test_it.py::test_twice" not in run.stdout, "it is told once"
