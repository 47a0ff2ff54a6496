"""Each error message on the page of troubleshooting is printed by the client that is named there, for that cause."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.metadata import NewerFormat
from magnetar.testing import Broker
from tests.waiting import until

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
MAGNETAR = str(Path(sys.executable).with_name("magnetar"))
NOWHERE = "127.0.0.1:1"
QUIET = logging.getLogger("quiet")
QUIET.propagate = False

pytestmark = pytest.mark.slow


def rows(heading: str) -> list[tuple[str, str]]:
    """Return the first two columns of the table below a heading: the message, and the client that prints it."""
    part = PAGE.read_text().split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [(row[1], row[2]) for row in re.finditer(r"^\| `([^`]+)` \| `?([^|`]+?)`? \|", part, re.MULTILINE)]


@pytest.fixture(scope="module")
def brokers() -> Iterator[Callable[..., Broker]]:
    """Brokers by their settings, each started once."""
    started: dict[str, Broker] = {}
    with ExitStack() as stack:

        def broker(**settings: str) -> Broker:
            if repr(settings) not in started:
                names = {name.replace("_", "."): value for name, value in settings.items()}
                started[repr(settings)] = stack.enter_context(Broker(names))
            return started[repr(settings)]

        yield broker


def errors_of_producer(broker: str, message: str, topic: str = "t", size: int = 1, **options: Any) -> str:
    """Return what librdkafka reports until it has reported the message."""
    partition, errors = options.pop("partition", -1), list[str]()
    conf = {name.replace("_", "."): value for name, value in options.items()}
    producer = Producer(
        {
            "bootstrap.servers": broker,
            "error_cb": lambda error: errors.append(str(error)),
            "logger": QUIET,
            "message.timeout.ms": 3000 if message.startswith("Local: M") else 100_000,
            "message.max.bytes": 10 << 20,
            **conf,
        }
    )
    producer.produce(
        topic, b"x" * size, partition=partition, on_delivery=lambda error, _: errors.append(str(error))
    )

    def reported() -> bool:
        producer.poll(0.1)
        return any(message in error for error in errors)

    until(reported, 0)
    producer.purge()
    return "\n".join(errors)


def errors_of_admin(broker: str, topic: NewTopic) -> str:
    admin = AdminClient({"bootstrap.servers": broker, "logger": QUIET})
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([topic])[topic.topic].result()
    return str(caught.value)


def errors_of_consumer(broker: Broker) -> str:
    broker.produce("short", "only record")
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "error"},
        logger=QUIET,
    )
    consumer.assign([TopicPartition("short", 0, 99)])
    found: list[str] = []

    def reported() -> bool:
        message = consumer.poll(0.1)
        found.extend([str(message.error())] if message else [])
        return bool(found)

    until(reported, 0)
    consumer.close()
    return found[0]


def command(*words: str) -> str:
    done = subprocess.run([MAGNETAR, *words], capture_output=True, text=True)
    assert done.returncode == 1, done
    return done.stderr


def errors_of_pulsar(url: str, attempt: Callable[[pulsar.Client], object]) -> str:
    client = pulsar.Client(
        url, operation_timeout_seconds=3, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    with pytest.raises(pulsar.PulsarException) as caught:
        attempt(client)
    client.close()
    return str(caught.value)


def twice(client: pulsar.Client) -> None:
    client.subscribe("busy", "one")
    client.subscribe("busy", "one")


def causes(brokers: Callable[..., Broker]) -> dict[tuple[str, str], Callable[[], str]]:
    """Return how to cause each message, by the message and the client that prints it."""
    plain = brokers()
    kafka, web = plain.bootstrap_servers, plain.http_url.removeprefix("http://").rstrip("/")
    login = brokers(
        authentication_enabled="true",
        sasl_enabled_mechanisms="SCRAM-SHA-256",
        listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT",
    ).bootstrap_servers
    full = brokers(disk_min_free_bytes=str(1 << 60))
    wrong = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "a", "sasl.password": "b"}
    user = {"security.protocol": "SASL_PLAINTEXT", **wrong}

    def rd(address: str, message: str, **options: Any) -> tuple[tuple[str, str], Callable[[], str]]:
        return (message, "librdkafka"), partial(errors_of_producer, address, message, **options)

    def py(
        message: str, url: str, attempt: Callable[[pulsar.Client], object]
    ) -> tuple[Any, Callable[[], str]]:
        return (message, "Pulsar's Python client"), partial(errors_of_pulsar, url, attempt)

    three = NewTopic("three", 1, 3)
    odd = NewTopic("odd", 1, config={"nosuch.config": "1"})
    return dict(
        [
            rd(NOWHERE, "Connection refused"),
            (("no broker answers at", "magnetar"), partial(command, "topic", "list", "-b", NOWHERE)),
            rd("no-such-host.invalid:9092", "Failed to resolve"),
            rd(kafka, "connecting to a PLAINTEXT broker listener?", security_protocol="SSL"),
            (("does not speak Kafka's protocol", "magnetar"), partial(command, "topic", "list", "-b", web)),
            rd(web, "Invalid response size 1213486160"),
            rd(kafka, "broker's supported mechanisms:", **user),
            rd(login, "invalid credentials with SASL mechanism SCRAM-SHA-256", **user),
            (("closed the connection", "magnetar"), partial(command, "topic", "list", "-b", login)),
            rd(full.bootstrap_servers, "Local: Message timed out"),
            rd(kafka, "Broker: Message size too large", size=2_000_000),
            rd(kafka, "Local: Unknown partition", partition=77),
            rd(kafka, "Broker: Invalid topic", topic="no topic!"),
            (
                ("The target replication factor of 3 cannot be reached", "librdkafka"),
                partial(errors_of_admin, kafka, three),
            ),
            (("Unknown topic config name", "librdkafka"), partial(errors_of_admin, kafka, odd)),
            (("Broker: Offset out of range", "librdkafka"), partial(errors_of_consumer, plain)),
            py("ConsumerBusy", plain.pulsar_url, twice),
            py(
                "MessageTooBig",
                plain.pulsar_url,
                lambda client: client.create_producer("big").send(b"x" * 6_000_000),
            ),
            py("TopicNotFound", plain.pulsar_url, lambda client: client.create_producer("no/where/t")),
            py(
                "ProducerBlockedQuotaExceededError",
                full.pulsar_url,
                lambda client: client.create_producer("t"),
            ),
            py("TimeOut", f"pulsar://{kafka}", lambda client: client.create_producer("t")),
        ]
    )


def test_each_message_is_caused_and_no_other_is_listed(brokers: Callable[..., Broker]) -> None:
    assert set(rows("Error messages")) == set(causes(brokers))


@pytest.mark.parametrize(
    ("message", "client"), rows("Error messages"), ids=lambda value: value.replace(" ", "-")
)
def test_a_message_is_what_the_client_prints(
    brokers: Callable[..., Broker], message: str, client: str
) -> None:
    assert message in causes(brokers)[message, client]()


def test_a_broker_that_does_not_start_says_what_the_page_has(tmp_path: Path) -> None:
    used, taken, newer = (message for message, _ in rows("A broker that does not start"))
    with Broker(data=tmp_path / "data") as broker:
        assert used in command("standalone", "--data", str(tmp_path / "data"), "--kafka", "127.0.0.1:0")
        assert taken in command(
            "standalone", "--data", str(tmp_path / "b"), "--kafka", broker.bootstrap_servers
        )
    assert newer in str(NewerFormat("data", 99, "9.9.9"))
