"""Grants decide what Kafka's clients may do, and each refusal is Kafka's own, for the topic or group it concerns."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.admin.client import ask
from magnetar.auth import Right
from magnetar.kafka.authorization import guard_of, guarded
from magnetar.kafka.handlers import ROUTES
from magnetar.kafka.route import NO_TOPICS, Guard, Route, versions
from magnetar.kafka.rows import Way
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import ApiKey
from magnetar.wire.kafka.messages import alter_configs_request as alter
from magnetar.wire.kafka.messages import create_partitions_request as grow
from magnetar.wire.kafka.messages import create_topics_request as create
from magnetar.wire.kafka.messages import delete_records_request as trim
from magnetar.wire.kafka.messages import delete_topics_request as delete
from magnetar.wire.kafka.messages import describe_configs_request as describe
from magnetar.wire.kafka.messages import describe_producers_request as producers
from magnetar.wire.kafka.messages import fetch_request as fetching
from magnetar.wire.kafka.messages import incremental_alter_configs_request as increment
from magnetar.wire.kafka.messages import list_offsets_request as listing
from magnetar.wire.kafka.messages import offset_commit_request as commit
from magnetar.wire.kafka.messages import offset_delete_request as forget
from magnetar.wire.kafka.messages import offset_fetch_request as committed
from magnetar.wire.kafka.messages import offset_for_leader_epoch_request as epochs
from magnetar.wire.kafka.messages import produce_request as producing
from magnetar.wire.kafka.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
)
from magnetar.wire.kafka.messages.delete_groups_request import DeleteGroupsRequest
from magnetar.wire.kafka.messages.describe_cluster_request import DescribeClusterRequest
from magnetar.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from magnetar.wire.kafka.messages.describe_log_dirs_request import DescribeLogDirsRequest
from magnetar.wire.kafka.messages.describe_topic_partitions_request import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from magnetar.wire.kafka.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from magnetar.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from magnetar.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from magnetar.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest
from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest
from magnetar.wire.kafka.messages.list_config_resources_request import ListConfigResourcesRequest
from magnetar.wire.kafka.messages.list_groups_request import ListGroupsRequest
from magnetar.wire.kafka.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.sync_group_request import SyncGroupRequest
from tests.hostile.client import Wire, fetch, frame, produce, request_bytes
from tests.security.conftest import Secured
from tests.security.signing import SECRET_URL

TOPIC, GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
BATCH = encode_batch([PlainRecord(b"k", b"v", [], 0, 0)])
NAMESPACE = "public/default"

Connect = Callable[[str], Wire]


@pytest.fixture
def role() -> str:
    """A role that nobody has heard of."""
    return f"role-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topics(wire_as: Connect) -> tuple[str, str]:
    """Two topics with a record each."""
    names = f"mine-{uuid.uuid4().hex[:8]}", f"theirs-{uuid.uuid4().hex[:8]}"
    root = wire_as("root")
    wanted = [create.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    assert not any(row.error_code for row in root.ask(create.CreateTopicsRequest(topics=wanted)).topics)
    for name in names:
        assert produce(root, name, BATCH).error_code == 0
    return names


def grant(secured: Secured, role: str, *actions: str, on: str = NAMESPACE) -> None:
    ask(secured.process.data, "grant", target=on, role=role, actions=list(actions))


def topic_ids(wire: Wire, *names: str) -> list[bytes]:
    asked = [MetadataRequestTopic(name=name) for name in names]
    return [topic.topic_id for topic in wire.ask(MetadataRequest(topics=asked)).topics]


def by_name(rows: list[Any], field: str = "name") -> dict[str, int]:
    return {getattr(row, field): row.error_code for row in rows}


def test_every_api_has_the_guard_that_its_route_names() -> None:
    for route in ROUTES:
        if route.rights is not Guard.OPEN:
            assert callable(guard_of(route)), route


def test_what_is_open_to_all_looks_for_itself_or_tells_nothing() -> None:
    """Fetch looks for itself, because its sessions outlive a grant."""
    assert {route.handler for route in ROUTES if route.rights is Guard.OPEN} == {
        "api_versions",
        "create_delegation_token",  # these four look for themselves: tokens are their owners', grants or not
        "describe_delegation_token",
        "expire_delegation_token",
        "fetch",
        "get_telemetry_subscriptions",  # this and the next tell of whoever asks, and count
        "push_telemetry",
        "renew_delegation_token",
        "sasl_authenticate",
        "sasl_handshake",
    }


async def test_an_api_for_super_users_is_for_nobody_otherwise() -> None:
    class Access:
        is_super = False

        def may(self, right: Right, of: object = None) -> bool:
            assert (right, of) == (Right.operate, None)
            return self.is_super

    async def handler(request: object, context: object) -> str:
        return "done"

    route = Route(
        ApiKey.DESCRIBE_QUORUM, versions(0, 0), rights=Guard.SUPER_USERS, names=NO_TOPICS, way=Way.ANY
    )
    answer = guarded(route, handler, Access(), None)  # type: ignore[arg-type]
    with pytest.raises(ConnectionAbortedError):
        await answer(object(), None)
    Access.is_super = True
    assert await answer(object(), None) == "done"


def test_produce_is_refused_per_topic(
    secured: Secured, wire_as: Connect, role: str, topics: tuple[str, str]
) -> None:
    mine, theirs = topics
    grant(secured, role, "produce", on=mine)
    wire = wire_as(role)

    def send(*data: producing.TopicProduceData, version: int) -> Any:
        return wire.ask(producing.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=list(data)), version)

    def data(**topic: Any) -> producing.TopicProduceData:
        rows = [producing.PartitionProduceData(index=0, records=BATCH)]
        return producing.TopicProduceData(**topic, partition_data=rows)

    for version, asked in (
        (9, [data(name=mine), data(name=theirs), data(name="nowhere-to-be-found")]),
        (13, [data(topic_id=each) for each in topic_ids(wire_as("root"), mine, theirs)]),
    ):
        rows = [row for topic in send(*asked, version=version).responses for row in topic.partition_responses]
        assert [row.error_code for row in rows] == [0, TOPIC, TOPIC][: len(asked)]
        assert rows[0].base_offset >= 1
        assert rows[1].error_message
    assert fetch(wire_as("root"), theirs, 0).high_watermark == 1, "nothing of what was refused is stored"


def test_produce_without_answer_is_refused_by_hanging_up(wire_as: Connect, topics: tuple[str, str]) -> None:
    wire = wire_as("nobody")
    rows = [producing.PartitionProduceData(index=0, records=BATCH)]
    data = [producing.TopicProduceData(name=topics[0], partition_data=rows)]
    wire.send(frame(request_bytes(producing.ProduceRequest(acks=0, topic_data=data), 9)))
    assert wire.is_closed()


def test_fetch_is_refused_per_topic_by_name_and_by_id(
    secured: Secured, wire_as: Connect, role: str, topics: tuple[str, str]
) -> None:
    grant(secured, role, "consume", on=topics[0])
    wire = wire_as(role)

    def read(version: int, **topic: Any) -> Any:
        partition = fetching.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = fetching.FetchRequest(
            max_wait_ms=0, max_bytes=1 << 20, topics=[fetching.FetchTopic(**topic, partitions=[partition])]
        )
        request.session_epoch = -1
        return wire.ask(request, version).responses[0].partitions[0]

    mine, theirs = topic_ids(wire_as("root"), *topics)
    for version, allowed, denied in (
        (12, {"topic": topics[0]}, {"topic": topics[1]}),
        (13, {"topic_id": mine}, {"topic_id": theirs}),
    ):
        assert read(version, **allowed).records
        refused = read(version, **denied)
        assert (refused.error_code, bytes(refused.records or b"")) == (TOPIC, b"")
    assert read(12, topic="nowhere-to-be-found").error_code == TOPIC
    assert read(13, topic_id=bytes(15) + b"x").error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_fetch_session_ends_with_its_grant(
    secured: Secured, wire_as: Connect, role: str, topics: tuple[str, str]
) -> None:
    grant(secured, role, "consume", on=topics[0])
    wire = wire_as(role)
    partition = fetching.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    first = fetching.FetchRequest(
        max_wait_ms=0,
        max_bytes=1 << 20,
        session_epoch=0,
        topics=[fetching.FetchTopic(topic=topics[0], partitions=[partition])],
    )
    answer = wire.ask(first, 12)
    assert answer.responses[0].partitions[0].records
    ask(secured.process.data, "revoke", target=topics[0], role=role)
    again = fetching.FetchRequest(max_wait_ms=0, max_bytes=1 << 20, session_epoch=1)
    again.session_id = answer.session_id
    assert wire.ask(again, 12).responses[0].partitions[0].error_code == TOPIC


def test_metadata_shows_what_may_be_seen(
    secured: Secured, wire_as: Connect, role: str, topics: tuple[str, str]
) -> None:
    mine, theirs = topics
    grant(secured, role, "produce", on=mine)
    wire = wire_as(role)
    everything = wire.ask(MetadataRequest(topics=None, include_topic_authorized_operations=True))
    assert [topic.name for topic in everything.topics] == [mine]
    assert everything.topics[0].topic_authorized_operations == 1 << 4 | 1 << 8 | 1 << 10
    names = [MetadataRequestTopic(name=name) for name in (mine, theirs, "unheard-of")]
    assert by_name(wire.ask(MetadataRequest(topics=names)).topics) == {
        mine: 0,
        theirs: TOPIC,
        "unheard-of": TOPIC,
    }
    hidden = MetadataRequestTopic(name=None, topic_id=topic_ids(wire_as("root"), theirs)[0])
    assert wire.ask(MetadataRequest(topics=[hidden])).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    old = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=theirs)]), 0)
    assert by_name(old.topics) == {theirs: TOPIC}
    assert [topic.name for topic in wire.ask(MetadataRequest(topics=[]), 0).topics] == [mine]


def test_a_topic_is_made_unasked_only_for_whom_may_use_it(
    secured: Secured, wire_as: Connect, role: str
) -> None:
    name = f"auto-{role}"
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    assert wire_as("nobody").ask(asked).topics[0].error_code == TOPIC
    looked = MetadataRequest(topics=asked.topics, allow_auto_topic_creation=False)
    assert wire_as("root").ask(looked).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    grant(secured, role, "produce", on=name)
    wire_as(role).ask(asked)
    assert wire_as(role).ask(asked).topics[0].error_code == 0


def test_offsets_and_descriptions_are_refused_per_topic(
    secured: Secured, wire_as: Connect, role: str, topics: tuple[str, str]
) -> None:
    grant(secured, role, "consume", on=topics[0])
    wire = wire_as(role)
    rows = [
        listing.ListOffsetsTopic(
            name=name, partitions=[listing.ListOffsetsPartition(partition_index=0, timestamp=-1)]
        )
        for name in topics
    ]
    listed = wire.ask(listing.ListOffsetsRequest(topics=rows), 7).topics
    assert [(row.partitions[0].error_code, row.partitions[0].offset) for row in listed] == [
        (0, 1),
        (TOPIC, -1),
    ]
    asked = [
        epochs.OffsetForLeaderTopic(
            topic=name, partitions=[epochs.OffsetForLeaderPartition(partition=0, leader_epoch=0)]
        )
        for name in topics
    ]
    ended = wire.ask(epochs.OffsetForLeaderEpochRequest(topics=asked)).topics
    assert [row.partitions[0].error_code for row in ended] == [0, TOPIC]
    writers = [producers.TopicRequest(name=name, partition_indexes=[0]) for name in topics]
    told = wire.ask(producers.DescribeProducersRequest(topics=writers)).topics
    assert [row.partitions[0].error_code for row in told] == [0, TOPIC]
    described = wire.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in topics]))
    assert by_name(described.topics) == {topics[0]: 0, topics[1]: TOPIC}
    described = wire.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topics[1])]))
    assert by_name(described.topics) == {topics[1]: TOPIC}
    assert [each.name for each in wire.ask(DescribeTopicPartitionsRequest(topics=[])).topics] == [topics[0]]


def test_only_admins_change_topics(
    secured: Secured, wire_as: Connect, role: str, topics: tuple[str, str]
) -> None:
    grant(secured, role, "produce", "consume")
    name, wire = topics[0], wire_as(role)
    new = create.CreatableTopic(name=f"new-{role}", num_partitions=1, replication_factor=1)
    resource = {"resource_type": 2, "resource_name": name}

    def everything(wire: Wire) -> list[int]:
        truncated = trim.DeleteRecordsTopic(
            name=name, partitions=[trim.DeleteRecordsPartition(partition_index=0, offset=1)]
        )
        return [
            wire.ask(create.CreateTopicsRequest(topics=[new])).topics[0].error_code,
            wire.ask(
                grow.CreatePartitionsRequest(
                    topics=[grow.CreatePartitionsTopic(name=name, count=2, assignments=None)]
                )
            )
            .results[0]
            .error_code,
            wire.ask(trim.DeleteRecordsRequest(topics=[truncated])).topics[0].partitions[0].error_code,
            wire.ask(
                alter.AlterConfigsRequest(resources=[alter.AlterConfigsResource(**resource, configs=[])])
            )
            .responses[0]
            .error_code,
            wire.ask(
                increment.IncrementalAlterConfigsRequest(
                    resources=[increment.AlterConfigsResource(**resource, configs=[])]
                )
            )
            .responses[0]
            .error_code,
            wire.ask(delete.DeleteTopicsRequest(topics=[delete.DeleteTopicState(name=name)]))
            .responses[0]
            .error_code,
            wire.ask(delete.DeleteTopicsRequest(topic_names=[topics[1]]), 5).responses[0].error_code,
        ]

    assert everything(wire) == [TOPIC] * 7
    configs = describe.DescribeConfigsRequest(resources=[describe.DescribeConfigsResource(**resource)])
    configs.resources[0].configuration_keys = None
    assert wire.ask(configs).results[0].error_code == 0
    assert wire_as("nobody").ask(configs).results[0].error_code == TOPIC
    ask(secured.process.data, "set-admins", tenant="public", roles=[role])
    try:
        assert everything(wire) == [0] * 7
    finally:
        ask(secured.process.data, "set-admins", tenant="public", roles=[])


def test_the_cluster_is_for_super_users(wire_as: Connect) -> None:
    def everything(wire: Wire) -> list[int]:
        broker = {"resource_type": 4, "resource_name": "0"}
        return [
            wire.ask(DescribeLogDirsRequest(topics=None)).error_code,
            wire.ask(ListConfigResourcesRequest()).error_code,
            wire.ask(ElectLeadersRequest(topic_partitions=None)).error_code,
            wire.ask(AlterPartitionReassignmentsRequest()).error_code,
            wire.ask(ListPartitionReassignmentsRequest()).error_code,
            wire.ask(
                describe.DescribeConfigsRequest(
                    resources=[describe.DescribeConfigsResource(**broker, configuration_keys=None)]
                )
            )
            .results[0]
            .error_code,
            wire.ask(
                increment.IncrementalAlterConfigsRequest(
                    resources=[increment.AlterConfigsResource(**broker, configs=[])]
                )
            )
            .responses[0]
            .error_code,
        ]

    assert everything(wire_as("nobody")) == [CLUSTER] * 7
    assert everything(wire_as("root")) == [0] * 7
    election = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])])
    for version in range(3):
        (topic,) = wire_as("nobody").ask(election, version).replica_election_results
        assert topic.partition_result[0].error_code == CLUSTER
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert wire_as("nobody").ask(asked).cluster_authorized_operations == 0
    assert wire_as("root").ask(asked).cluster_authorized_operations > 1 << 12


def test_who_may_write_something_may_write_idempotently(
    secured: Secured, wire_as: Connect, role: str, topics: tuple[str, str]
) -> None:
    asked = InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1)
    grant(secured, role, "consume")
    assert wire_as(role).ask(asked, 4).error_code == CLUSTER
    grant(secured, role, "produce", on=topics[0])
    assert wire_as(role).ask(asked, 4).error_code == 0
    transactional = InitProducerIdRequest(transactional_id="t", producer_id=-1, producer_epoch=-1)
    assert (
        wire_as("nobody").ask(transactional, 4).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )


def group_codes(wire: Wire, group: str, topic: str) -> dict[str, int]:
    """Ask for everything about a group; give what went wrong, by API."""
    row = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    found = {
        "find": wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
        .coordinators[0]
        .error_code,
        "find v2": wire.ask(FindCoordinatorRequest(key_type=0, key=group), 2).error_code,
        "commit": wire.ask(
            commit.OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=-1,
                topics=[commit.OffsetCommitRequestTopic(name=topic, partitions=[row])],
            ),
            8,
        )
        .topics[0]
        .partitions[0]
        .error_code,
        "fetch": wire.ask(
            committed.OffsetFetchRequest(
                groups=[committed.OffsetFetchRequestGroup(group_id=group, topics=None)]
            ),
            8,
        )
        .groups[0]
        .error_code,
        "fetch v5": wire.ask(
            committed.OffsetFetchRequest(
                group_id=group,
                topics=[committed.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])],
            ),
            5,
        ).error_code,
        "describe": wire.ask(DescribeGroupsRequest(groups=[group]), 5).groups[0].error_code,
        "delete offsets": wire.ask(forget.OffsetDeleteRequest(group_id=group, topics=[])).error_code,
        "delete": wire.ask(DeleteGroupsRequest(groups_names=[group])).results[0].error_code,
    }
    return {name: code for name, code in found.items() if code}


def test_a_group_is_for_whom_may_consume(
    secured: Secured, wire_as: Connect, role: str, topics: tuple[str, str]
) -> None:
    group = f"group-{role}"
    grant(secured, role, "produce")
    refused = group_codes(wire_as(role), group, topics[0])
    assert set(refused.values()) == {GROUP}
    assert len(refused) == 8
    wire = wire_as(role)
    for request in (
        JoinGroupRequest(group_id=group, session_timeout_ms=10000, protocol_type="consumer"),
        HeartbeatRequest(group_id=group),
        LeaveGroupRequest(group_id=group),
        SyncGroupRequest(group_id=group, protocol_type="consumer", protocol_name="range"),
    ):
        assert wire.ask(request).error_code == GROUP
    join = JoinGroupRequest(group_id=group, session_timeout_ms=10000, protocol_type="consumer")
    assert [wire.ask(join, version).protocol_name for version in (6, 7)] == ["", None]  # as Kafka's brokers
    grant(secured, role, "consume", on=topics[0])
    assert group_codes(wire_as(role), group, topics[0]) == {}


def test_offsets_of_topics_that_may_not_be_seen_are_refused_or_left_out(
    secured: Secured, wire_as: Connect, role: str, topics: tuple[str, str]
) -> None:
    mine, theirs = topics
    group = f"group-{role}"
    row = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    both = commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[commit.OffsetCommitRequestTopic(name=name, partitions=[row]) for name in topics],
    )
    assert wire_as("root").ask(both, 8).topics[1].partitions[0].error_code == 0
    grant(secured, role, "consume", on=mine)
    wire = wire_as(role)
    assert [topic.partitions[0].error_code for topic in wire.ask(both, 8).topics] == [0, TOPIC]

    def fetched(topics: list[committed.OffsetFetchRequestTopics] | None) -> dict[str, tuple[int, int]]:
        asked = committed.OffsetFetchRequestGroup(group_id=group, topics=topics)
        answer = wire.ask(committed.OffsetFetchRequest(groups=[asked]), 8).groups[0]
        return {
            topic.name: (topic.partitions[0].error_code, topic.partitions[0].committed_offset)
            for topic in answer.topics
        }

    named = [committed.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in topics]
    assert fetched(named) == {mine: (0, 1), theirs: (TOPIC, -1)}
    assert fetched(None) == {mine: (0, 1)}


def test_a_subscription_of_some_is_closed_to_others_groups(
    secured: Secured, wire_as: Connect, role: str, topics: tuple[str, str]
) -> None:
    group = f"group-{role}"
    for each in (role, f"{role}-2"):
        grant(secured, each, "consume")
    ask(secured.process.data, "restrict", namespace=NAMESPACE, subscription=group, roles=[role])
    assert group_codes(wire_as(role), group, topics[0]) == {}
    assert set(group_codes(wire_as(f"{role}-2"), group, topics[0]).values()) == {GROUP}
    wire = wire_as("root")
    row = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    kept = commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[commit.OffsetCommitRequestTopic(name=topics[0], partitions=[row])],
    )
    assert wire.ask(kept, 8).topics[0].partitions[0].error_code == 0
    listed = {each: wire_as(each).ask(ListGroupsRequest()).groups for each in ("root", role, f"{role}-2")}
    shown = {each: group in [row.group_id for row in rows] for each, rows in listed.items()}
    assert shown == {"root": True, role: True, f"{role}-2": False}


def test_a_revoked_grant_is_gone_at_once(
    secured: Secured, wire_as: Connect, role: str, topics: tuple[str, str]
) -> None:
    wire = wire_as(role)
    assert produce(wire, topics[0], BATCH).error_code == TOPIC
    grant(secured, role, "produce")
    assert produce(wire, topics[0], BATCH).error_code == 0
    ask(secured.process.data, "revoke", target=NAMESPACE, role=role)
    assert produce(wire, topics[0], BATCH).error_code == TOPIC


def test_no_secret_is_told_to_anybody(wire_as: Connect) -> None:
    resource = describe.DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=None)
    asked = describe.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    told = {row.name: row for row in wire_as("root").ask(asked).results[0].configs}
    key = told["token.secret.key"]
    assert (key.is_sensitive, key.value, {each.value for each in key.synonyms}) == (True, None, {None})
    assert SECRET_URL not in repr(told)
