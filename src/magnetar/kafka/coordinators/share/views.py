"""Share groups as operators and ShareGroupDescribe see them: values, detached from the coordinator."""

from __future__ import annotations

from magnetar.coordination.timers import TimerKey, Timers
from magnetar.kafka.coordinators.share.group import Assignment, ShareGroup, ShareMember
from magnetar.kafka.coordinators.share.settings import ShareSettings
from magnetar.kafka.coordinators.topics import Topics
from magnetar.kafka.coordinators.views import GroupView, MemberView
from magnetar.wire.kafka.messages.share_group_describe_response import (
    Assignment as DescribedAssignment,
)
from magnetar.wire.kafka.messages.share_group_describe_response import (
    DescribedGroup,
    Member,
    TopicPartitions,
)

ASSIGNOR = "simple"


def described(group: ShareGroup, topics: Topics) -> DescribedGroup:
    """Return the group as ShareGroupDescribe returns it."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=[
            Member(
                member_id=member.member_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.topics),
                assignment=_spelled(member.assigned, topics),
            )
            for member in group.members.values()
        ],
    )


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


def share_view(group: ShareGroup, settings: ShareSettings, timers: Timers, now_ms: int) -> GroupView:
    """Return the group in the same terms as any other."""
    return GroupView(
        group_id=group.group_id,
        state=group.state,
        since_ms=-1,
        generation=group.epoch,
        protocol_type="share",
        protocol=ASSIGNOR,
        leader="",
        members=tuple(_member(group, member, settings, timers, now_ms) for member in group.members.values()),
        pending=(),
        missing=(),
        time_left_ms=None,
        storing=False,
        reason="",
        offsets=0,
        kind="share",
    )


def _member(
    group: ShareGroup, member: ShareMember, settings: ShareSettings, timers: Timers, now_ms: int
) -> MemberView:
    deadline_ms = timers.deadline(TimerKey("session", group.group_id, member.member_id))
    return MemberView(
        member_id=member.member_id,
        instance_id=None,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=settings.group_share_session_timeout_ms,
        rebalance_timeout_ms=-1,
        heard_ms_ago=now_ms - group.heard_ms.get(member.member_id, now_ms),
        session_left_ms=None if deadline_ms is None else max(deadline_ms - now_ms, 0),
        metadata=b"",
        assignment=b"",
        waits_for="",
    )
