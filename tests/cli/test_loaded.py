"""What only a few brokers need is loaded by those: all others are smaller without it, and start sooner."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.process import environment

RECORDS = 20_000
FEW = (
    "typer",  # of the command line
    "rich",
    "confluent_kafka",
    "magnetar.admin.live",
    "argparse",  # with what it loads a megabyte
    "lzma",
    "random",
    "http.client",  # to ask an identity provider
    "magnetar.cluster.cluster_ownership",  # of one of several brokers
    "kazoo",
    "jpype",
    "re2",  # for patterns
    "jinja2",  # of the console
    "magnetar.console",
    "magnetar.kafka.coordinators.consumer.group",  # of groups that few have
    "magnetar.kafka.coordinators.consumer.members",
    "magnetar.kafka.coordinators.share.group",
    "magnetar.kafka.coordinators.share.members",
    "magnetar.kafka.coordinators.streams.group",
    "magnetar.kafka.coordinators.streams.members",
    "magnetar.wire.kafka.messages.consumer_group_heartbeat_request",
    "magnetar.kafka.transactions.coordinator",
    "magnetar.kafka.transactions.decider",
    "magnetar.kafka.transactions.metadata",
    "magnetar.coordination.transactions",
    "magnetar.records.compaction",  # of compacted topics
    "magnetar.ledger.compaction.passes",
    "magnetar.kafka.login",  # of brokers that ask who somebody is
    "magnetar.kafka.tenancy",
    "magnetar.kafka.authorization.topics",  # of brokers that refuse something
    "magnetar.auth.delegation_tokens",
    "magnetar.auth.tokens",
    "magnetar.auth.basic",
    "magnetar.auth.tls",
    "magnetar.kafka.sasl.scram",
    "magnetar.topics.client_quotas",
    "magnetar.kafka.quotas.managers",
    "magnetar.kafka.client_metrics.subscriptions",
    "magnetar.kafka.configs.entries",
    "magnetar.kafka.figures",
    "magnetar.kafka.coordinators.views",
    "magnetar.kafka.coordinators.consumer.actions",
    "magnetar.auth.policies",
    "magnetar.settings.kafka_names",
)
# Says what it has loaded when it ends.
_BROKER = """
import json, sys
from magnetar.cli.main import run
status = run(["standalone", "--data", *sys.argv[1:]])
print(json.dumps(sorted(sys.modules)))
sys.exit(status)
"""


class Broker:
    """A broker that tells what it has loaded."""

    def __init__(self, data: Path, *arguments: str) -> None:
        arguments = arguments or ("--kafka", "127.0.0.1:0")
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BROKER, data, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert self._process.stdout is not None
        ready = next(line for line in self._process.stdout if line.startswith("ready "))
        addresses = dict(word.split("=", 1) for word in ready.split()[1:])
        self.address, self.http = addresses["kafka"], addresses.get("http", "")

    def end(self) -> set[str]:
        """End it, and return the names of its modules."""
        self._process.terminate()
        said, _ = self._process.communicate()
        assert self._process.returncode == 0
        return set(json.loads(said.splitlines()[-1]))

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "data")
    yield broker
    broker.kill()


def test_a_broker_does_not_load_what_few_need(broker: Broker) -> None:
    loaded = broker.end()
    assert "magnetar.kafka.server" in loaded
    assert loaded & set(FEW) == set()


def test_nor_does_one_that_serves_what_most_clients_ask(broker: Broker) -> None:
    produce(broker.address)
    assert read(broker.address, group="g", assigned=False) == RECORDS
    assert read(broker.address, group="", assigned=True) == RECORDS
    loaded = broker.end()
    assert {"magnetar.kafka.handlers.fetch", "magnetar.kafka.handlers.join_group"} <= loaded
    assert loaded & set(FEW) == set()


def test_one_that_asks_who_clients_are_has_loaded_that_before_the_first_comes(tmp_path: Path) -> None:
    settings = ("listeners=SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=SCRAM-SHA-256")
    broker = Broker(tmp_path / "data", *(word for each in settings for word in ("--set", each)))
    try:
        assert {"magnetar.kafka.login", "magnetar.kafka.authorization"} <= broker.end()
    finally:
        broker.kill()


def test_what_was_not_loaded_is_when_it_is_asked_for(broker: Broker) -> None:
    produce(broker.address)
    assert read(broker.address, group="g", assigned=False, protocol="consumer") == RECORDS
    loaded = broker.end()
    assert "magnetar.kafka.coordinators.consumer.members" in loaded
    assert "magnetar.kafka.coordinators.share.group" not in loaded


def test_figures_are_told_without_what_takes_long_to_load(tmp_path: Path) -> None:
    """Everybody waited 15 ms for that of anyio that Starlette's streaming loads when first it is asked."""
    broker = Broker(tmp_path / "data", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0")
    try:
        with urlopen(f"http://{broker.http}/metrics", timeout=60) as answer:
            assert b"\nkafka_server_" in answer.read()
        loaded = broker.end()
        assert loaded & {"jinja2", "magnetar.console"} == set()
        assert "magnetar.kafka.figures" in loaded
        assert {name for name in loaded if name.startswith("anyio._backends.")} == set()
    finally:
        broker.kill()


def produce(address: str) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
    for number in range(RECORDS):
        producer.produce("orders", b"%d" % number, key=b"%d" % (number % 7))
        if number % 5_000 == 0:
            producer.poll(0)
    assert producer.flush() == 0


def read(address: str, *, group: str, assigned: bool, protocol: str = "classic") -> int:
    """Return how many records a consumer gets, until all have come."""
    settings = {"bootstrap.servers": address, "group.id": group or "none", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "group.protocol": protocol, "enable.auto.commit": bool(group)})
    if assigned:
        consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
    else:
        consumer.subscribe(["orders"])
    seen = 0
    while seen < RECORDS:
        for message in consumer.consume(RECORDS, timeout=1):
            assert message.error() is None, message.error()
            seen += 1
    consumer.close()
    return seen


def test_the_console_is_loaded_by_the_first_request_for_it(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0")
    try:
        with urlopen(f"http://{broker.http}/console", timeout=60) as answer:
            assert b"All is well" in answer.read()
        assert {"magnetar.console.overview", "jinja2"} <= broker.end()
    finally:
        broker.kill()
