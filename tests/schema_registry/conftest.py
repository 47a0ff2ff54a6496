"""A broker with Pulsar's protocol and a schema registry, and who asks that over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.process import BrokerProcess

ARGUMENTS = ("--pulsar", "127.0.0.1:0", "--schema-registry", "127.0.0.1:0")
SETTINGS = (
    "--set", "group.initial.rebalance.delay.ms=0",
    "--set", "kafkaApplyAvroSchemaOnDecode=true",
)  # fmt: skip


def registry_url(process: BrokerProcess) -> str:
    return f"http://{process.served['schema-registry'][0]}"


def start(data: Path, *more: str) -> BrokerProcess:
    return BrokerProcess(data, *ARGUMENTS, *SETTINGS, *more)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with start(tmp_path_factory.mktemp("registry") / "data") as process:
        yield process


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=registry_url(broker), timeout=30) as client:
        yield client
