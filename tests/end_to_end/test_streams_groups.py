"""Groups of the streams protocol (KIP-1071) over the wire: topics are made, tasks assigned, and kept over a crash."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.list_groups_request import ListGroupsRequest
from magnetar.wire.kafka.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from magnetar.wire.kafka.messages.streams_group_heartbeat_request import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.hostile.client import Wire
from tests.process import BrokerProcess

SOON = ("group.streams.initial.rebalance.delay.ms=0", "group.streams.assignment.interval.ms=0")
OPTIONS = tuple(part for each in SOON for part in ("--set", each))
TOPOLOGY = Topology(
    epoch=1,
    subtopologies=[
        Subtopology(subtopology_id="0", source_topics=["words"], repartition_sink_topics=["app-by-word"]),
        Subtopology(
            subtopology_id="1",
            repartition_source_topics=[TopicInfo(name="app-by-word")],
            state_changelog_topics=[
                TopicInfo(name="app-seen", topic_configs=[KeyValue(key="cleanup.policy", value="compact")])
            ],
        ),
    ],
)


def beat(wire: Wire, epoch: int, active: list[TaskIds] | None = None, **fields: Any) -> Any:
    joins = epoch == 0
    request = StreamsGroupHeartbeatRequest(
        group_id="app",
        member_id="m",
        member_epoch=epoch,
        endpoint_information_epoch=-1,
        rebalance_timeout_ms=10_000 if joins else -1,
        topology=fields.pop("topology", TOPOLOGY) if joins else None,
        process_id="p" if joins else None,
        user_endpoint=Endpoint(host="here", port=8080) if joins else None,
        client_tags=[] if joins else None,
        active_tasks=active or [],
        standby_tasks=[],
        warmup_tasks=[],
        **fields,
    )
    return wire.ask(request)


def test_an_application_gets_its_topics_and_tasks_and_keeps_them(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker(tmp_path / "data", *OPTIONS)
    admin = AdminClient({"bootstrap.servers": broker.address})
    with Wire(broker.host_and_port) as wire:
        answer = beat(wire, 0)
        (status,) = answer.status
        assert (status.status_code, status.status_detail) == (1, "Source topics words are missing.")
        admin.create_topics([NewTopic("words", 3)])["words"].result()
        answer = beat(wire, answer.member_epoch)
        (status,) = answer.status
        assert (status.status_code, status.status_detail) == (
            3,
            "Internal topics are missing: app-by-word, app-seen",
        )
        made = admin.list_topics(timeout=30).topics
        assert [len(made[name].partitions) for name in ("app-by-word", "app-seen")] == [3, 3]
        answer = beat(wire, answer.member_epoch)
        tasks = [(each.subtopology_id, each.partitions) for each in answer.active_tasks]
        assert (tasks, answer.status) == ([("0", [0, 1, 2]), ("1", [0, 1, 2])], [])
        (row,) = answer.partitions_by_user_endpoint
        assert (row.user_endpoint.host, row.user_endpoint.port) == ("here", 8080)
        told = [(each.topic, each.partitions) for each in row.active_partitions]
        assert told == [("words", [0, 1, 2]), ("app-by-word", [0, 1, 2])]
        epoch = answer.member_epoch
        again = beat(wire, epoch, [TaskIds(subtopology_id="0", partitions=[7])])
        assert again.error_code == ErrorCode.INVALID_REQUEST, "there is no such task"
    address = broker.address
    broker.kill()
    broker = start_broker(tmp_path / "data", *OPTIONS, kafka=address)
    with Wire(broker.host_and_port) as wire:
        again = beat(wire, epoch, [TaskIds(subtopology_id="0", partitions=[0])])
        while again.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            time.sleep(0.05)
            again = beat(wire, epoch, [TaskIds(subtopology_id="0", partitions=[0])])
        assert (again.error_code, again.member_epoch) == (0, epoch)
        told_again = [(each.subtopology_id, each.partitions) for each in again.active_tasks]
        assert told_again == tasks, "it says that it has one of them"
        (group,) = wire.ask(StreamsGroupDescribeRequest(group_ids=["app"])).groups
        assert (group.group_state, group.topology.epoch, len(group.members)) == ("Stable", 1, 1)
        (listed,) = wire.ask(ListGroupsRequest(types_filter=["Streams"])).groups
        assert (listed.group_id, listed.group_type, listed.protocol_type) == ("app", "streams", "streams")
        other = Topology(epoch=1, subtopologies=[Subtopology(subtopology_id="0", source_topics=["words"])])
        refused = beat(wire, 0, topology=other)
        assert (refused.error_code, refused.error_message) == (
            ErrorCode.INVALID_REQUEST,
            "Topology updates are not supported yet.",
        )
        assert beat(wire, epoch + 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert beat(wire, -1).error_code == ErrorCode.NONE
        (group,) = wire.ask(StreamsGroupDescribeRequest(group_ids=["app"])).groups
        assert (group.group_state, group.members) == ("Empty", [])


def test_internal_topics_with_more_replicas_than_there_are_brokers_are_refused_as_any_topic_is(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = start_broker(tmp_path / "data", *OPTIONS)
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic("words", 3)])["words"].result()
    topology = Topology(
        epoch=1,
        subtopologies=[
            Subtopology(
                subtopology_id="0",
                source_topics=["words"],
                state_changelog_topics=[TopicInfo(name="app-seen", replication_factor=3)],
            )
        ],
    )
    with Wire(broker.host_and_port) as wire:
        for _ in range(2):
            (status,) = beat(wire, 0, topology=topology).status
            assert status.status_code == 3
            assert status.status_detail.startswith(
                "Internal topics are missing: app-seen; Creation failed: app-seen (Unable to replicate the partition 3 "
            )
        (group,) = wire.ask(StreamsGroupDescribeRequest(group_ids=["app"])).groups
        assert group.group_state == "NotReady"


@pytest.mark.parametrize("factor", [0, -1, 1])
def test_internal_topics_with_as_many_replicas_as_by_default_are_made(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, factor: int
) -> None:
    broker = start_broker(tmp_path / "data", *OPTIONS)
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic("words", 3)])["words"].result()
    changelog = TopicInfo(name="app-seen", replication_factor=factor)
    part = Subtopology(subtopology_id="0", source_topics=["words"], state_changelog_topics=[changelog])
    with Wire(broker.host_and_port) as wire:
        (status,) = beat(wire, 0, topology=Topology(epoch=1, subtopologies=[part])).status
        assert status.status_detail == "Internal topics are missing: app-seen"
    assert len(admin.list_topics(timeout=30).topics["app-seen"].partitions) == 3


def test_an_application_is_told_what_puts_its_tasks_off_before_what_is_missing(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    waits = "group.streams.initial.rebalance.delay.ms=3000", "group.streams.assignment.interval.ms=15000"
    broker = start_broker(tmp_path / "data", *(part for each in waits for part in ("--set", each)))
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic("words", 3)])["words"].result()
    with Wire(broker.host_and_port) as wire:
        answer = beat(wire, 0)
        assert [(each.status_code, each.status_detail) for each in answer.status] == [
            (5, "Assignment delayed due to the configured initial rebalance delay."),
            (3, "Internal topics are missing: app-by-word, app-seen"),
        ]
        while answer.status:
            time.sleep(0.1)
            answer = beat(wire, answer.member_epoch)
        admin.delete_topics(["app-seen"])["app-seen"].result()
        while len(answer.status) < 2:
            answer = beat(wire, answer.member_epoch)
        told = answer.status[0].status_code, answer.status[0].status_detail
        assert told == (5, "Assignment delayed due to the configured assignment interval.")
