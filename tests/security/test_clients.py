"""Stock clients on each kind of listener: they write, read and commit, and learn what they may not."""

from __future__ import annotations

import json
import time
from typing import Any

import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.errors import KafkaError as KafkaPythonError

from magnetar.admin.client import ask
from tests.security.conftest import LISTENERS, Secured
from tests.security.signing import expiring, token

BIG = bytes(range(256)) * 2000
VALUES = [b"%d" % index * 100 for index in range(500)] + [BIG, b"", BIG]


def create(configuration: dict[str, str], topic: str) -> None:
    admin = AdminClient(configuration)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(20)


def read(configuration: dict[str, str], topic: str, count: int, group: str) -> list[bytes]:
    consumer = Consumer({**configuration, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    try:
        while len(found) < count:
            for message in consumer.consume(500, 0.5):
                if message.error():
                    raise KafkaException(message.error())
                found.append(message.value())
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("listener", LISTENERS)
def test_librdkafka_writes_and_reads(secured: Secured, listener: str) -> None:
    topic = f"rdkafka-{listener.lower()}"
    configuration = secured.client(listener)
    create(configuration, topic)
    failures: list[Any] = []
    producer = Producer({**configuration, "linger.ms": 5, "enable.idempotence": True})
    for value in VALUES:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(30) == 0
    assert failures == []
    assert read(configuration, topic, len(VALUES), f"group-{listener}") == VALUES


@pytest.mark.parametrize("listener", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_kafka_python_writes_and_reads(secured: Secured, listener: str) -> None:
    topic = f"kafka-python-{listener.lower()}"
    given: dict[str, Any] = {"bootstrap_servers": secured.address(listener), "security_protocol": listener}
    if listener.endswith("SSL"):
        given["ssl_context"] = secured.trusting(secured.authority.sign("root") if listener == "SSL" else None)
        given["ssl_check_hostname"] = False
    if listener.startswith("SASL"):
        given |= {
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "public/default",
            "sasl_plain_password": f"token:{token('root')}",
        }
    producer = kafka.KafkaProducer(**given)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(30)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, **given, group_id=f"group-{listener}", auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    found = []
    for message in consumer:
        found.append(message.value)
        if len(found) == len(VALUES):
            break
    consumer.commit()
    consumer.close()
    assert found == VALUES


def test_librdkafka_learns_that_its_token_is_bad(secured: Secured) -> None:
    said: list[KafkaError] = []
    bad = secured.client("SASL_SSL") | {"sasl.password": f"token:{expiring(-60)}"}
    producer = Producer({**bad, "error_cb": said.append})
    deadline = time.monotonic() + 20
    while not said and time.monotonic() < deadline:
        producer.poll(0.1)
    assert said[0].code() == KafkaError._AUTHENTICATION
    assert "expired" in said[0].str()


def test_kafka_python_learns_that_its_token_is_bad(secured: Secured) -> None:
    with pytest.raises(KafkaPythonError):
        kafka.KafkaProducer(
            bootstrap_servers=secured.address("SASL_PLAINTEXT"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="public",
            sasl_plain_password=f"token:{token('root')}x",
            bootstrap_timeout_ms=1500,
        )


def test_librdkafka_learns_what_it_was_not_granted(secured: Secured) -> None:
    topic = "granted-in-part"
    create(secured.client("SASL_PLAINTEXT"), topic)
    writer, reader = (secured.client("SASL_PLAINTEXT", role) for role in ("writer", "reader"))
    ask(secured.process.data, "grant", target=topic, role="writer", actions=["produce"])
    ask(secured.process.data, "grant", target=topic, role="reader", actions=["consume"])

    def send(configuration: dict[str, str]) -> KafkaError | None:
        outcome: list[KafkaError | None] = []
        producer = Producer(configuration)
        producer.produce(topic, b"value", on_delivery=lambda error, _: outcome.append(error))
        assert producer.flush(30) == 0
        return outcome[0]

    assert send(writer) is None
    refusal = send(reader)
    assert refusal is not None
    assert refusal.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert read(reader, topic, 1, "readers") == [b"value"]
    with pytest.raises(KafkaException) as refused:
        read(writer, topic, 1, "writers")
    assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException) as refused:
        create(reader, "not-mine")
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_no_token_comes_to_lie_in_the_log(secured: Secured) -> None:
    text = secured.process.log.read_text(errors="replace")
    header = token("x").split(".")[0]
    assert header not in text
    assert json.dumps("tokenSecretKey") not in text
