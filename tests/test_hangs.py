"""What waits in C for good ends with its process, and the run goes on with another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
import pytest
from tests import hangs, scheduling

def pytest_configure(config):
    config.pluginmanager.register(hangs)

@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return scheduling.make_scheduler(config, log)
"""
HANGS = """
import ctypes
from pathlib import Path
import pytest

def hang_once():
    been = Path(__file__).with_suffix(".been")
    if been.exists():
        return
    been.touch()
    library, lock = ctypes.PyDLL(None), ctypes.create_string_buffer(64)  # Python's own lock stays with it
    library.pthread_mutex_lock(lock)
    library.pthread_mutex_lock(lock)

@pytest.fixture
def cleaned():
    yield
    hang_once()

def test_before(): pass

@pytest.mark.flaky(reruns=1)
@pytest.mark.timeout(1)
def test_it(%s):
    %s
"""
AFTER = """
def test_after(): pass
"""
WHERE = {
    "test": ("", "hang_once()"),
    "clean_up": ("cleaned", "pass"),
    "clean_up_after_a_failure": ("cleaned", "assert Path(__file__).with_suffix('.been').exists()"),
}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("after", ["", AFTER], ids=["the_last", "others_follow"])
@pytest.mark.parametrize("where", WHERE)
def test_a_run_goes_on_after_a_test_that_hangs(tmp_path: Path, where: str, after: str, workers: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 300\n")
    (tmp_path / "test_hang.py").write_text(HANGS % WHERE[where] + after)
    (tmp_path / "test_other.py").write_text("def test_other(): pass\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {
        "MAGNETAR_ALLOWED_MORE": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), environment.get("PYTHONPATH", "")]),
    }
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            f"-n{workers}",
            "--dist",
            "loadscope",
            "-p",
            "no:cacheprovider",
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{4 if after else 3} passed" in run.stdout
    assert "rerun" in run.stdout
    assert "hang_once" in run.stderr, "the stacks of what hangs are told"
