"""A crowd of clients of every kind at once, on one broker: the honest ones get all they came for, and nothing is left.

``MAGNETAR_CROWD`` says how many there are (default 100).
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from magnetar.kafka.handler import KafkaProtocolHandler
from magnetar.node.service import BrokerService
from magnetar.pulsar.handler import PulsarProtocolHandler
from magnetar.settings.settings import Settings
from magnetar.topics.new_topic import NewTopic
from tests.crowd.clients import (
    KINDS,
    PRODUCE,
    STORED,
    STORED_BYTES,
    Kafka,
    Place,
    batch,
    pulsar_consumer,
    pulsar_producer,
)
from tests.crowd.clients import produce as to_produce

COUNT = int(os.environ.get("MAGNETAR_CROWD", "100"))


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[BrokerService]:
    texts = {
        "data.dir": str(tmp_path / "data"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "pulsar.listeners": "pulsar://127.0.0.1:0",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "memory.requests.bytes": str(32 << 20),
        "log.retention.ms": "-1",
        # All come at once. Of those that find the queue full, some are reset before the broker has seen them.
        "socket.listen.backlog.size": str(max(50, COUNT)),
    }
    service = BrokerService(Settings().with_values(texts))
    await service.start()
    yield service
    await service.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def until_gone(service: BrokerService) -> None:
    """Wait until the broker has noticed that all have gone."""
    handlers = [
        each for each in service.handlers if isinstance(each, KafkaProtocolHandler | PulsarProtocolHandler)
    ]
    assert len(handlers) == 2
    while any(handler._server.connections for handler in handlers):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    for _ in range(20):
        await asyncio.sleep(0)


async def stored(place: Place) -> int:
    """Return how many offsets the crowd's topics have."""
    from magnetar.wire.kafka.messages.list_offsets_request import (
        ListOffsetsPartition,
        ListOffsetsRequest,
        ListOffsetsTopic,
    )

    asked = [
        ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        for topic in place.topics
    ]
    client = await Kafka.connect(place)
    topics = (await client.ask(ListOffsetsRequest(topics=asked), 7)).topics
    await client.close()
    return sum(row.offset for topic in topics for row in topic.partitions)


async def prepare(service: BrokerService, place: Place) -> None:
    """Make the topics, fill the one that is read, and have everything opened and loaded that stays so."""
    naming = service.broker.naming
    await service.broker.create_topics(
        [NewTopic(naming.parse(name), 1) for name in (*place.topics, place.full)]
    )
    client = await Kafka.connect(place)
    for _ in range(STORED):
        assert (await client.ask(to_produce(place.full, -1, batch(STORED_BYTES)), PRODUCE)).responses
    await client.close()
    for number, kind in enumerate(KINDS):
        await kind(place, number)
    for number in range(len(place.topics)):
        await pulsar_producer(place, 100_000 + number)
    await pulsar_consumer(place, 100_000)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_crowd_of_every_kind(service: BrokerService, caplog: pytest.LogCaptureFixture) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4 * COUNT + 500), hard), hard))
    kafka, binary = (service.listeners[each][0].advertised for each in ("kafka", "pulsar"))
    place = Place((kafka.host, kafka.port), (binary.host, binary.port))
    await prepare(service, place)
    await until_gone(service)
    before, held_before = descriptors(), service.broker.serving.memory.held_bytes

    # Each kind's clients and numbers, so that every topic and every way to leave has some.
    crowd = [KINDS[number % len(KINDS)](place, number // len(KINDS)) for number in range(COUNT)]
    outcomes = await asyncio.gather(*crowd, return_exceptions=True)
    failed = [(number % len(KINDS), error) for number, error in enumerate(outcomes) if error is not None]
    assert not failed, failed[:5]

    await until_gone(service)
    # What was sent with acks=0 by those who had gone may still be on its way.
    while await stored(place) < place.stored:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    assert await stored(place) == place.stored
    await until_gone(service)
    gc.collect()
    assert service.broker.serving.memory.held_bytes == held_before == 0
    assert descriptors() <= before
    assert not [record for record in caplog.records if record.exc_info], "a request failed"
