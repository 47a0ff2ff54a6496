"""A disk that failed for good is told in the log once, by health checks and by the exit status; nothing is lost."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.cli.standalone import STORAGE_FAILED
from tests.crash import faults
from tests.crash.faults import FOR_EVER, Operation, Plan, Rule
from tests.process import BrokerProcess

SECONDS = 30
EIO = faults.ERRORS["EIO"]
JOURNAL = Rule(Operation.AIO | Operation.WRITE, EIO, ".journal")


@pytest.fixture
def house() -> Iterator[Path]:
    if faults.compiler() is None:
        pytest.skip("no C compiler to build the disk that fails")
    with faults.quick_folder() as folder:
        yield folder


@pytest.fixture
def plan(house: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Of the disk beneath brokers that are started after it."""
    made = Plan(house / "plan", house / "data")
    for name, value in made.environment(faults.build(house)).items():
        monkeypatch.setenv(name, value)
    return made


def produce(address: str, value: bytes) -> KafkaError | None:
    answers: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": address, "retries": 0, "acks": "all", "log_level": 0})
    producer.produce("t", value=value, partition=0, on_delivery=lambda error, _: answers.append(error))
    producer.flush(SECONDS)
    return answers[0]


def read(address: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader"})
    consumer.assign([TopicPartition("t", 0, 0)])
    values = [message.value() for message in consumer.consume(count, SECONDS)]
    consumer.close()
    return values


def health(broker: BrokerProcess, name: str = "health") -> tuple[int, str]:
    url = f"http://{broker.served['http'][0]}/admin/v2/brokers/{name}"
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def told_once(broker: BrokerProcess) -> bool:
    return sum("Nothing more is made durable" in line for line in broker.log_lines()) == 1


@pytest.mark.slow
def test_the_broker_ends_with_a_status_of_its_own_and_what_was_acknowledged_is_there(
    house: Path, plan: Plan, start_broker: Callable[..., BrokerProcess]
) -> None:
    broker = start_broker(house / "data", "--set", "num.partitions=1")
    assert produce(broker.address, b"first") is None
    plan.arm([JOURNAL])
    assert produce(broker.address, b"second") is not None
    assert broker.wait() == STORAGE_FAILED
    assert told_once(broker)
    assert not any("Traceback" in line for line in broker.log_lines())
    plan.disarm()
    again = start_broker(house / "data")
    assert produce(again.address, b"third") is None
    values = read(again.address, 2)
    assert values[0] == b"first"
    assert again.end() == 0


@pytest.mark.slow
def test_where_it_shall_go_on_it_serves_reads_and_says_that_it_is_not_well(
    house: Path, plan: Plan, start_broker: Callable[..., BrokerProcess]
) -> None:
    broker = start_broker(
        house / "data",
        "--http",
        "127.0.0.1:0",
        "--set",
        "num.partitions=1",
        "--set",
        "storage.failure.halt=false",
    )
    assert produce(broker.address, b"first") is None
    assert health(broker) == (200, "ok")
    plan.arm([JOURNAL])
    assert produce(broker.address, b"second") is not None
    plan.disarm()
    for name in ("health", "ready"):
        status, words = health(broker, name)
        assert status == 503
        assert "only a restart can tell" in words
    assert read(broker.address, 1) == [b"first"]
    assert produce(broker.address, b"third") is not None
    assert told_once(broker)
    assert broker.end() == STORAGE_FAILED


@pytest.mark.slow
def test_metadata_that_cannot_be_written_is_told_until_it_can(
    house: Path, plan: Plan, start_broker: Callable[..., BrokerProcess]
) -> None:
    broker = start_broker(house / "data", "--http", "127.0.0.1:0")
    admin = AdminClient({"bootstrap.servers": broker.address})
    plan.arm([Rule(Operation.WRITE, EIO, "metadata.sqlite-wal", times=FOR_EVER)])
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic("refused", 1)])["refused"].result(SECONDS)
    status, words = health(broker)
    assert status == 503
    assert "metadata" in words
    plan.disarm()
    assert health(broker) == (200, "ok")
    admin.create_topics([NewTopic("made", 1)])["made"].result(SECONDS)
    assert broker.end() == 0
    again = start_broker(house / "data")
    assert set(AdminClient({"bootstrap.servers": again.address}).list_topics(timeout=SECONDS).topics) == {
        "made"
    }
