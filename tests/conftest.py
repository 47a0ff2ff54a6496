"""What tests of a whole broker share: one process per session, and a way to start more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests import first_tries, hangs, parsing, scheduling
from tests.class_archives import java_command
from tests.pipeline import class_archive
from tests.process import BrokerProcess

parsing.mend()

# At a desk every run tries other examples; a change is not to be held up by what it did not touch.
# Nothing is timed, not even how long it takes to think of examples: other workers keep the machine busy.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("desk", UNTIMED)
settings.register_profile("ci", UNTIMED, derandomize=True)
# A mutant is to be seen, not explained.
settings.register_profile("mutants", UNTIMED, derandomize=True, phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("MAGNETAR_PROFILE") or ("ci" if os.environ.get("CI") else "desk"))

# Spark's JVMs live for a test or two: optimizing what they run, and collecting garbage in parallel, would take twice
# the CPU time of the work itself; so would compiling each query to Java, and reading Delta's log in 50 parts.
# Processes that tests start inherit this.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
FEW_ROWS = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
FEW_FILES = "-Dspark.databricks.delta.snapshotPartitions=2"
os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED)
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{SHORT_LIVED} {FEW_ROWS} {FEW_FILES}")
# So do the JVMs within brokers of a cluster.
os.environ.setdefault("PULSAR_EXTRA_OPTS", "-XX:TieredStopAtLevel=1")

# Each process that imports numpy would begin a thread for each processor, which spins for matrices to multiply.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


NO_SECOND_TRY = ("crash", "simulation")
"""Folders of tests that look for losses by seeds: what is found once is a finding."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what happened into scenarios and tables")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(hangs)
    config.pluginmanager.register(first_tries)
    scheduling.give_way()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have other tests run beside those that start Sparks and clusters."""
    return scheduling.make_scheduler(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have workers begin with the modules that take longest, lest one of them be busy when all others are done.

    Where nobody watches, what kills processes and waits for other people's clients may fail once: decision 158.
    """
    if not has_java():
        without = pytest.mark.skip(
            reason="there is no Java here to run Spark on: apt-get install default-jre-headless"
        )
        for item in items:
            if item.get_closest_marker("spark"):
                item.add_marker(without)
    if os.environ.get("CI"):
        for item in items:
            marks = {mark.name for mark in item.iter_markers()}
            if marks & {"slow", "spark"} and item.path.parent.name not in NO_SECOND_TRY:
                item.add_marker(pytest.mark.flaky(reruns=1))
    if not hasattr(config, "workerinput"):
        return
    rank: dict[Path, int] = {}
    for item in items:
        rank[item.path] = min(rank.get(item.path, 3), _rank({mark.name for mark in item.iter_markers()}))
    items.sort(key=lambda item: rank[item.path])


def has_java() -> bool:
    """Tell whether Spark finds a JVM to start, where it looks for one."""
    return java_command() is not None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have Spark's classes before its first session."""
    if (
        any(item.get_closest_marker("spark") for item in session.items)
        and not session.config.option.collectonly
    ):
        for option in class_archive.options():
            os.environ["SPARK_SUBMIT_OPTS"] += f" {option}"


def _rank(marks: set[str]) -> int:
    if "timeout" in marks:  # those that need more than the usual limit
        return 0
    return 1 if "spark" in marks else 2 if "slow" in marks else 3


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that all tests of the session use side by side: name your topics apart, and leave it running."""
    data = tmp_path_factory.mktemp("broker") / "data"
    with BrokerProcess(data, "--set", "group.initial.rebalance.delay.ms=0") as process:
        yield process


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Start brokers of the test's own, each as ``BrokerProcess`` takes it; they end with the test."""
    started: list[BrokerProcess] = []

    def start(data: Path = tmp_path / "data", *arguments: str, **options: object) -> BrokerProcess:
        process = BrokerProcess(data, *arguments, **options)  # type: ignore[arg-type]
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
