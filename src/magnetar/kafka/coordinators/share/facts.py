"""The records of share groups in ``__consumer_offsets``, as Kafka 4.x writes them.

    key    int16 kind, then its fields: 10 a member, 11 the group, 12 the target's epoch, 13 a member's target,
           14 what a member has, 15 which partitions have a state
    value  int16 version (0), then its fields; a record without value says that the key is gone

Kind 15 is skipped: the state partitions themselves know which states there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from magnetar.coordination.decision import Fact
from magnetar.kafka.coordinators.modern.facts import ModernFact, Readers, fact
from magnetar.kafka.coordinators.share.group import Assignment, ShareGroup, ShareMember
from magnetar.wire.kafka.messages.share_group_current_member_assignment_key import (
    ShareGroupCurrentMemberAssignmentKey,
)
from magnetar.wire.kafka.messages.share_group_current_member_assignment_value import (
    ShareGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from magnetar.wire.kafka.messages.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from magnetar.wire.kafka.messages.share_group_member_metadata_value import ShareGroupMemberMetadataValue
from magnetar.wire.kafka.messages.share_group_metadata_key import ShareGroupMetadataKey
from magnetar.wire.kafka.messages.share_group_metadata_value import ShareGroupMetadataValue
from magnetar.wire.kafka.messages.share_group_target_assignment_member_key import (
    ShareGroupTargetAssignmentMemberKey,
)
from magnetar.wire.kafka.messages.share_group_target_assignment_member_value import (
    ShareGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from magnetar.wire.kafka.messages.share_group_target_assignment_metadata_key import (
    ShareGroupTargetAssignmentMetadataKey,
)
from magnetar.wire.kafka.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)

_MEMBER, _GROUP, _TARGET_EPOCH, _TARGET, _CURRENT, _STATES = (
    kind.to_bytes(2, "big") for kind in (10, 11, 12, 13, 14, 15)
)
_STABLE = 0


# Writing.


def group_fact(group: ShareGroup) -> Fact:
    """Return the record of a group's epoch."""
    value = ShareGroupMetadataValue(epoch=group.epoch, metadata_hash=group.metadata_hash)
    return fact(_GROUP, ShareGroupMetadataKey(group_id=group.group_id), value)


def member_fact(group_id: str, member: ShareMember) -> Fact:
    """Return the record of what a member reported of itself."""
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )
    return fact(_MEMBER, ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def current_fact(group_id: str, member: ShareMember) -> Fact:
    """Return the record of what a member has, and in which epoch."""
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=_STABLE,
        assigned_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(member.assigned.items())
        ],
    )
    key = ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return fact(_CURRENT, key, value)


def target_fact(group_id: str, member_id: str, target: Assignment) -> Fact:
    """Return the record of what a member should have."""
    value = ShareGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(target.items())
        ]
    )
    return fact(_TARGET, ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_epoch_fact(group: ShareGroup) -> Fact:
    """Return the record of the epoch that all targets are for; it comes after them."""
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=group.assignment_epoch)
    return fact(_TARGET_EPOCH, ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id), value)


