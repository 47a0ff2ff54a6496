"""The records of streams groups in ``__consumer_offsets``, as Kafka 4.4 writes them.

key    int16 kind, then its fields: 17 the group, 19 a member, 20 the target's epoch, 21 a member's target,
       22 what a member has, 23 the topology
value  int16 version (0), then its fields; a record without value says that the key is gone
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from magnetar.coordination.decision import Fact
from magnetar.kafka.coordinators.modern.facts import ModernFact, Readers, fact
from magnetar.kafka.coordinators.streams.group import (
    StreamsGroup,
    StreamsMember,
    TaskPair,
    Tasks,
    TasksState,
)
from magnetar.wire.kafka.messages import streams_group_current_member_assignment_value as current
from magnetar.wire.kafka.messages import streams_group_target_assignment_member_value as targets
from magnetar.wire.kafka.messages.streams_group_current_member_assignment_key import (
    StreamsGroupCurrentMemberAssignmentKey,
)
from magnetar.wire.kafka.messages.streams_group_member_metadata_key import StreamsGroupMemberMetadataKey
from magnetar.wire.kafka.messages.streams_group_member_metadata_value import (
    Endpoint,
    KeyValue,
    StreamsGroupMemberMetadataValue,
)
from magnetar.wire.kafka.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from magnetar.wire.kafka.messages.streams_group_metadata_value import (
    LastAssignmentConfig,
    StreamsGroupMetadataValue,
)
from magnetar.wire.kafka.messages.streams_group_target_assignment_member_key import (
    StreamsGroupTargetAssignmentMemberKey,
)
from magnetar.wire.kafka.messages.streams_group_target_assignment_metadata_key import (
    StreamsGroupTargetAssignmentMetadataKey,
)
from magnetar.wire.kafka.messages.streams_group_target_assignment_metadata_value import (
    StreamsGroupTargetAssignmentMetadataValue,
)
from magnetar.wire.kafka.messages.streams_group_topology_key import StreamsGroupTopologyKey
from magnetar.wire.kafka.messages.streams_group_topology_value import StreamsGroupTopologyValue

_GROUP, _MEMBER, _TARGET_EPOCH, _TARGET, _CURRENT, _TOPOLOGY = (
    kind.to_bytes(2, "big") for kind in (17, 19, 20, 21, 22, 23)
)


# Writing.


def group_fact(group: StreamsGroup) -> Fact:
    """Return the record of a group's epoch."""
    value = StreamsGroupMetadataValue(
        epoch=group.epoch,
        metadata_hash=group.metadata_hash,
        validated_topology_epoch=group.validated_topology_epoch,
        last_assignment_configs=[
            LastAssignmentConfig(key=key, value=text) for key, text in group.assignment_configs
        ],
    )
    return fact(_GROUP, StreamsGroupMetadataKey(group_id=group.group_id), value)


def topology_fact(group: StreamsGroup) -> Fact:
    """Return the record of a group's topology."""
    return fact(_TOPOLOGY, StreamsGroupTopologyKey(group_id=group.group_id), group.topology)


def member_fact(group_id: str, member: StreamsMember) -> Fact:
    """Return the record of what a member reported of itself."""
    endpoint = None if member.endpoint is None else Endpoint(host=member.endpoint[0], port=member.endpoint[1])
    value = StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=endpoint,
        client_tags=[KeyValue(key=key, value=text) for key, text in member.tags],
    )
    return fact(_MEMBER, StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def current_fact(group_id: str, member: StreamsMember) -> Fact:
    """Return the record of what a member has, and in which epoch."""
    value = current.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        active_tasks=_with_epochs(member, member.tasks.active),
        standby_tasks=_current(member.tasks.standby),
        active_tasks_pending_revocation=_with_epochs(member, member.revoking.active),
        standby_tasks_pending_revocation=_current(member.revoking.standby),
    )
    key = StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return fact(_CURRENT, key, value)


