"""``max.message.bytes``: a batch as it came and, where the topic has a codec of its own, as that makes it.

Kafka (UnifiedLog.append): each batch is looked at before its records are, and those that were compressed anew once
more. So what is small only by its producer's codec is refused where it would be large, and what only the topic's codec
would make small is refused as well.
"""

from __future__ import annotations

import asyncio
import os

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError
from confluent_kafka.admin import AdminClient, NewTopic

from tests.process import BrokerProcess

LIMIT = 10_000
PATIENCE_S = 60.0
REPEATS, RANDOM = b"x" * 50_000, os.urandom(9_000)


def topic(broker: BrokerProcess, name: str, codec: str, entry_format: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.address})
    config = {"compression.type": codec, "max.message.bytes": str(LIMIT), "entry.format": entry_format}
    name = f"{name}-{codec}-{entry_format}"
    admin.create_topics([NewTopic(name, 1, config=config)])[name].result(PATIENCE_S)
    return name


def sent(broker: BrokerProcess, name: str, value: bytes, codec: str) -> int:
    """Return what librdkafka says of one record: an error's code, or 0."""
    told: list[int] = []
    producer = ck.Producer({"bootstrap.servers": broker.address, "compression.type": codec})
    producer.produce(name, value, on_delivery=lambda error, _: told.append(error.code() if error else 0))
    assert producer.flush(PATIENCE_S) == 0
    return told[0]


@pytest.mark.parametrize("entry_format", ["kafka", "mixed_kafka", "pulsar"])
@pytest.mark.parametrize(
    ("of_topic", "of_producer", "value", "fits"),
    [
        ("producer", "gzip", REPEATS, True),
        ("gzip", "gzip", REPEATS, True),
        ("lz4", "gzip", REPEATS, True),
        ("uncompressed", "gzip", REPEATS, False),
        ("uncompressed", "zstd", RANDOM, True),
        ("zstd", "none", REPEATS, False),  # as it came
        ("zstd", "none", RANDOM, True),
        ("producer", "none", REPEATS, False),
    ],
)
def test_a_batch_counts_as_it_came_and_as_the_topic_stores_it(
    broker: BrokerProcess, of_topic: str, of_producer: str, value: bytes, fits: bool, entry_format: str
) -> None:
    name = topic(broker, f"{of_producer}-{len(value)}", of_topic, entry_format)
    expected = 0 if fits else ck.KafkaError.MSG_SIZE_TOO_LARGE
    assert sent(broker, name, value, of_producer) == expected
    assert sent(broker, name, b"small", of_producer) == 0, "the next one is taken"


async def test_aiokafka_says_so_too(broker: BrokerProcess) -> None:
    name = await asyncio.to_thread(topic, broker, "aiokafka", "uncompressed", "kafka")
    async with AIOKafkaProducer(bootstrap_servers=broker.address, compression_type="gzip") as producer:
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(name, REPEATS)
        await producer.send_and_wait(name, RANDOM)
