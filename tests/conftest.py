"""What tests of a whole broker share: one process per session, and a way to start more."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.process import BrokerProcess

# At a desk every run tries other examples; a change is not to be held up by what it did not touch.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


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
