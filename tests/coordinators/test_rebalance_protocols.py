"""An operator may have groups of the newer protocols not served (``group.coordinator.rebalance.protocols``)."""

from __future__ import annotations

import pytest

from magnetar.base.errors import InvalidConfig
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from magnetar.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from magnetar.wire.kafka.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from magnetar.wire.kafka.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from tests.broker.both import both

MEMBER = "8nEgvPTeQbeBdS2yrwbrDg"


@pytest.mark.parametrize(
    "served", ["classic", "classic,consumer", "classic,streams", "classic,consumer,streams"]
)
async def test_what_is_not_served_is_an_unsupported_version(served: str) -> None:
    async with both(("kafka",), group_coordinator_rebalance_protocols=served) as broker:
        ask = broker.kafka.ask
        joins = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=MEMBER,
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[],
            topic_partitions=[],
        )
        lives = StreamsGroupHeartbeatRequest(group_id="s", member_id=MEMBER, member_epoch=1)
        beats = (await ask(joins, 1)).error_code, (await ask(lives, 0)).error_code
        (consumer,) = (await ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)).groups
        (streams,) = (await ask(StreamsGroupDescribeRequest(group_ids=["s"]), 0)).groups
        unsupported, unknown = ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND
        told = (ErrorCode.NONE, ErrorCode.NONE) if "consumer" in served else (unsupported, unsupported)
        assert (beats[0], consumer.error_code) == told
        told = (unknown, unknown) if "streams" in served else (unsupported, unsupported)
        assert (beats[1], streams.error_code) == told


async def test_others_there_are_not() -> None:
    with pytest.raises(InvalidConfig, match="must be one of: classic, consumer, streams"):
        async with both(("kafka",), group_coordinator_rebalance_protocols="classic,eager"):
            pass
