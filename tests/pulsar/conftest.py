"""One broker for Pulsar's clients, and stock clients to talk to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pulsar
import pytest

from tests.process import BrokerProcess

PULSAR = ("--pulsar", "127.0.0.1:0")


@contextmanager
def serving(home: Path, *settings: str) -> Iterator[BrokerProcess]:
    """Start a broker for Pulsar's clients and the admin REST, with these settings (``name=value``).

    A module whose tests need one of their own has its fixture ``pulsar_broker`` give it: ``client`` then talks to that.
    """
    given = [word for setting in settings for word in ("--set", setting)]
    with BrokerProcess(home / "data", *PULSAR, "--http", "127.0.0.1:0", *given) as process:
        yield process


@pytest.fixture(scope="session")
def pulsar_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that all these tests use side by side, with deduplication on: name your topics apart."""
    settings = ("--set", "brokerDeduplicationEnabled=true", "--set", "group.initial.rebalance.delay.ms=0")
    with BrokerProcess(tmp_path_factory.mktemp("pulsar") / "data", *PULSAR, *settings) as process:
        yield process


@pytest.fixture
def client(pulsar_broker: BrokerProcess) -> Iterator[pulsar.Client]:
    made = connect(pulsar_broker)
    yield made
    made.close()


def connect(broker: BrokerProcess, **options: object) -> pulsar.Client:
    # Its Python logger calls back from threads of C++, which now and then crashes the process at the end.
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(broker.pulsar_url, logger=quiet, operation_timeout_seconds=15, **options)


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/t-{uuid4().hex[:12]}"
