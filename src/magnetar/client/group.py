"""The only member of a classic consumer group: it joins, beats, commits offsets and leaves, by the broker's rules.

Its protocol's name is its own, so that the broker refuses everybody else (INCONSISTENT_GROUP_PROTOCOL) while it lives,
and it while anybody else does. Kafka's tools see a consumer with an assignment, offsets and lag.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from magnetar.client.cluster import Cluster, Partition
from magnetar.client.errors import BrokerRefused, ClientError, check
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from magnetar.wire.kafka.messages.consumer_protocol_assignment import TopicPartition as Assigned
from magnetar.wire.kafka.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from magnetar.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from magnetar.wire.kafka.messages.describe_groups_response import DescribeGroupsResponse
from magnetar.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from magnetar.wire.kafka.messages.heartbeat_response import HeartbeatResponse
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from magnetar.wire.kafka.messages.join_group_response import JoinGroupResponse
from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.offset_commit_response import OffsetCommitResponse
from magnetar.wire.kafka.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from magnetar.wire.kafka.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from magnetar.wire.kafka.message import Message

_TYPE = "consumer"
_METADATA_VERSION = 0
_COMMIT_VERSION = 9  # later ones name topics by id
_GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)
_TAKEN = (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_MAX_SIZE_REACHED)


class GroupTaken(ClientError):
    """Somebody else is a member of the group."""


class NoMember(ClientError):
    """The group went on without this member: it was silent for longer than its session, or has to join anew."""


class SoleMember:
    """Knows its place in the group. Every method raises ``ClientError``, and may be called again then."""

    def __init__(self, cluster: Cluster, group: str, *, session_timeout_ms: int) -> None:
        self._cluster = cluster
        self._group = group
        self._session_timeout_ms = session_timeout_ms
        self._protocol = f"magnetar-progress-{uuid.uuid4()}"
        self._member_id, self._generation = "", -1

    def join(self, partitions: Sequence[Partition]) -> None:
        """Become the member that has these partitions; raise `GroupTaken` while somebody else is in the group."""
        try:
            joined = self._join(partitions)
            self._generation = joined.generation_id
            answer: SyncGroupResponse = self._ask(
                SyncGroupRequest(
                    group_id=self._group,
                    generation_id=self._generation,
                    member_id=self._member_id,
                    protocol_type=_TYPE,
                    protocol_name=self._protocol,
                    assignments=[
                        SyncGroupRequestAssignment(
                            member_id=self._member_id, assignment=_assignment(partitions)
                        )
                    ],
                )
            )
            self._check(answer.error_code, "SyncGroup")
        except BrokerRefused as error:
            if error.code in _TAKEN:
                raise GroupTaken(f"group {self._group!r} has another member: {self._who()}") from None
            raise

    def heartbeat(self) -> None:
        """Say that it lives; raise `NoMember` if it has to join again."""
        answer: HeartbeatResponse = self._ask(
            HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
        )
        self._check(answer.error_code, "Heartbeat")

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Commit offsets as this member, in this generation; raise `NoMember` if it has to join again."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            )
        answer: OffsetCommitResponse = self._ask(
            OffsetCommitRequest(
                group_id=self._group,
                generation_id_or_member_epoch=self._generation,
                member_id=self._member_id,
                topics=[
                    OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()
                ],
            ),
            _COMMIT_VERSION,
        )
        for answered in answer.topics:
            for each in answered.partitions:
                self._check(each.error_code, f"OffsetCommit of {answered.name}-{each.partition_index}")

    def leave(self) -> None:
        """Leave, so that the next one need not wait for the session to end."""
        if self._generation >= 0:
            who = MemberIdentity(member_id=self._member_id, reason="the query ended")
            self._generation = -1
            self._ask(LeaveGroupRequest(group_id=self._group, members=[who]), 3)

    def _join(self, partitions: Sequence[Partition]) -> JoinGroupResponse:
        topics = sorted({topic for topic, _ in partitions})
        metadata = _versioned(ConsumerProtocolSubscription(topics=topics).encode(_METADATA_VERSION))
        while True:
            answer: JoinGroupResponse = self._ask(
                JoinGroupRequest(
                    group_id=self._group,
                    session_timeout_ms=self._session_timeout_ms,
                    rebalance_timeout_ms=self._session_timeout_ms,
                    member_id=self._member_id,
                    protocol_type=_TYPE,
                    protocols=[JoinGroupRequestProtocol(name=self._protocol, metadata=metadata)],
                )
            )
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
                continue
            self._check(answer.error_code, "JoinGroup")
            self._member_id = answer.member_id
            return answer

    def _ask(self, request: Message, version: int | None = None) -> Any:
        return self._cluster.coordinator(self._group).call(request, version)

    def _check(self, code: int, what: str) -> None:
        if code in _GONE:
            if code != ErrorCode.REBALANCE_IN_PROGRESS:
                self._member_id, self._generation = "", -1
            raise NoMember(f"{what}: group {self._group!r} went on without this query")
        check(code, f"{what}, group {self._group!r}")

    def _who(self) -> str:
        answer: DescribeGroupsResponse = self._ask(DescribeGroupsRequest(groups=[self._group]))
        members = [
            f"{each.client_id} at {each.client_host}" for group in answer.groups for each in group.members
        ]
        return ", ".join(members) or "it left just now"


def _assignment(partitions: Sequence[Partition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    assigned = [Assigned(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    return _versioned(ConsumerProtocolAssignment(assigned_partitions=assigned).encode(_METADATA_VERSION))


def _versioned(content: bytes) -> bytes:
    """Put the version before it, as Kafka's consumers do."""
    return _METADATA_VERSION.to_bytes(2, "big") + content
