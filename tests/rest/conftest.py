"""A broker with all three protocols, and who asks it over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.process import BrokerProcess


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("rest") / "data"
    arguments = ("--pulsar", "127.0.0.1:0", "--http", "127.0.0.1:0")
    with BrokerProcess(data, *arguments, "--set", "group.initial.rebalance.delay.ms=0") as process:
        yield process


@pytest.fixture
def http(house: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{house.served['http'][0]}", timeout=30) as client:
        yield client
