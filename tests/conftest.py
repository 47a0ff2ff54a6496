"""What tests of a whole broker share: one process per session, and a way to start more."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings, strategies

from tests.process import BrokerProcess

# At a desk every run tries other examples; a change is not to be held up by what it did not touch.
# Nothing is timed, not even how long it takes to think of examples: other workers keep the machine busy.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("desk", UNTIMED)
settings.register_profile("ci", UNTIMED, derandomize=True)
# A mutant is to be seen, not explained.
settings.register_profile("mutants", UNTIMED, derandomize=True, phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("MAGNETAR_PROFILE") or ("ci" if os.environ.get("CI") else "desk"))

# Spark's JVMs live for a test or two: optimizing what they run, and collecting garbage in parallel, would take twice
# the CPU time of the work itself. Processes that tests start inherit this.
for opts in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
    os.environ.setdefault(opts, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


NO_SECOND_TRY = ("crash", "simulation")
"""Folders of tests that look for losses by seeds: what is found once is a finding."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what happened into scenarios and tables")


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
    return (
        Path(os.environ.get("JAVA_HOME", "/nowhere"), "bin", "java").exists()
        or shutil.which("java") is not None
    )


def pytest_collection_finish() -> None:
    """Have all of Hypothesis before a thread loads machine code.

    It imports a part of itself at the first ``builds``, which pytest parses, and Python before 3.11.5 cannot parse in
    two threads at once: "AST constructor recursion depth mismatch".
    """
    strategies.builds(int).validate()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what failed before it passed as one sees any other failure."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.write_sep("_", f"at first: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
        for title, content in report.sections:
            terminalreporter.write_sep("-", title)
            terminalreporter.write_line(content)


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
