"""Configurations of a topic that another broker made a moment ago, of which metadata have not told this one yet.

Its watches are deaf here for good, as they are for a moment on a busy machine: clients ask any broker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from magnetar.metadata import ANY, Put
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import alter_configs_request as altering
from magnetar.wire.kafka.messages import describe_configs_request as describing
from magnetar.wire.kafka.messages import incremental_alter_configs_request as changing
from magnetar.wire.kafka.messages import offset_commit_request as committing
from magnetar.wire.kafka.messages.describe_configs_response import DescribeConfigsResponse
from tests.broker.both import Both, both

TOPIC = 2


@asynccontextmanager
async def one_of_two() -> AsyncIterator[Both]:
    """A broker that has another beside it, and to which no watch tells anything."""
    async with both(("kafka",)) as broker:
        for each in broker.broker.metadata._following:
            assert each.task is not None
            each.task.cancel()
        (me,) = broker.broker.cluster.ownership.brokers()
        broker.broker.cluster.ownership.brokers = lambda: [me, me]  # type: ignore[method-assign]
        yield broker


@pytest.mark.parametrize("made", [True, False])
async def test_who_asks_for_configurations_is_answered_after_a_look_at_metadata(made: bool) -> None:
    async with one_of_two() as broker:
        if made:
            path = "/admin/partitioned-topics/public/default/persistent/orders"
            await broker.broker.metadata.store.commit([Put(path, b'{"partitions":3}', ANY)])
        wanted = ErrorCode.NONE if made else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        at = {"resource_type": TOPIC, "resource_name": "orders"}
        config = {"name": "retention.ms", "value": "1000"}
        asked = describing.DescribeConfigsResource(**at, configuration_keys=None)
        changed = changing.AlterConfigsResource(**at, configs=[changing.AlterableConfig(**config)])
        altered = altering.AlterConfigsResource(**at, configs=[altering.AlterableConfig(**config)])
        client = broker.kafka
        for request, version in (
            (describing.DescribeConfigsRequest(resources=[asked]), 4),
            (changing.IncrementalAlterConfigsRequest(resources=[changed]), 1),
            (altering.AlterConfigsRequest(resources=[altered]), 2),
        ):
            answer = await client.ask(request, version)
            (result,) = answer.results if isinstance(answer, DescribeConfigsResponse) else answer.responses
            assert result.error_code == wanted, result.error_message


@pytest.mark.parametrize("made", [True, False])
async def test_a_coordinator_knows_a_topic_whose_offsets_are_committed(made: bool) -> None:
    async with one_of_two() as broker:
        if made:
            path = "/admin/partitioned-topics/public/default/persistent/orders"
            await broker.broker.metadata.store.commit([Put(path, b'{"partitions":3}', ANY)])
        row = committing.OffsetCommitRequestPartition(partition_index=2, committed_offset=3)
        topic = committing.OffsetCommitRequestTopic(name="orders", partitions=[row])
        asked = committing.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
        answer = await broker.kafka.ask(asked, 8)
        wanted = ErrorCode.NONE if made else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answer.topics[0].partitions[0].error_code == wanted