def target_fact(group_id: str, member_id: str, target: TaskPair) -> Fact:
    """Return the record of what a member should have."""
    value = targets.StreamsGroupTargetAssignmentMemberValue(
        active_tasks=_target(target.active), standby_tasks=_target(target.standby)
    )
    return fact(_TARGET, StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_epoch_fact(group: StreamsGroup) -> Fact:
    """Return the record of the epoch that all targets are for; it comes after them."""
    return fact(
        _TARGET_EPOCH,
        StreamsGroupTargetAssignmentMetadataKey(group_id=group.group_id),
        StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=group.assignment_epoch),
    )


def member_end(group_id: str, member_id: str) -> tuple[Fact, ...]:
    """Return the records of a member's end."""
    return (
        fact(_CURRENT, StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        fact(_TARGET, StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        fact(_MEMBER, StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    )


def group_end(group: StreamsGroup) -> Iterable[Fact]:
    """Return the records of a group's end."""
    for member_id in group.members:
        yield from member_end(group.group_id, member_id)
    yield fact(_TARGET_EPOCH, StreamsGroupTargetAssignmentMetadataKey(group_id=group.group_id), None)
    yield fact(_TOPOLOGY, StreamsGroupTopologyKey(group_id=group.group_id), None)
    yield fact(_GROUP, StreamsGroupMetadataKey(group_id=group.group_id), None)


def facts_of(group: StreamsGroup) -> Iterable[Fact]:
    """Return the records that make a group what it is."""
    yield group_fact(group)
    if group.topology is not None:
        yield topology_fact(group)
    for member in list(group.members.values()):
        yield member_fact(group.group_id, member)
    for member_id, target in list(group.targets.items()):
        yield target_fact(group.group_id, member_id, target)
    yield target_epoch_fact(group)
    for member in list(group.members.values()):
        yield current_fact(group.group_id, member)


def _with_epochs(member: StreamsMember, tasks: Tasks) -> list[current.TaskIds]:
    rows = _current(tasks)
    for row in rows:
        had = member.since.get(row.subtopology_id, {})
        row.assignment_epochs = [had.get(number, member.epoch) for number in row.partitions]
    return rows


def _current(tasks: Tasks) -> list[current.TaskIds]:
    return [
        current.TaskIds(subtopology_id=subtopology, partitions=sorted(numbers))
        for subtopology, numbers in sorted(tasks.items())
    ]


def _target(tasks: Tasks) -> list[targets.TaskIds]:
    return [
        targets.TaskIds(subtopology_id=subtopology, partitions=sorted(numbers))
        for subtopology, numbers in sorted(tasks.items())
    ]


# Reading.


def _read_group(key: bytes, value: bytes | None) -> ModernFact[StreamsGroup]:
    group_id = StreamsGroupMetadataKey.decode(key, 0).group_id
    if value is None:
        return ModernFact(group_id, lambda group: None, is_end=True, ends=True)
    said = StreamsGroupMetadataValue.decode(value, 0)

    def apply(group: StreamsGroup) -> None:
        group.epoch, group.metadata_hash = said.epoch, said.metadata_hash
        group.validated_topology_epoch = said.validated_topology_epoch
        group.assignment_configs = tuple(
            (each.key, each.value) for each in said.last_assignment_configs or ()
        )

    return ModernFact(group_id, apply)


def _read_topology(key: bytes, value: bytes | None) -> ModernFact[StreamsGroup]:
    group_id = StreamsGroupTopologyKey.decode(key, 0).group_id
    said = None if value is None else StreamsGroupTopologyValue.decode(value, 0)

    def apply(group: StreamsGroup) -> None:
        group.topology = said

    return ModernFact(group_id, apply, is_end=said is None)


def _read_member(key: bytes, value: bytes | None) -> ModernFact[StreamsGroup]:
    name = StreamsGroupMemberMetadataKey.decode(key, 0)
    member_id = name.member_id
    if value is None:
        return ModernFact(name.group_id, lambda group: group.remove(member_id), is_end=True)
    said = StreamsGroupMemberMetadataValue.decode(value, 0)
    endpoint = None if said.user_endpoint is None else (said.user_endpoint.host, said.user_endpoint.port)

    def apply(group: StreamsGroup) -> None:
        known = group.members.get(member_id) or StreamsMember(member_id)
        group.put(
            replace(
                known,
                instance_id=said.instance_id,
                rack_id=said.rack_id,
                client_id=said.client_id,
                client_host=said.client_host,
                rebalance_timeout_ms=said.rebalance_timeout_ms,
                topology_epoch=said.topology_epoch,
                process_id=said.process_id,
                endpoint=endpoint,
                tags=tuple((each.key, each.value) for each in said.client_tags),
            )
        )

    return ModernFact(name.group_id, apply)


def _read_target_epoch(key: bytes, value: bytes | None) -> ModernFact[StreamsGroup]:
    group_id = StreamsGroupTargetAssignmentMetadataKey.decode(key, 0).group_id
    if value is None:
        return ModernFact(group_id, lambda group: None, is_end=True)
    epoch = StreamsGroupTargetAssignmentMetadataValue.decode(value, 0).assignment_epoch

    def apply(group: StreamsGroup) -> None:
        group.assignment_epoch = epoch

    return ModernFact(group_id, apply)


def _read_target(key: bytes, value: bytes | None) -> ModernFact[StreamsGroup]:
    name = StreamsGroupTargetAssignmentMemberKey.decode(key, 0)
    member_id = name.member_id
    if value is None:
        return ModernFact(name.group_id, lambda group: group.targets.pop(member_id, None), is_end=True)
    said = targets.StreamsGroupTargetAssignmentMemberValue.decode(value, 0)
    target = TaskPair(_tasks(said.active_tasks), _tasks(said.standby_tasks))

    def apply(group: StreamsGroup) -> None:
        group.targets[member_id] = target

    return ModernFact(name.group_id, apply)


def _read_current(key: bytes, value: bytes | None) -> ModernFact[StreamsGroup]:
    name = StreamsGroupCurrentMemberAssignmentKey.decode(key, 0)
    blank = current.StreamsGroupCurrentMemberAssignmentValue()
    said = None if value is None else current.StreamsGroupCurrentMemberAssignmentValue.decode(value, 0)

    def apply(group: StreamsGroup) -> None:
        known = group.members.get(name.member_id)
        if said is not None or known is not None:
            group.put(_with_current(known or StreamsMember(name.member_id), said or blank))

    return ModernFact(name.group_id, apply, is_end=said is None)


def _with_current(
    member: StreamsMember, said: current.StreamsGroupCurrentMemberAssignmentValue
) -> StreamsMember:
    since: dict[str, dict[int, int]] = {}
    for row in (*said.active_tasks, *said.active_tasks_pending_revocation):
        epochs = row.assignment_epochs or []
        if len(epochs) != len(row.partitions):
            epochs = [said.member_epoch] * len(row.partitions)
        since.setdefault(row.subtopology_id, {}).update(zip(row.partitions, epochs, strict=True))
    known = said.state in TasksState._value2member_map_
    return replace(
        member,
        epoch=said.member_epoch,
        previous_epoch=said.previous_member_epoch,
        state=TasksState(said.state) if known else TasksState.UNKNOWN,
        # Kafka's warm-ups are no tasks here: a task that has caught up is reported again as a standby.
        tasks=TaskPair(_tasks(said.active_tasks), _tasks(said.standby_tasks)),
        revoking=TaskPair(
            _tasks(said.active_tasks_pending_revocation), _tasks(said.standby_tasks_pending_revocation)
        ),
        since=since,
    )


def _tasks(rows: Iterable[current.TaskIds | targets.TaskIds]) -> Tasks:
    return {each.subtopology_id: frozenset(each.partitions) for each in rows if each.partitions}


READERS: Readers = {
    _GROUP: _read_group,
    _TOPOLOGY: _read_topology,
    _MEMBER: _read_member,
    _TARGET_EPOCH: _read_target_epoch,
    _TARGET: _read_target,
    _CURRENT: _read_current,
}