def member_end(group_id: str, member_id: str) -> tuple[Fact, ...]:
    """Return the records of a member's end."""
    return (
        fact(_CURRENT, ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        fact(_TARGET, ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        fact(_MEMBER, ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    )


def group_end(group: ShareGroup) -> Iterable[Fact]:
    """Return the records of a group's end."""
    for member_id in group.members:
        yield from member_end(group.group_id, member_id)
    yield fact(_TARGET_EPOCH, ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id), None)
    yield fact(_GROUP, ShareGroupMetadataKey(group_id=group.group_id), None)


def facts_of(group: ShareGroup) -> Iterable[Fact]:
    """Return the records that make a group what it is."""
    yield group_fact(group)
    for member in list(group.members.values()):
        yield member_fact(group.group_id, member)
    for member_id, target in list(group.targets.items()):
        yield target_fact(group.group_id, member_id, target)
    yield target_epoch_fact(group)
    for member in list(group.members.values()):
        yield current_fact(group.group_id, member)


# Reading.


def _read_group(key: bytes, value: bytes | None) -> ModernFact[ShareGroup]:
    group_id = ShareGroupMetadataKey.decode(key, 0).group_id
    if value is None:
        return ModernFact(group_id, lambda group: None, is_end=True, ends=True)
    said = ShareGroupMetadataValue.decode(value, 0)

    def apply(group: ShareGroup) -> None:
        group.epoch, group.metadata_hash = said.epoch, said.metadata_hash

    return ModernFact(group_id, apply)


def _read_states(key: bytes, value: bytes | None) -> ModernFact[ShareGroup]:
    group_id = ShareGroupMetadataKey.decode(key, 0).group_id  # the same fields
    return ModernFact(group_id, lambda group: None, is_end=True)


def _read_member(key: bytes, value: bytes | None) -> ModernFact[ShareGroup]:
    name = ShareGroupMemberMetadataKey.decode(key, 0)
    member_id = name.member_id
    if value is None:
        return ModernFact(name.group_id, lambda group: group.remove(member_id), is_end=True)
    said = ShareGroupMemberMetadataValue.decode(value, 0)

    def apply(group: ShareGroup) -> None:
        known = group.members.get(member_id) or ShareMember(member_id)
        group.put(
            replace(
                known,
                rack_id=said.rack_id,
                client_id=said.client_id,
                client_host=said.client_host,
                topics=frozenset(said.subscribed_topic_names),
            )
        )

    return ModernFact(name.group_id, apply)


def _read_target_epoch(key: bytes, value: bytes | None) -> ModernFact[ShareGroup]:
    group_id = ShareGroupTargetAssignmentMetadataKey.decode(key, 0).group_id
    if value is None:
        return ModernFact(group_id, lambda group: None, is_end=True)
    epoch = ShareGroupTargetAssignmentMetadataValue.decode(value, 0).assignment_epoch

    def apply(group: ShareGroup) -> None:
        group.assignment_epoch = epoch

    return ModernFact(group_id, apply)


def _read_target(key: bytes, value: bytes | None) -> ModernFact[ShareGroup]:
    name = ShareGroupTargetAssignmentMemberKey.decode(key, 0)
    member_id = name.member_id
    if value is None:
        return ModernFact(name.group_id, lambda group: group.targets.pop(member_id, None), is_end=True)
    said = ShareGroupTargetAssignmentMemberValue.decode(value, 0)
    target = {each.topic_id: frozenset(each.partitions) for each in said.topic_partitions}

    def apply(group: ShareGroup) -> None:
        group.targets[member_id] = target

    return ModernFact(name.group_id, apply)


def _read_current(key: bytes, value: bytes | None) -> ModernFact[ShareGroup]:
    name = ShareGroupCurrentMemberAssignmentKey.decode(key, 0)
    said = None if value is None else ShareGroupCurrentMemberAssignmentValue.decode(value, 0)

    def apply(group: ShareGroup) -> None:
        known = group.members.get(name.member_id)
        now = said or ShareGroupCurrentMemberAssignmentValue()
        if known is None and said is None:
            return
        group.put(
            replace(
                known or ShareMember(name.member_id),
                epoch=now.member_epoch,
                previous_epoch=now.previous_member_epoch,
                assigned={
                    each.topic_id: frozenset(each.partitions)
                    for each in now.assigned_partitions
                    if each.partitions
                },
            )
        )

    return ModernFact(name.group_id, apply, is_end=said is None)


READERS: Readers = {
    _MEMBER: _read_member,
    _GROUP: _read_group,
    _TARGET_EPOCH: _read_target_epoch,
    _TARGET: _read_target,
    _CURRENT: _read_current,
    _STATES: _read_states,
}
