"""Consumer groups as operators and ConsumerGroupDescribe see them: values, detached from the coordinator."""

from __future__ import annotations

from magnetar.coordination.timers import TimerKey, Timers
from magnetar.kafka.coordinators.consumer.group import Assignment, ConsumerGroup, ConsumerMember
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.kafka.coordinators.topics import Topics
from magnetar.kafka.coordinators.views import GroupView, MemberView
from magnetar.wire.kafka.messages.consumer_group_describe_response import (
    Assignment as DescribedAssignment,
)
from magnetar.wire.kafka.messages.consumer_group_describe_response import (
    DescribedGroup,
    Member,
    TopicPartitions,
)
from magnetar.wire.kafka.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)

_CLASSIC, _CONSUMER = 0, 1
_VERSION_0 = bytes(2)


def described(group: ConsumerGroup, topics: Topics, settings: GroupSettings) -> DescribedGroup:
    """Return the group as ConsumerGroupDescribe returns it."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor(settings.group_consumer_assignors[0]),
        members=[_described(group, member, topics) for member in group.members.values()],
    )


def _described(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_spelled(_held(member), topics),
        target_assignment=_spelled(group.targets.get(member.member_id, {}), topics),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _held(member: ConsumerMember) -> Assignment:
    """Return what a member reads: also what it has yet to give up."""
    held = {topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()}
    for topic_id, partitions in member.revoking.items():
        held[topic_id] = held.get(topic_id, frozenset()) | partitions
    return held


def _spelled(assignment: Assignment, topics: Topics) -> DescribedAssignment:
    """Return partitions by topic name; those of a deleted topic have no name, and are omitted as in Kafka."""
    named = ((topic_id, topics.name_of(topic_id), partitions) for topic_id, partitions in assignment.items())
    return DescribedAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
            for topic_id, name, partitions in named
            if name is not None
        ]
    )


def consumer_view(
    group: ConsumerGroup, topics: Topics, settings: GroupSettings, timers: Timers, now_ms: int
) -> GroupView:
    """Return the group in the same terms as a classic one."""
    behind = [
        each.member_id for each in group.members.values() if not each.is_reconciled_to(group.assignment_epoch)
    ]
    return GroupView(
        group_id=group.group_id,
        state=group.state,
        since_ms=-1,
        generation=group.epoch,
        protocol_type="consumer",
        protocol=group.assignor(settings.group_consumer_assignors[0]),
        leader="",
        members=tuple(
            _member(group, member, topics, settings, timers, now_ms) for member in group.members.values()
        ),
        pending=(),
        missing=tuple(behind),
        time_left_ms=None,
        storing=group.assigning,
        reason="a change of members, subscriptions or topics",
        offsets=sum(map(len, group.offsets.values())),
        kind="consumer",
    )


def _member(
    group: ConsumerGroup,
    member: ConsumerMember,
    topics: Topics,
    settings: GroupSettings,
    timers: Timers,
    now_ms: int,
) -> MemberView:
    deadline_ms = timers.deadline(TimerKey("session", group.group_id, member.member_id))
    named = ((topics.name_of(topic_id), partitions) for topic_id, partitions in member.assigned.items())
    has = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=name, partitions=sorted(partitions))
            for name, partitions in named
            if name is not None
        ]
    )
    return MemberView(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=settings.group_consumer_session_timeout_ms
        if member.classic is None
        else member.classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        heard_ms_ago=now_ms - group.heard_ms.get(member.member_id, now_ms),
        session_left_ms=None if deadline_ms is None else max(deadline_ms - now_ms, 0),
        metadata=b"",
        assignment=_VERSION_0 + has.encode(0),
        waits_for="",
    )
