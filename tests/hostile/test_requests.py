"""Well-formed requests that ask for what cannot be: Kafka's code for each, and every version gets an answer."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.kafka.handlers import ROUTES
from magnetar.topics.names import CONSUMER_OFFSETS
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import request_class
from magnetar.wire.kafka.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from magnetar.wire.kafka.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from magnetar.wire.kafka.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from magnetar.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from magnetar.wire.kafka.messages.sync_group_request import SyncGroupRequest
from tests.hostile.client import Wire, fetch

VERSIONS = [(route, version) for route in ROUTES for version in range(route.first, route.last + 1)]


@pytest.mark.parametrize(("route", "version"), VERSIONS, ids=[f"{r.name}-{v}" for r, v in VERSIONS])
def test_an_empty_request_of_every_version_is_answered(wire: Wire, route: Any, version: int) -> None:
    request = request_class(route.api_key)()
    if route.name == "ApiVersions":
        request.client_software_name = request.client_software_version = "x"
    if route.name == "Produce":
        request.acks = 1
    wire.ask(request, version)


@pytest.mark.parametrize(
    ("offset", "asked", "code"),
    [
        (-1, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-(2**63), {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (10**15, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (2**63 - 1, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, {"current_leader_epoch": 5}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (0, {"current_leader_epoch": 2**31 - 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (0, {"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, {"partition": 2**31 - 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, {"partition_max_bytes": -1}, ErrorCode.NONE),
        (0, {"partition_max_bytes": 2**31 - 1}, ErrorCode.NONE),
    ],
)
def test_fetches_that_cannot_be(
    wire: Wire, topic: str, offset: int, asked: dict[str, int], code: ErrorCode
) -> None:
    row = fetch(wire, topic, offset, **asked)
    assert ErrorCode(row.error_code) is code
    if code:
        assert (row.high_watermark, row.log_start_offset) == (-1, -1), "as Kafka has it"


def test_a_fetch_of_an_unknown_topic_or_id(wire: Wire) -> None:
    assert fetch(wire, "nowhere", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = [FetchTopic(topic_id=b"\x07" * 16, partitions=[FetchPartition()])]
    answer = wire.ask(FetchRequest(max_wait_ms=0, session_epoch=-1, topics=topics), 13)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_fetch_sessions_that_do_not_exist(wire: Wire, topic: str) -> None:
    def ask(**session: int) -> Any:
        topics = [FetchTopic(topic=topic, partitions=[FetchPartition(partition_max_bytes=1 << 20)])]
        return wire.ask(FetchRequest(max_wait_ms=0, topics=topics, **session), 12)

    assert ask(session_id=12345, session_epoch=1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    made = ask(session_id=0, session_epoch=0)
    assert made.session_id != 0
    wrong = ask(session_id=made.session_id, session_epoch=7)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert ask(session_id=made.session_id, session_epoch=1).error_code == 0


@pytest.mark.parametrize(
    ("timestamp", "epoch", "partition", "code"),
    [
        (-1, 9, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-99, -1, 0, ErrorCode.UNSUPPORTED_VERSION),
        (-(2**63), -1, 0, ErrorCode.UNSUPPORTED_VERSION),
        (-1, -1, 77, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, -1, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2**63 - 1, -1, 0, ErrorCode.NONE),
    ],
)
def test_offsets_that_cannot_be_listed(
    wire: Wire, topic: str, timestamp: int, epoch: int, partition: int, code: ErrorCode
) -> None:
    row = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
    answer = wire.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[row])]))
    assert ErrorCode(answer.topics[0].partitions[0].error_code) is code


@pytest.mark.parametrize(("timestamp", "first"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_offsets_with_names_can_be_asked_for_since_kafkas_own_version(
    wire: Wire, topic: str, timestamp: int, first: int
) -> None:
    for version in (first - 1, first):
        rows = [ListOffsetsPartition(timestamp=timestamp)]
        answer = wire.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=rows)]), version)
        code = answer.topics[0].partitions[0].error_code
        assert (code == ErrorCode.UNSUPPORTED_VERSION) == (version < first), ErrorCode(code)


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_lists_the_ends_of_a_topic(wire: Wire, topic: str, version: int) -> None:
    rows = [ListOffsetsPartition(timestamp=timestamp) for timestamp in (-2, -1)]
    answer = wire.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=rows)]), version)
    first, last = answer.topics[0].partitions
    assert (first.error_code, first.offset, last.error_code) == (0, 0, 0)
    assert last.offset >= 3


def test_an_epoch_from_the_future_has_no_end(wire: Wire, topic: str) -> None:
    for current, asked, code in ((9, 0, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, 99, ErrorCode.NONE)):
        row = OffsetForLeaderPartition(current_leader_epoch=current, leader_epoch=asked)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[row])])
        found = wire.ask(request).topics[0].partitions[0]
        assert (found.error_code, found.end_offset) == (code, -1)


def delete_records(wire: Wire, topic: str, offset: int) -> ErrorCode:
    row = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[row])], timeout_ms=1000)
    return ErrorCode(wire.ask(request).topics[0].partitions[0].error_code)


@pytest.mark.parametrize("offset", [-2, -(2**63), 2**63 - 1])
def test_records_that_cannot_be_deleted(wire: Wire, topic: str, offset: int) -> None:
    assert delete_records(wire, topic, offset) is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("name", "policy", "code"),
    [
        ("kept-for-good", "", ErrorCode.NONE),
        ("compacted", "compact", ErrorCode.POLICY_VIOLATION),
        ("compacted-too", "compact,delete", ErrorCode.NONE),
    ],
)
def test_records_are_deleted_where_a_topic_lets_go_of_them(
    wire: Wire, name: str, policy: str, code: ErrorCode
) -> None:
    configs = [CreatableTopicConfig(name="cleanup.policy", value=policy)]
    made = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
    wire.ask(CreateTopicsRequest(topics=[made], timeout_ms=5000), 7)
    assert delete_records(wire, name, 0) is code


def test_coordinators_records_are_not_for_clients_to_delete(wire: Wire) -> None:
    wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=CONSUMER_OFFSETS)]), 4)
    assert delete_records(wire, CONSUMER_OFFSETS, 0) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", [3, 5])
def test_an_idempotent_producer_gets_an_id_of_its_own_whatever_it_names(wire: Wire, version: int) -> None:
    def ask(producer_id: int, epoch: int) -> tuple[ErrorCode, int, int]:
        request = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
        answer = wire.ask(request, version)
        return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch

    _, first, _ = ask(-1, -1)
    assert ask(first, 0) == (ErrorCode.NONE, first + 1, 0)
    assert ask(first + 2, 3) == (ErrorCode.NONE, first + 2, 0), "which was nobody's yet"
    assert ask(first, -1) == (ErrorCode.INVALID_REQUEST, -1, -1)
    assert ask(-1, 0) == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_an_answer_of_a_million_little_parts(wire: Wire, topic: str) -> None:
    many = TopicPartitions(topic=topic, partitions=list(range(240_000)))
    (answer,) = wire.ask(ElectLeadersRequest(topic_partitions=[many])).replica_election_results
    codes = [row.error_code for row in answer.partition_result]
    assert codes == [ErrorCode.ELECTION_NOT_NEEDED] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 239_999


def test_members_and_generations_that_do_not_exist(wire: Wire, topic: str) -> None:
    def join(member: str) -> Any:
        return wire.ask(
            JoinGroupRequest(
                group_id="hunted",
                session_timeout_ms=6000,
                rebalance_timeout_ms=6000,
                member_id=member,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            )
        )

    def commit(member: str, generation: int) -> int:
        rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
        topics = [OffsetCommitRequestTopic(name=topic, partitions=rows)]
        request = OffsetCommitRequest(
            group_id="hunted", generation_id_or_member_epoch=generation, member_id=member, topics=topics
        )
        return int(wire.ask(request, 8).topics[0].partitions[0].error_code)

    first = join("")
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    joined = join(first.member_id)
    assert joined.error_code == 0
    me, generation = joined.member_id, joined.generation_id

    def beat(member: str, generation: int) -> int:
        request = HeartbeatRequest(group_id="hunted", generation_id=generation, member_id=member)
        return int(wire.ask(request).error_code)

    def sync(member: str, generation: int) -> int:
        request = SyncGroupRequest(
            group_id="hunted",
            generation_id=generation,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
        )
        return int(wire.ask(request).error_code)

    for act in (beat, sync):
        assert act("stranger", generation) == ErrorCode.UNKNOWN_MEMBER_ID
        assert act(me, generation + 1) == ErrorCode.ILLEGAL_GENERATION
        assert act(me, -5) == ErrorCode.ILLEGAL_GENERATION
    assert join("stranger").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(me, generation) == 0
    assert commit("stranger", generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(me, generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert commit(me, generation) == 0
    left = wire.ask(LeaveGroupRequest(group_id="hunted", members=[MemberIdentity(member_id="stranger")]))
    assert left.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("partitions", "replicas", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-7, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 3, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_topics_of_an_impossible_shape(wire: Wire, partitions: int, replicas: int, code: ErrorCode) -> None:
    wanted = CreatableTopic(name="impossible", num_partitions=partitions, replication_factor=replicas)
    answer = wire.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=1000))
    assert ErrorCode(answer.topics[0].error_code) is code


def test_two_billion_partitions_are_not_even_begun(wire: Wire) -> None:
    wanted = CreatableTopic(name="endless", num_partitions=2**31 - 1, replication_factor=1)
    answer = wire.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=1000))
    assert answer.topics[0].error_code != 0


def test_metadata_of_names_that_cannot_be(wire: Wire) -> None:
    names = ["", "a b", "x" * 300, "a\0b", "../../etc/passwd", "__consumer_offsets-x/../y"]
    topics = [MetadataRequestTopic(name=name) for name in names]
    answer = wire.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)
    allowed = {ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert {ErrorCode(topic.error_code) for topic in answer.topics} <= allowed
