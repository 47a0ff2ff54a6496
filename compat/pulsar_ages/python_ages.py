"""Asks one version of Pulsar's Python client, which is the C++ one, everything: python_ages.py SERVICE_URL PREFIX

One line of JSON for each step: step, ok, detail. A step that the version has nothing for says ``lacks``. It runs in an
environment with nothing but that version, so it imports nothing of ours; the oldest versions need Python 3.9.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pulsar
from pulsar import CompressionType, ConsumerType, InitialPosition
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String

BATCHED, SINGLE, KEYS = 100, 10, 5
WAIT_MS = 30_000
SHORTLY_MS = 500
SECONDS_MS = 5_000
CODECS = {
    "none": CompressionType.NONE,
    "lz4": CompressionType.LZ4,
    "zlib": CompressionType.ZLib,
    "zstd": CompressionType.ZSTD,
    "snappy": CompressionType.SNAPPY,
}
EARLIEST = InitialPosition.Earliest


class Lacks(Exception):
    """This version has no such thing."""


class Thing(Record):
    """What schemas are of."""

    name = String()
    size = Integer()


class Client:
    """The client, and topics of its own."""

    def __init__(self, url: str, prefix: str) -> None:
        options: dict[str, Any] = {"operation_timeout_seconds": 30}
        if hasattr(pulsar, "ConsoleLogger"):  # came with 2.10
            options["logger"] = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        self.pulsar = pulsar.Client(url, **options)
        self.prefix = prefix

    def topic(self, name: str) -> str:
        return f"persistent://public/default/{self.prefix}-{name}"

    def write(self, name: str, count: int = 30, **options: Any) -> str:
        """Write numbers as text, keys in turn; give the topic."""
        producer = self.pulsar.create_producer(self.topic(name), **options)
        for number in range(count):
            producer.send_async(b"%d" % number, None, partition_key=f"k{number % KEYS}")
        producer.flush()
        producer.close()
        return self.topic(name)

    def subscribe(
        self, topic: str, kind: Any = ConsumerType.Exclusive, name: str = "s", **options: Any
    ) -> Any:
        return self.pulsar.subscribe(topic, name, kind, initial_position=EARLIEST, **options)


def taken(consumer: Any, count: int) -> list[bytes]:
    """Receive and acknowledge so many."""
    found = []
    for _ in range(count):
        message = consumer.receive(WAIT_MS)
        consumer.acknowledge(message)
        found.append(message.data())
    return found


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def nothing_more(consumer: Any) -> bool:
    try:
        consumer.receive(SHORTLY_MS)
    except pulsar.Timeout:
        return True
    return False


def value_of(number: int) -> bytes:
    """Clients of today leave what is small as it is, so what goes alone is large."""
    return b"%d" % number + b"." * (200 if number < BATCHED else 5000)


def produce(codec: str) -> Callable[[Client], None]:
    def step(client: Client) -> None:
        topic = client.topic(f"produce_{codec}")
        common = {"compression_type": CODECS[codec], "producer_name": f"ages-{codec}"}
        for batching, first, count in ((True, 0, BATCHED), (False, BATCHED, SINGLE)):
            producer = client.pulsar.create_producer(
                topic, batching_enabled=batching, batching_max_publish_delay_ms=1000,
                initial_sequence_id=first - 1 if first else None, **common,
            )  # fmt: skip
            for number in range(first, first + count):
                producer.send_async(
                    value_of(number), None, partition_key=f"k{number % KEYS}",
                    properties={"number": str(number)}, event_timestamp=1000 + number,
                )  # fmt: skip
            producer.flush()
            producer.close()
        consumer = client.subscribe(topic)
        for number in range(BATCHED + SINGLE):
            message = consumer.receive(WAIT_MS)
            assert message.data() == value_of(number), (number, message.data())
            assert message.partition_key() == f"k{number % KEYS}"
            assert message.properties() == {"number": str(number)}
            assert message.event_timestamp() == 1000 + number
            consumer.acknowledge(message)
        assert nothing_more(consumer)
        consumer.close()

    return step


def exclusive(client: Client) -> None:
    topic = client.write("exclusive")
    consumer = client.subscribe(topic)
    try:
        client.subscribe(topic)
        raise AssertionError("two at once")
    except pulsar.ConsumerBusy:
        pass
    assert taken(consumer, 30) == numbers(0, 30)


def failover(client: Client) -> None:
    topic = client.write("failover")
    first, second = (client.subscribe(topic, ConsumerType.Failover, consumer_name=each) for each in "ab")
    try:
        message = first.receive(SECONDS_MS)
    except pulsar.Timeout:  # which of them is the active one is the broker's to say
        first, second = second, first
        message = first.receive(WAIT_MS)
    first.acknowledge(message)
    assert [message.data(), *taken(first, 9)] == numbers(0, 10)
    first.close()
    found = []
    while len(found) < 20:
        message = second.receive(WAIT_MS)
        second.acknowledge(message)
        if int(message.data()) >= 10:  # a batch that was acknowledged in part may come whole again
            found.append(message.data())
    assert found == numbers(10, 30)


def shared(client: Client) -> None:
    topic = client.topic("shared")
    consumers = [client.subscribe(topic, ConsumerType.Shared, receiver_queue_size=5) for _ in range(3)]
    client.write("shared", batching_enabled=False)
    found: list[list[bytes]] = [[], [], []]
    while sum(map(len, found)) < 30:
        for number, consumer in enumerate(consumers):
            try:
                message = consumer.receive(100)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            found[number].append(message.data())
    assert sorted((each for those in found for each in those), key=int) == numbers(0, 30)
    assert all(found), [len(each) for each in found]


def key_shared(client: Client) -> None:
    topic = client.topic("key_shared")
    consumers = [client.subscribe(topic, ConsumerType.KeyShared, receiver_queue_size=5) for _ in range(3)]
    client.write("key_shared", 60, batching_type=pulsar.BatchingType.KeyBased)
    where: dict[str, set[int]] = {}
    order: dict[str, list[int]] = {}
    while sum(map(len, order.values())) < 60:
        for number, consumer in enumerate(consumers):
            try:
                message = consumer.receive(100)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            where.setdefault(message.partition_key(), set()).add(number)
            order.setdefault(message.partition_key(), []).append(int(message.data()))
    assert all(len(each) == 1 for each in where.values()), where
    assert order == {f"k{key}": list(range(key, 60, KEYS)) for key in range(KEYS)}, order


def reader(client: Client) -> None:
    topic = client.write("reader")
    found, there = [], client.pulsar.create_reader(topic, pulsar.MessageId.earliest)
    while there.has_message_available():
        found.append(there.read_next(WAIT_MS).data())
    assert found == numbers(0, 30), found


def seek_id(client: Client) -> None:
    consumer = client.subscribe(client.write("seek_id", batching_enabled=False))
    messages = [consumer.receive(WAIT_MS) for _ in range(30)]
    consumer.seek(messages[10].message_id())
    assert consumer.receive(WAIT_MS).data() in (b"10", b"11")


def seek_time(client: Client) -> None:
    topic = client.write("seek_time")
    consumer = client.subscribe(topic)
    assert taken(consumer, 30) == numbers(0, 30)
    consumer.close()  # up to 2.10 acknowledgements that are held back are sent after a seek, for what it brings again
    consumer = client.subscribe(topic)
    consumer.seek(int(time.time() * 1000) - 3_600_000)
    assert consumer.receive(WAIT_MS).data() == b"0"


def cumulative(client: Client) -> None:
    topic = client.write("cumulative", batching_enabled=False)
    consumer = client.subscribe(topic)
    messages = [consumer.receive(WAIT_MS) for _ in range(30)]
    consumer.acknowledge_cumulative(messages[19])
    consumer.close()
    assert taken(client.subscribe(topic), 10) == numbers(20, 30)


def refused(client: Client) -> None:
    topic = client.write("refused", 3, batching_enabled=False)
    consumer = client.subscribe(topic, ConsumerType.Shared, negative_ack_redelivery_delay_ms=200)
    first = consumer.receive(WAIT_MS)
    consumer.negative_acknowledge(first)
    again = {consumer.receive(WAIT_MS).data() for _ in range(3)}
    assert first.data() in again, again


def delayed(client: Client) -> None:
    topic = client.topic("delayed")
    consumer = client.subscribe(topic, ConsumerType.Shared)
    producer = client.pulsar.create_producer(topic)
    sent = time.monotonic()
    producer.send(b"later", deliver_at=int(time.time() * 1000) + 2000)
    assert consumer.receive(WAIT_MS).data() == b"later"
    assert time.monotonic() - sent > 1.5


def avro(client: Client) -> None:
    _schema(client, "avro", AvroSchema(Thing))


def as_json(client: Client) -> None:
    _schema(client, "json", JsonSchema(Thing))


def _schema(client: Client, name: str, schema: Any) -> None:
    topic = client.topic(name)
    consumer = client.subscribe(topic, schema=schema)
    client.pulsar.create_producer(topic, schema=schema).send(Thing(name="a", size=7))
    found = consumer.receive(WAIT_MS).value()
    assert (found.name, found.size) == ("a", 7)


def several_topics(client: Client) -> None:
    topics = [client.write(f"several-{number}", 10) for number in range(3)]
    consumer = client.pulsar.subscribe(topics, "s", initial_position=EARLIEST)
    assert sorted(taken(consumer, 30), key=int) == sorted(numbers(0, 10) * 3, key=int)


def dead_letters(client: Client) -> None:
    if not hasattr(pulsar, "ConsumerDeadLetterPolicy"):
        raise Lacks("no dead letter policy")
    topic = client.topic("dead")
    letters = client.subscribe(client.topic("dead-letters"), ConsumerType.Shared)
    policy = pulsar.ConsumerDeadLetterPolicy(2, dead_letter_topic=client.topic("dead-letters"))
    consumer = client.subscribe(
        topic, ConsumerType.Shared, dead_letter_policy=policy, negative_ack_redelivery_delay_ms=100
    )
    client.pulsar.create_producer(topic).send(b"bad")
    for _ in range(3):
        consumer.negative_acknowledge(consumer.receive(WAIT_MS))
    assert letters.receive(WAIT_MS).data() == b"bad"


def table_view(client: Client) -> None:
    if not hasattr(client.pulsar, "create_table_view"):
        raise Lacks("no TableView")
    view = client.pulsar.create_table_view(client.write("table"))
    assert {f"k{key}": view.get(f"k{key}") for key in range(KEYS)} == {
        f"k{key}": b"%d" % (30 - KEYS + key) for key in range(KEYS)
    }


def exclusive_producer(client: Client) -> None:
    if not hasattr(pulsar, "ProducerAccessMode"):
        raise Lacks("no access modes")
    mode = pulsar.ProducerAccessMode.Exclusive
    topic = client.topic("alone")
    client.pulsar.create_producer(topic, access_mode=mode)
    try:
        client.pulsar.create_producer(topic, access_mode=mode)
    except pulsar.PulsarException:
        return
    raise AssertionError("two at once")


def chunks(client: Client) -> None:
    if "chunking_enabled" not in inspect.signature(pulsar.Client.create_producer).parameters:
        raise Lacks("no chunks")
    topic = client.topic("chunks")
    consumer = client.subscribe(topic)
    large = bytes(range(256)) * (48 << 10)  # 12 MB
    client.pulsar.create_producer(topic, batching_enabled=False, chunking_enabled=True).send(large)
    assert consumer.receive(WAIT_MS).data() == large


STEPS: dict[str, Callable[[Client], None]] = {
    **{f"produce_{codec}": produce(codec) for codec in CODECS},
    "exclusive": exclusive, "shared": shared, "failover": failover, "key_shared": key_shared, "reader": reader,
    "seek_id": seek_id, "seek_time": seek_time, "cumulative": cumulative, "negative_ack": refused,
    "delayed": delayed, "avro": avro, "json": as_json, "several_topics": several_topics,
    "dead_letters": dead_letters, "table_view": table_view, "exclusive_producer": exclusive_producer, "chunks": chunks,
}  # fmt: skip


def outcomes(url: str, prefix: str) -> Iterator[dict[str, object]]:
    client = Client(url, prefix)
    for name, step in STEPS.items():
        try:
            step(client)
            yield {"step": name, "ok": True, "detail": ""}
        except Lacks as why:
            yield {"step": name, "ok": True, "lacks": True, "detail": str(why)}
        except Exception as error:  # whatever a version does, the others are asked
            yield {"step": name, "ok": False, "detail": f"{type(error).__name__}: {error}"[:300]}
    client.pulsar.close()


if __name__ == "__main__":
    for each in outcomes(*sys.argv[1:3]):
        print(json.dumps(each), flush=True)
