"""Streams groups as operators and StreamsGroupDescribe see them: values, detached from the coordinator."""

from __future__ import annotations

from magnetar.coordination.timers import TimerKey, Timers
from magnetar.kafka.coordinators.streams.group import StreamsGroup, StreamsMember, TaskPair, Tasks
from magnetar.kafka.coordinators.streams.settings import StreamsSettings
from magnetar.kafka.coordinators.views import GroupView, MemberView
from magnetar.wire.kafka.messages import streams_group_topology_value as stored
from magnetar.wire.kafka.messages.streams_group_describe_response import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)

ASSIGNOR = "sticky"


def described(group: StreamsGroup) -> DescribedGroup:
    """Return the group as StreamsGroupDescribe returns it."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=None if group.topology is None else _topology(group, group.topology),
        members=[_described(group, member) for member in group.members.values()],
        assignor_name=ASSIGNOR,
    )


def _topology(group: StreamsGroup, topology: stored.StreamsGroupTopologyValue) -> Topology:
    sizes = {} if group.configured is None else group.configured.partitions

    def infos(topics: list[stored.TopicInfo]) -> list[TopicInfo]:
        return [
            TopicInfo(
                name=each.name,
                partitions=sizes.get(each.name, each.partitions),
                replication_factor=each.replication_factor,
                topic_configs=[KeyValue(key=config.key, value=config.value) for config in each.topic_configs],
            )
            for each in topics
        ]

    return Topology(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=list(part.source_topics),
                repartition_sink_topics=list(part.repartition_sink_topics),
                state_changelog_topics=infos(part.state_changelog_topics),
                repartition_source_topics=infos(part.repartition_source_topics),
            )
            for part in topology.subtopologies
        ],
    )


def _described(group: StreamsGroup, member: StreamsMember) -> Member:
    endpoint = None if member.endpoint is None else Endpoint(host=member.endpoint[0], port=member.endpoint[1])
    return Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=endpoint,
        client_tags=[KeyValue(key=key, value=text) for key, text in member.tags],
        assignment=_assignment(member.tasks),
        target_assignment=_assignment(group.targets.get(member.member_id, TaskPair())),
    )


def _assignment(pair: TaskPair) -> Assignment:
    return Assignment(active_tasks=_rows(pair.active), standby_tasks=_rows(pair.standby))


def _rows(tasks: Tasks) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=subtopology, partitions=sorted(numbers))
        for subtopology, numbers in sorted(tasks.items())
    ]


def streams_view(group: StreamsGroup, settings: StreamsSettings, timers: Timers, now_ms: int) -> GroupView:
    """Return the group in the same terms as a classic one."""
    behind = [
        each.member_id for each in group.members.values() if not each.is_reconciled_to(group.assignment_epoch)
    ]
    return GroupView(
        group_id=group.group_id,
        state=group.state,
        since_ms=-1,
        generation=group.epoch,
        protocol_type="streams",
        protocol=ASSIGNOR,
        leader="",
        members=tuple(_member(group, member, settings, timers, now_ms) for member in group.members.values()),
        pending=(),
        missing=tuple(behind),
        time_left_ms=None,
        storing=False,
        reason="a change of members, of the topology or of topics",
        offsets=sum(map(len, group.offsets.values())),
        kind="streams",
    )


def _member(
    group: StreamsGroup, member: StreamsMember, settings: StreamsSettings, timers: Timers, now_ms: int
) -> MemberView:
    deadline_ms = timers.deadline(TimerKey("session", group.group_id, member.member_id))
    return MemberView(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=settings.group_streams_session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        heard_ms_ago=now_ms - group.heard_ms.get(member.member_id, now_ms),
        session_left_ms=None if deadline_ms is None else max(deadline_ms - now_ms, 0),
        metadata=b"",
        assignment=b"",
        waits_for="",
    )
