"""Stock Pulsar and Kafka clients on one topic: what either wrote both read, with the offsets that its ids stand for."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, MessageMetadata, SingleMessageMetadata
from tests.end_to_end.clients import Seen, consume_confluent, produce_confluent
from tests.formats.test_kafka_clients import FORMATS, create
from tests.process import BrokerProcess
from tests.pulsar import raw
from tests.pulsar.raw import Raw

CODECS = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")
SECONDS = 30
QUIET = logging.getLogger("pulsar.quiet")
QUIET.setLevel(logging.CRITICAL)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that speaks both protocols."""
    data = tmp_path_factory.mktemp("both") / "data"
    with BrokerProcess(
        data, "--pulsar", "127.0.0.1:0", "--set", "group.initial.rebalance.delay.ms=0"
    ) as process:
        yield process


@pytest.fixture(scope="module")
def client(both: BrokerProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(both.pulsar_url, logger=QUIET, operation_timeout_seconds=SECONDS)
    yield made
    made.close()


def full(topic: str) -> str:
    return f"persistent://public/default/{topic}-partition-0"


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("batching", [False, True])
def test_kafka_reads_what_a_pulsar_client_wrote(
    both: BrokerProcess, client: pulsar.Client, codec: str, batching: bool
) -> None:
    topic = f"written-{codec}-{batching}"
    create(both, topic)
    producer = client.create_producer(
        full(topic),
        compression_type=getattr(pulsar.CompressionType, codec),
        batching_enabled=batching,
        batching_max_publish_delay_ms=50,
    )
    wanted, ids = [], []
    for number in range(40):
        settings: dict[str, Any] = {"properties": {"n": str(number), "ä": "ö"}} if number % 3 else {}
        if number % 2:
            settings["partition_key"] = f"key-{number}"
        if number % 5 == 1:
            settings["ordering_key"] = f"order-{number}"
        if number % 4:
            settings["event_timestamp"] = 1000 + number
        value = b"%d " % number + b"x" * number * 10
        producer.send_async(
            value, callback=lambda result, message_id: ids.append((result, message_id)), **settings
        )
        key = settings.get("ordering_key", settings.get("partition_key"))
        wanted.append(
            (
                None if key is None else key.encode(),
                value,
                tuple(sorted((name, text.encode()) for name, text in settings.get("properties", {}).items())),
                settings.get("event_timestamp"),
            )
        )
    producer.flush()
    producer.close()
    seen = []
    consumer = Consumer({"bootstrap.servers": both.address, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    while len(seen) < len(wanted):
        message = consumer.poll(SECONDS)
        assert message is not None
        assert message.error() is None
        assert message.offset() == len(seen)
        time = message.timestamp()[1]
        seen.append(
            (
                message.key(),
                message.value(),
                tuple(sorted(message.headers() or ())),
                time if time < 10_000 else None,
            )
        )
    consumer.close()
    assert seen == wanted
    assert [result for result, _ in ids] == [pulsar.Result.Ok] * len(wanted)
    assert len({str(message_id) for _, message_id in ids}) == len(wanted)


@pytest.mark.parametrize("entry_format", FORMATS)
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_pulsar_reads_what_a_kafka_client_wrote(
    both: BrokerProcess, client: pulsar.Client, entry_format: str, codec: str
) -> None:
    topic = f"kafka-{entry_format}-{codec}"
    create(both, topic, entry_format=entry_format)
    records = [
        Seen(b"key", b"value", (("h", b"1"),)),
        Seen(None, b"no key"),
        Seen(b"", b"", (("trace", "ä".encode()),)),
        *[Seen(b"%d" % n, b"x" * n) for n in range(100)],
    ]
    produce_confluent(both.address, topic, records, **{"compression.type": codec, "linger.ms": 20})
    reader = client.create_reader(full(topic), pulsar.MessageId.earliest)
    for number, record in enumerate(records):
        message = reader.read_next(SECONDS * 1000)
        assert message.data() == record.value, number
        assert message.partition_key() == (record.key or b"").decode()
        assert message.properties() == {name: (value or b"").decode() for name, value in record.headers}
        assert message.event_timestamp() > 10**12
    reader.close()


def test_both_write_one_topic(both: BrokerProcess, client: pulsar.Client) -> None:
    create(both, "shared")
    wanted = []
    for round in range(6):
        values = [b"%d-%d" % (round, number) for number in range(10)]
        if round % 2:
            producer = client.create_producer(full("shared"))
            for value in values:
                producer.send_async(value, callback=None)
            producer.flush()
            producer.close()
        else:
            produce_confluent(both.address, "shared", [Seen(None, value) for value in values])
        wanted += values
    assert [each.value for each in consume_confluent(both.address, "shared", len(wanted))] == wanted
    reader = client.create_reader(full("shared"), pulsar.MessageId.earliest)
    assert [reader.read_next(SECONDS * 1000).data() for _ in wanted] == wanted
    reader.close()


def test_a_poisoned_batch_stops_no_kafka_consumer(both: BrokerProcess, client: pulsar.Client) -> None:
    """Its checksum is right, and the lengths inside run past its end: no producer library sends it, and anybody may."""
    create(both, "poisoned")
    good, single = SingleMessageMetadata(payload_size=4), SingleMessageMetadata(payload_size=1 << 20)
    payload = b"".join(
        len(each.SerializeToString()).to_bytes(4, "big") + each.SerializeToString() + b"body"
        for each in (good, single, good)
    )
    producer = client.create_producer(full("poisoned"))
    producer.send(b"before")
    with Raw(both) as stranger:
        stranger.ask(raw.producer(full("poisoned")))
        command = raw.send()
        command.send.num_messages = 3
        answer = stranger.ask(command, raw.entry(payload, num_messages_in_batch=3))
        assert answer.type == BaseCommand.SEND_RECEIPT
    producer.send(b"after")
    producer.close()
    seen = consume_confluent(both.address, "poisoned", 3)
    assert [each.value for each in seen] == [b"before", payload, b"after"]
    headers = dict(seen[1].headers)
    assert b"message 1 claims 1048576 bytes" in (headers["pulsar.unreadable"] or b"")
    assert MessageMetadata.FromString(headers["pulsar.metadata"] or b"").num_messages_in_batch == 3
    assert sum("marked pulsar.unreadable" in line for line in both.log_lines()) == 1


def read_large(both: BrokerProcess, topic: str, count: int, offset: int = 0) -> list[Message]:
    """Read messages of many megabytes with a stock consumer, from an offset on."""
    consumer = Consumer({"bootstrap.servers": both.address, "group.id": "none", "fetch.max.bytes": 32 << 20,
                         "receive.message.max.bytes": 64 << 20})  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, offset)])
    found = []
    while len(found) < count:
        message = consumer.poll(SECONDS)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(message)
    consumer.close()
    return found


