"""The answer to a member of a streams group: its tasks, the group's problems, and the tasks at other endpoints."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.kafka.coordinators.streams.group import StreamsGroup, StreamsMember, TaskPair, Tasks
from magnetar.kafka.coordinators.streams.reconcile import flat, tasks
from magnetar.kafka.coordinators.streams.settings import StreamsSettings
from magnetar.kafka.coordinators.streams.topology import sources
from magnetar.kafka.coordinators.topics import Topics
from magnetar.wire.kafka.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest
from magnetar.wire.kafka.messages.streams_group_heartbeat_response import (
    Endpoint,
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatResponse,
    TaskIds,
    TopicPartition,
)

_STALE_TOPOLOGY, _SHUTDOWN_APPLICATION, _ASSIGNMENT_DELAYED = 0, 4, 5
_RECOVERY_LAG = 10_000
_OFFSET_INTERVAL_MS = 60_000
"""Kafka's defaults for warm-ups, which are never assigned here."""


def member_is_told(
    group: StreamsGroup,
    before: StreamsMember,
    member: StreamsMember,
    is_new: bool,
    request: StreamsGroupHeartbeatRequest,
    said: TaskPair | None,
) -> bool:
    """True if the answer lists the member's tasks; note where that changes what others may query it for.

    ``said`` is what it reports to have, if it reports anything.
    """
    changed = member.tasks != before.tasks
    moved = member.endpoint != (None if is_new else before.endpoint)
    if moved or (changed and member.endpoint is not None):
        group.endpoint_epoch += 1
    # A member that is an epoch behind, or reports other tasks, has missed an answer: it may have got some tasks, or
    # been asked to give some up, without a new epoch.
    is_behind = request.member_epoch != before.epoch or (said is not None and said != member.tasks)
    return changed or request.member_epoch == 0 or is_behind


def answer_of(
    group: StreamsGroup,
    member: StreamsMember,
    settings: StreamsSettings,
    request: StreamsGroupHeartbeatRequest,
    topics: Topics,
    api_version: int,
    *,
    is_told: bool,
    delayed_by: str,
) -> StreamsGroupHeartbeatResponse:
    """Return the answer to a heartbeat."""
    answer = StreamsGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=settings.group_streams_heartbeat_interval_ms,
        task_offset_interval_ms=_OFFSET_INTERVAL_MS,
        acceptable_recovery_lag=_RECOVERY_LAG,
        acceptable_recovery_lag_legacy=0 if api_version else _RECOVERY_LAG,
        status=_status(group, member, delayed_by),
        endpoint_information_epoch=group.endpoint_epoch,
    )
    if is_told:
        answer.active_tasks = _rows(member.tasks.active)
        answer.standby_tasks = _rows(member.tasks.standby)
        answer.warmup_tasks = []
    if group.endpoint_epoch != request.endpoint_information_epoch:
        answer.partitions_by_user_endpoint = _by_endpoint(group, topics)
    return answer


def _status(group: StreamsGroup, member: StreamsMember, delayed_by: str) -> list[Status]:
    found = []
    assert group.topology is not None
    if member.topology_epoch < group.topology.epoch:
        detail = (
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch "
            f"{group.topology.epoch}."
        )
        found.append(Status(status_code=_STALE_TOPOLOGY, status_detail=detail))
    if delayed_by:
        detail = f"Assignment delayed due to the configured {delayed_by}."
        found.append(Status(status_code=_ASSIGNMENT_DELAYED, status_detail=detail))
    if group.configured is not None and group.configured.problem is not None:
        problem = group.configured.problem
        found.append(Status(status_code=problem.code, status_detail=problem.detail))
    if group.shutdown_by:
        detail = (
            f"Streams group member {group.shutdown_by} encountered a fatal error and requested a shutdown for the "
            "entire application."
        )
        found.append(Status(status_code=_SHUTDOWN_APPLICATION, status_detail=detail))
    return found


def _rows(some: Tasks) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=subtopology, partitions=sorted(numbers))
        for subtopology, numbers in sorted(some.items())
    ]


def _by_endpoint(group: StreamsGroup, topics: Topics) -> list[EndpointToPartitions]:
    """Return the partitions that each endpoint serves, once: the threads of one application share an endpoint.

    A Kafka broker lists each thread, and Java's client then knows only the last one's partitions.
    """
    found: dict[tuple[str, int], list[TaskPair]] = {}
    for each in group.members.values():
        if each.endpoint is not None:
            found.setdefault(each.endpoint, []).append(each.tasks)
    return [
        EndpointToPartitions(
            user_endpoint=Endpoint(host=host, port=port),
            active_partitions=_partitions(group, _together(each.active for each in some), topics),
            standby_partitions=_partitions(group, _together(each.standby for each in some), topics),
        )
        for (host, port), some in found.items()
    ]


def _together(some: Iterable[Tasks]) -> Tasks:
    return tasks(task for each in some for task in flat(each))


def _partitions(group: StreamsGroup, some: Tasks, topics: Topics) -> list[TopicPartition]:
    assert group.topology is not None
    rows = []
    for part in group.topology.subtopologies:
        numbers = some.get(part.subtopology_id, frozenset())
        for name in sources(part):
            topic = topics.find(name)
            here = sorted(each for each in numbers if topic is not None and each < topic.partitions)
            if here:
                rows.append(TopicPartition(topic=name, partitions=here))
    return rows
