"""Invalid heartbeats of streams groups. The words are Kafka's."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.bounds import check_topics
from magnetar.kafka.coordinators.streams.group import LEFT_FOR_A_MOMENT, TaskPair, Tasks
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    Topology,
)


def check(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuse what can never be granted."""

    def refuse(wrong: bool, why: str) -> None:
        if wrong:
            raise CoordinatorRefused(ErrorCode.INVALID_REQUEST, why)

    epoch, topology = request.member_epoch, request.topology
    if topology is not None:
        check_topics(max(len(topology.subtopologies), sum(map(_topics, topology.subtopologies))))
        regexes = any(each.source_topic_regex for each in topology.subtopologies)
        refuse(regexes, "Regular expressions for source topics are not supported yet.")
    refuse(not request.member_id.strip(), "MemberId can't be empty.")
    refuse(not request.group_id.strip(), "GroupId can't be empty.")
    refuse(request.instance_id is not None and not request.instance_id.strip(), "InstanceId can't be empty.")
    refuse(request.rack_id is not None and not request.rack_id.strip(), "RackId can't be empty.")
    kinds = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if epoch == 0:
        refuse(request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request.")
        for name, tasks in zip(("Active", "Standby", "Warmup"), kinds, strict=True):
            refuse(bool(tasks), f"{name}Tasks must be empty when (re-)joining.")
        refuse(topology is None, "Topology must be non-null when (re-)joining.")
        assert topology is not None
        _check_topology(topology)
    else:
        refuse(
            epoch == LEFT_FOR_A_MOMENT and request.instance_id is None,
            "InstanceId can't be null.",
        )
        refuse(
            epoch < LEFT_FOR_A_MOMENT,
            f"MemberEpoch is {epoch}, but must be greater than or equal to -2.",
        )
        refuse(topology is not None, "Topology can only be provided when (re-)joining.")
    refuse(
        any(each is not None for each in kinds) and any(each is None for each in kinds),
        "If one task-type is non-null, all must be non-null.",
    )


def _check_topology(topology: Topology) -> None:
    for part in topology.subtopologies:
        sources, repartitions = len(part.source_topics), len(part.repartition_source_topics)
        for group in part.copartition_groups:
            beyond = any(not 0 <= index < sources for index in group.source_topics) or any(
                not 0 <= index < repartitions for index in group.repartition_source_topics
            )
            if beyond:
                raise CoordinatorRefused(
                    ErrorCode.STREAMS_INVALID_TOPOLOGY,
                    f"A copartition group of subtopology {part.subtopology_id} names topics that it does not have.",
                )
    names = [part.subtopology_id for part in topology.subtopologies]
    if len(set(names)) != len(names):
        raise CoordinatorRefused(ErrorCode.STREAMS_INVALID_TOPOLOGY, "A subtopology comes twice.")


def owned(request: StreamsGroupHeartbeatRequest) -> TaskPair | None:
    """Return the tasks that a member reports to have; None if it reports nothing."""
    if request.active_tasks is None:
        return None
    return TaskPair(_tasks(request.active_tasks), _tasks(request.standby_tasks or []))


def _tasks(rows: list[TaskIds]) -> Tasks:
    return {each.subtopology_id: frozenset(each.partitions) for each in rows if each.partitions}


def _topics(part: Subtopology) -> int:
    """Return how many topics a part of a topology names."""
    internal = len(part.state_changelog_topics) + len(part.repartition_source_topics)
    return internal + len(part.source_topics) + len(part.repartition_sink_topics)


def check_owned(said: TaskPair | None, counts: Mapping[str, int]) -> None:
    """Refuse tasks that do not exist."""
    for tasks in said or ():
        for subtopology, numbers in tasks.items():
            if subtopology not in counts:
                raise CoordinatorRefused(
                    ErrorCode.INVALID_REQUEST, f"Subtopology {subtopology} does not exist in the topology."
                )
            for number in sorted(numbers):
                if not 0 <= number < counts[subtopology]:
                    raise CoordinatorRefused(
                        ErrorCode.INVALID_REQUEST,
                        f"Task {number} for subtopology {subtopology} is invalid. Number of tasks for this "
                        f"subtopology: {counts[subtopology]}",
                    )
