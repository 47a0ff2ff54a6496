"""Guards give others a turn between rows, as handlers do: who may do nothing may still name 250,000 topics."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.kafka.authorization import guard_of
from magnetar.kafka.handlers import ROUTE_BY_KEY
from magnetar.records.batch import TRANSACTIONAL, PlainRecord, encode_batch
from magnetar.serving import pace
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages import (
    create_topics_request,
    describe_configs_request,
    describe_groups_request,
    list_offsets_request,
    metadata_request,
    offset_commit_request,
    produce_request,
    response_class,
)

ROWS = range(40)
TRANSACTIONAL_BATCH = encode_batch([PlainRecord(None, b"x", [], 0, 0)], attributes=TRANSACTIONAL)


class Nothing:
    """May do nothing but use groups, so that it comes to their topics."""

    def __getattr__(self, name: str) -> Any:
        return lambda *of, **named: name == "uses" and of == ("g",)


def many_topics(kind: type, field: str, **each: Any) -> list[Any]:
    return [kind(**{field: f"t{number}"} | each) for number in ROWS]


REQUESTS: dict[str, Message] = {
    "produce": produce_request.ProduceRequest(
        acks=1,
        timeout_ms=1,
        topic_data=many_topics(produce_request.TopicProduceData, "name", partition_data=[]),
    ),
    "produce one topic": produce_request.ProduceRequest(
        acks=1,
        timeout_ms=1,
        topic_data=[
            produce_request.TopicProduceData(
                name="t",
                partition_data=[produce_request.PartitionProduceData(index=n, records=b"") for n in ROWS],
            )
        ],
    ),
    "produce of a transaction": produce_request.ProduceRequest(
        transactional_id="x",
        acks=1,
        timeout_ms=1,
        topic_data=[
            produce_request.TopicProduceData(
                name="t",
                partition_data=[
                    produce_request.PartitionProduceData(
                        index=n, records=TRANSACTIONAL_BATCH if n == 39 else b""
                    )
                    for n in ROWS
                ],
            )
        ],
    ),
    "list_offsets": list_offsets_request.ListOffsetsRequest(
        topics=[
            list_offsets_request.ListOffsetsTopic(
                name="t", partitions=[list_offsets_request.ListOffsetsPartition() for _ in ROWS]
            )
        ]
    ),
    "metadata": metadata_request.MetadataRequest(
        topics=many_topics(metadata_request.MetadataRequestTopic, "name")
    ),
    "create_topics": create_topics_request.CreateTopicsRequest(
        topics=many_topics(create_topics_request.CreatableTopic, "name"), timeout_ms=1
    ),
    "describe_groups": describe_groups_request.DescribeGroupsRequest(groups=[f"x{n}" for n in ROWS]),
    "offset_commit": offset_commit_request.OffsetCommitRequest(
        group_id="g",
        topics=many_topics(offset_commit_request.OffsetCommitRequestTopic, "name", partitions=[]),
    ),
    "describe_configs": describe_configs_request.DescribeConfigsRequest(
        resources=many_topics(
            describe_configs_request.DescribeConfigsResource, "resource_name", resource_type=2
        )
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_guard_gives_others_a_turn_between_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "MAX_SECONDS", -1.0)  # each row is enough for a turn
    request = REQUESTS[name]

    async def handler(request: Any, context: Any) -> Any:
        return response_class(request.API_KEY)()

    guard = guard_of(ROUTE_BY_KEY[request.API_KEY])
    context: Any = SimpleNamespace(api_version=9)
    asked = asyncio.ensure_future(guard(request, context, Nothing(), handler))  # type: ignore[arg-type]
    turns = 0
    while not asked.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > len(ROWS)
    assert len(str(asked.result())) > 0