@pytest.mark.slow
def test_chunks_of_a_large_message_come_as_one_record(both: BrokerProcess, client: pulsar.Client) -> None:
    """Two producers at once, so that their chunks may lie among each other's; also read from the middle of chunks."""
    create(both, "chunked")
    bodies = [
        random.Random(number).randbytes(size) for number, size in enumerate((12 << 20, 6 << 20, 15 << 20))
    ]
    producers = [
        client.create_producer(
            full("chunked"), chunking_enabled=True, batching_enabled=False, compression_type=codec,
            block_if_queue_full=True,
        )
        for codec in (pulsar.CompressionType.NONE, pulsar.CompressionType.LZ4, pulsar.CompressionType.ZSTD)
    ]  # fmt: skip
    for number, (producer, body) in enumerate(zip(producers, bodies, strict=True)):
        producer.send_async(
            body, callback=lambda *_: None, properties={"n": str(number)}, partition_key=str(number)
        )
    for producer in producers:
        producer.flush()
    producers[0].send(b"after")
    for producer in producers:
        producer.close()
    found = read_large(both, "chunked", 4)
    assert found[-1].value() == b"after"
    assert found[-1].offset() > 7
    for message in found[:-1]:
        ((name, number),) = message.headers() or ()
        assert (name, message.key()) == ("n", number)
        assert message.value() == bodies[int(number)]
    for offset in range(1, found[-1].offset()):
        wanted = [each for each in found if each.offset() >= offset]
        seen = read_large(both, "chunked", len(wanted), offset)
        assert [(each.offset(), each.value()) for each in seen] == [
            (each.offset(), each.value()) for each in wanted
        ]


def test_chunks_of_a_message_above_the_bound_come_marked(both: BrokerProcess, client: pulsar.Client) -> None:
    create(both, "above")
    producer = client.create_producer(full("above"), chunking_enabled=True, batching_enabled=False)
    large = bytes(range(256)) * (17 << 12)
    producer.send(large)
    producer.send(b"after")
    producer.close()
    pieces = read_large(both, "above", 4)
    for number, message in enumerate(pieces):
        headers = dict(message.headers() or ())
        assert message.offset() == number
        assert headers["pulsar.chunk"].split(b"/")[-2] == b"%d" % number
    assert b"".join(message.value() for message in pieces) == large
    (after,) = read_large(both, "above", 1, 4)
    assert (after.value(), after.offset()) == (b"after", 4)
