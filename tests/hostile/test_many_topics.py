"""Members that name very many topics, and configurations by the thousand: refused before they are worked on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.kafka.coordinators.bounds import MOST_TOPICS
from magnetar.kafka.handlers.describe_user_scram_credentials import MOST_USERS
from magnetar.serving.pace import MOST_AGAIN, told_of
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages import alter_configs_request as replacing
from magnetar.wire.kafka.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from magnetar.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from magnetar.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from magnetar.wire.kafka.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from magnetar.wire.kafka.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from magnetar.wire.kafka.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from magnetar.wire.kafka.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from magnetar.wire.kafka.messages.list_groups_request import ListGroupsRequest
from magnetar.wire.kafka.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from magnetar.wire.kafka.messages.share_group_describe_request import ShareGroupDescribeRequest
from magnetar.wire.kafka.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from magnetar.wire.kafka.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from magnetar.wire.kafka.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from tests.hostile.client import Wire

TOO_MANY = MOST_TOPICS + 1


def consumer(names: list[str]) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="many-consumer",
        member_id="m",
        rebalance_timeout_ms=9000,
        subscribed_topic_names=names,
        topic_partitions=[],
    )


def share(names: list[str]) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(group_id="many-share", member_id="m", subscribed_topic_names=names)


def _streams(parts: list[Subtopology]) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group_id="many-streams",
        member_id="m",
        rebalance_timeout_ms=9000,
        process_id="p",
        topology=Topology(epoch=1, subtopologies=parts),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )


def streams(names: list[str]) -> StreamsGroupHeartbeatRequest:
    return _streams([Subtopology(subtopology_id="0", source_topics=names)])


def subtopologies(names: list[str]) -> StreamsGroupHeartbeatRequest:
    return _streams([Subtopology(subtopology_id=name) for name in names])


@pytest.mark.parametrize("asked", [consumer, share, streams, subtopologies])
def test_a_member_that_names_too_many_topics_is_none(wire: Wire, topic: str, asked: Any) -> None:
    answer = wire.ask(asked([f"none{n}" for n in range(TOO_MANY)]))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert str(MOST_TOPICS) in answer.error_message
    assert asked([]).group_id not in {each.group_id for each in wire.ask(ListGroupsRequest()).groups}


@pytest.mark.parametrize("asked", [consumer, share])
def test_a_member_may_name_as_many_as_are_allowed(wire: Wire, topic: str, asked: Any) -> None:
    answer = wire.ask(asked([f"none{n}" for n in range(MOST_TOPICS)]))
    assert answer.error_code == ErrorCode.NONE
    request = asked([])
    request.member_epoch, request.subscribed_topic_names = -1, None
    assert wire.ask(request).error_code == ErrorCode.NONE


def test_configurations_by_the_thousand_are_refused(wire: Wire, topic: str) -> None:
    configs = [AlterableConfig(name=f"c{n}", config_operation=0, value="1") for n in range(1001)]
    resource = AlterConfigsResource(resource_type=2, resource_name="prey", configs=configs)
    (row,) = wire.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)).responses
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert "At most 1000" in row.error_message


def test_so_many_are_not_put_in_place_of_others_either(wire: Wire, topic: str) -> None:
    configs = [replacing.AlterableConfig(name=f"c{n}", value="1") for n in range(1001)]
    resource = replacing.AlterConfigsResource(resource_type=2, resource_name="prey", configs=configs)
    asked = replacing.AlterConfigsRequest(resources=[resource], validate_only=True)
    (row,) = wire.ask(asked).responses
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert "At most 1000" in row.error_message
    resource.configs = configs[1:]
    (row,) = wire.ask(asked).responses
    assert "At most" not in row.error_message


def test_users_are_named_by_the_thousand_and_no_more(wire: Wire) -> None:
    users = [UserName(name=f"u{n}") for n in range(MOST_USERS + 1)]
    answer = wire.ask(DescribeUserScramCredentialsRequest(users=users))
    assert (answer.error_code, answer.results) == (ErrorCode.INVALID_REQUEST, [])
    assert len(wire.ask(DescribeUserScramCredentialsRequest(users=users[1:])).results) == MOST_USERS


@pytest.mark.parametrize(
    "asked",
    [
        lambda names: DescribeGroupsRequest(groups=names),
        lambda names: ConsumerGroupDescribeRequest(group_ids=names),
        lambda names: ShareGroupDescribeRequest(group_ids=names),
        lambda names: StreamsGroupDescribeRequest(group_ids=names),
    ],
    ids=["classic", "consumer", "share", "streams"],
)
def test_a_group_that_is_named_again_is_told_of_again_as_in_kafka_but_not_without_end(
    wire: Wire, asked: Callable[[list[str]], Message]
) -> None:
    assert [each.group_id for each in wire.ask(asked(["g", "h", "g", "g"])).groups] == ["g", "h", "g", "g"]
    answered = wire.ask(asked(["g", "h"] * 50_000)).groups
    assert len(answered) == MOST_AGAIN + 2


def test_members_of_a_group_that_is_named_again_count_too(wire: Wire) -> None:
    names, width = ["g"] * 100_000, 7
    told: list[str] = []

    def tell(name: str) -> str:
        told.append(name)
        return name

    rows = asyncio.run(told_of(names, tell, lambda row: width - 1))
    assert (told, len(rows)) == (["g"], 1 + MOST_AGAIN // width)


def test_what_is_named_again_is_told_of_once(wire: Wire, topic: str) -> None:
    """All that there is of a group, times 200,000, would be some GB."""
    all_of_it = OffsetFetchRequestGroup(group_id="g", topics=None)
    assert len(wire.ask(OffsetFetchRequest(groups=[all_of_it] * 3), 9).groups) == 1
    some = OffsetFetchRequestGroup(group_id="g", topics=[])
    assert len(wire.ask(OffsetFetchRequest(groups=[some, all_of_it, some]), 9).groups) == 3
    shared = DescribeShareGroupOffsetsRequestGroup(group_id="s", topics=None)
    assert len(wire.ask(DescribeShareGroupOffsetsRequest(groups=[shared] * 3)).groups) == 1
    sizes = DescribableLogDirTopic(topic="prey", partitions=[0, 0])
    (told,) = wire.ask(DescribeLogDirsRequest(topics=[sizes] * 3)).results[0].topics
    assert [row.partition_index for row in told.partitions] == [0]
