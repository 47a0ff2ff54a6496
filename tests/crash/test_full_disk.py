"""A disk without room: producers hear KAFKA_STORAGE_ERROR, readers go on, and writing resumes when there is room."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.process import BrokerDidNotStart, BrokerProcess

DISK_MB = 96
VALUE = b"v" * 100_000
SECONDS = 30


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, in memory, that is soon full."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a small file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def produce_one(producer: Producer, value: bytes) -> KafkaError | None:
    answers: list[KafkaError | None] = []
    producer.produce("t", value=value, partition=0, on_delivery=lambda error, _: answers.append(error))
    producer.flush(SECONDS)
    return answers[0]


def read_all(address: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", 0, 0)])
    values: list[bytes] = []
    while len(values) < count and (found := consumer.consume(count, SECONDS)):
        values += [message.value() or b"" for message in found]
    consumer.close()
    return values


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["os", "always"])
def test_a_full_disk_stops_writers_only(
    small_disk: Path, start_broker: Callable[..., BrokerProcess], flush: str
) -> None:
    broker = start_broker(small_disk / "data", "--set", f"flush={flush}", "--set", "num.partitions=1")
    producer = Producer({"bootstrap.servers": broker.address, "retries": 0, "acks": "all"})
    assert produce_one(producer, b"first") is None
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes((DISK_MB - 50) << 20))
    kept = 1
    error = None
    while error is None and kept < 10 * DISK_MB:
        error = produce_one(producer, VALUE)
        kept += error is None
    assert error is not None
    assert error.code() == 56, error  # KAFKA_STORAGE_ERROR
    values = read_all(broker.address, kept)
    assert values == [b"first", *[VALUE] * (kept - 1)]
    ballast.unlink()
    until = time.monotonic() + SECONDS
    while produce_one(producer, b"room again") is not None:  # the broker looks at the room now and then
        assert time.monotonic() < until
        time.sleep(0.2)
    assert read_all(broker.address, kept + 1)[-1] == b"room again"
    metadata = AdminClient({"bootstrap.servers": broker.address}).list_topics("t", SECONDS)
    assert len(metadata.topics["t"].partitions) == 1
    assert broker.end() == 0
    again = start_broker(small_disk / "data", "--set", f"flush={flush}")
    assert read_all(again.address, kept + 1) == [*values, b"room again"]


def test_a_disk_without_any_room_is_said_at_the_start(small_disk: Path) -> None:
    with contextlib.suppress(OSError), (small_disk / "ballast").open("wb", 0) as ballast:
        while ballast.write(bytes(1 << 20)):
            pass
    with pytest.raises(BrokerDidNotStart, match=r"(?i)full|no space|no room"):
        BrokerProcess(small_disk)
