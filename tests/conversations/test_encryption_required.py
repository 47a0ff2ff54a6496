"""A namespace that requires encryption takes nothing from Kafka's producers, who do not encrypt: POLICY_VIOLATION."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from magnetar.node.service import BrokerService
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.topics.new_topic import NewTopic
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.produce_response import ProduceResponse
from tests.hostile.client import frame, request_bytes
from tests.hostile.test_fuzz import Peer, broker, kafka

VERSION = 12
TOPICS = ("guarded", "public/open/t")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[BrokerService]:
    async with broker(tmp_path / "data") as service:
        await service.broker.namespaces.create("public/open")
        naming = service.broker.naming
        await service.broker.create_topics([NewTopic(naming.parse(topic), 1) for topic in TOPICS])
        yield service


async def require(service: BrokerService, required: bool) -> None:
    content = service.broker.namespaces.content("public/default")
    said = content | {"encryption_required": required}
    await service.broker.set_policies("public/default", json.dumps(said).encode())


def produce(acks: int) -> bytes:
    records = encode_batch([PlainRecord(None, b"in the clear", [], 0, 0)])
    rows = [PartitionProduceData(index=0, records=records)]
    topics = [TopicProduceData(name=topic, partition_data=rows) for topic in TOPICS]
    return frame(request_bytes(ProduceRequest(acks=acks, timeout_ms=9, topic_data=topics), VERSION))


async def answer(peer: Peer) -> dict[str, Any]:
    while not peer.answers:  # noqa: ASYNC110 - an answer tells nobody
        await asyncio.sleep(0)
    decoded = ProduceResponse.decode(peer.answers.pop()[4 + 5 :], VERSION)  # size; correlation id, tags
    return {topic.name: topic.partition_responses[0] for topic in decoded.responses}


async def stored(service: BrokerService) -> list[int]:
    partitions = kafka(service).services.partitions
    found = []
    for name in TOPICS:
        topic = service.broker.get(name)
        assert topic is not None
        found.append((await partitions.get(topic, 0)).log.log_end_offset)
    return found


async def test_what_is_not_encrypted_is_refused_there_and_only_there(service: BrokerService) -> None:
    peer = Peer(kafka(service), service)
    peer.say(produce(acks=-1))
    assert {row.error_code for row in (await answer(peer)).values()} == {ErrorCode.NONE}
    await require(service, True)
    peer.say(produce(acks=-1))
    rows = await answer(peer)
    guarded, free = rows["guarded"], rows["public/open/t"]
    assert guarded.error_code == ErrorCode.POLICY_VIOLATION
    assert guarded.error_message == "Encryption is required in guarded"
    assert guarded.base_offset == guarded.log_start_offset == -1
    assert (free.error_code, free.base_offset) == (ErrorCode.NONE, 1)
    assert await stored(service) == [1, 2]
    await require(service, False)
    peer.say(produce(acks=1))
    assert (await answer(peer))["guarded"].base_offset == 1


async def test_who_wants_no_answer_learns_of_it_by_losing_the_connection(service: BrokerService) -> None:
    await require(service, True)
    peer = Peer(kafka(service), service)
    peer.say(produce(acks=0))
    while not peer.ended:  # noqa: ASYNC110 - nor does an end
        await asyncio.sleep(0)
    assert await stored(service) == [0, 1]
