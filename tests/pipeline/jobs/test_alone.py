"""One run and one replay of a project at a time; whoever is killed lets the next one in."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from magnetar.pipeline.jobs.alone import ProjectBusy, alone
from magnetar.pipeline.jobs.project import create
from magnetar.pipeline.jobs.replay import replay
from magnetar.pipeline.jobs.run import run
from magnetar.pipeline.jobs.spec import ProjectSpec, SpecError, load_spec

HOLD = """
import sys, time
from pathlib import Path
from magnetar.pipeline.jobs.alone import alone
with alone("run", Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def project(tmp_path: Path) -> ProjectSpec:
    create(tmp_path / "p", "t", tmp_path / "data", schema="id int", bootstrap="127.0.0.1:1")
    return load_spec(tmp_path / "p")


@contextmanager
def holder(lock: Path) -> Iterator[int]:
    """Hold the lock in another process; give its number, and kill it at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process.pid
        finally:
            process.kill()


def test_the_next_one_is_told_who_is_at_it_and_comes_in_when_he_is_killed(tmp_path: Path) -> None:
    lock = tmp_path / ".run.lock"
    with holder(lock) as first:
        told = rf"{tmp_path.name}: another run is under way \(process {first} since"
        with pytest.raises(ProjectBusy, match=told), alone("run", lock):
            raise AssertionError
    with alone("run", lock):
        pass


@pytest.mark.slow
def test_a_run_waits_for_nobody(project: ProjectSpec) -> None:
    with holder(project.directory / ".run.lock") as first:
        with pytest.raises(ProjectBusy):
            run(project)
        command = [Path(sys.executable).with_name("magnetar"), "pipeline", "run", project.directory, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert f"another run is under way (process {first} since" in json.loads(done.stderr)["error"]["message"]
    assert not (project.directory / "runs").exists()


def test_a_replay_waits_for_nobody_but_looking_is_free(project: ProjectSpec) -> None:
    with holder(project.directory / ".replay.lock"):
        with pytest.raises(ProjectBusy, match="another replay is under way"):
            replay(project)
        with pytest.raises(SpecError, match="there is no table t_dead_letters"):
            replay(project, dry_run=True)
