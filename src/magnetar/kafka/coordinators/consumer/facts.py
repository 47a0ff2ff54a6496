"""The records of consumer groups in ``__consumer_offsets``, as Kafka 4.x writes them.

    key    int16 kind, then its fields: 3 the group, 5 a member, 6 the target's epoch, 7 a member's target,
           8 what a member has, 16 the topics of a regular expression
    value  int16 version (0), then its fields; a record without value says that the key is gone

Kind 4, the sizes of subscribed topics, is what Kafka wrote before 4.1: it is passed over, as the next heartbeat finds
out what it says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from magnetar.coordination.decision import Fact
from magnetar.kafka.coordinators.consumer.group import (
    Assignment,
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
)
from magnetar.kafka.coordinators.modern.facts import ModernFact, Readers, fact
from magnetar.wire.kafka.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from magnetar.wire.kafka.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from magnetar.wire.kafka.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from magnetar.wire.kafka.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from magnetar.wire.kafka.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from magnetar.wire.kafka.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from magnetar.wire.kafka.messages.consumer_group_regular_expression_key import (
    ConsumerGroupRegularExpressionKey,
)
from magnetar.wire.kafka.messages.consumer_group_regular_expression_value import (
    ConsumerGroupRegularExpressionValue,
)
from magnetar.wire.kafka.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from magnetar.wire.kafka.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from magnetar.wire.kafka.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from magnetar.wire.kafka.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)

_GROUP, _SIZES, _MEMBER, _TARGET_EPOCH, _TARGET, _CURRENT, _REGEX = (
    kind.to_bytes(2, "big") for kind in (3, 4, 5, 6, 7, 8, 16)
)


# Writing.


def group_fact(group: ConsumerGroup) -> Fact:
    """Return the record of a group's epoch."""
    key = ConsumerGroupMetadataKey(group_id=group.group_id)
    value = ConsumerGroupMetadataValue(epoch=group.epoch, metadata_hash=group.metadata_hash)
    return fact(_GROUP, key, value)


def member_fact(group_id: str, member: ConsumerMember) -> Fact:
    """Return the record of what a member reported of itself."""
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=_classic(member.classic),
    )
    return fact(_MEMBER, key, value)


def current_fact(group_id: str, member: ConsumerMember) -> Fact:
    """Return the record of what a member has, and in which epoch."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_current(member, member.assigned),
        partitions_pending_revocation=_current(member, member.revoking),
    )
    return fact(_CURRENT, key, value)


def target_fact(group_id: str, member_id: str, target: Assignment) -> Fact:
    """Return the record of what a member should have."""
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(target.items())
        ]
    )
    return fact(_TARGET, key, value)


def target_epoch_fact(group: ConsumerGroup) -> Fact:
    """Return the record of the epoch that all targets are for; it comes after them."""
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id)
    return fact(
        _TARGET_EPOCH,
        key,
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=group.assignment_epoch),
    )


def regex_fact(group_id: str, regex: str, resolved: ResolvedRegex | None) -> Fact:
    """Return the record of an expression's topics, or that no member uses it any more."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    if resolved is None:
        return fact(_REGEX, key, None)
    value = ConsumerGroupRegularExpressionValue(topics=sorted(resolved.topics), timestamp=resolved.timestamp)
    return fact(_REGEX, key, value)


def member_end(group_id: str, member_id: str) -> tuple[Fact, ...]:
    """Return the records of a member's end, in Kafka's order."""
    return (
        fact(_CURRENT, ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        fact(_TARGET, ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        fact(_MEMBER, ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    )


def group_end(group: ConsumerGroup) -> Iterable[Fact]:
    """Return the records of a group's end."""
    for member_id in group.members:
        yield from member_end(group.group_id, member_id)
    for regex in group.regexes:
        yield regex_fact(group.group_id, regex, None)
    yield fact(_TARGET_EPOCH, ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id), None)
    yield fact(_GROUP, ConsumerGroupMetadataKey(group_id=group.group_id), None)


def facts_of(group: ConsumerGroup) -> Iterable[Fact]:
    """Return the records that make a group what it is."""
    yield group_fact(group)
    for member in list(group.members.values()):
        yield member_fact(group.group_id, member)
    for regex, resolved in list(group.regexes.items()):
        yield regex_fact(group.group_id, regex, resolved)
    for member_id, target in list(group.targets.items()):
        yield target_fact(group.group_id, member_id, target)
    yield target_epoch_fact(group)
    for member in list(group.members.values()):
        yield current_fact(group.group_id, member)


def _classic(side: ClassicSide | None) -> ClassicMemberMetadata | None:
    if side is None:
        return None
    return ClassicMemberMetadata(
        session_timeout_ms=side.session_timeout_ms,
        supported_protocols=[ClassicProtocol(name=name, metadata=data) for name, data in side.protocols],
    )


def _current(member: ConsumerMember, assignment: Assignment) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=sorted(partitions),
            assignment_epochs=[
                member.since.get(topic_id, {}).get(each, member.epoch) for each in sorted(partitions)
            ],
        )
        for topic_id, partitions in sorted(assignment.items())
    ]


# Reading.


def _read_group(key: bytes, value: bytes | None) -> ModernFact[ConsumerGroup]:
    group_id = ConsumerGroupMetadataKey.decode(key, 0).group_id
    if value is None:
        return ModernFact(group_id, lambda group: None, is_end=True, ends=True)
    said = ConsumerGroupMetadataValue.decode(value, 0)

    def apply(group: ConsumerGroup) -> None:
        group.epoch, group.metadata_hash = said.epoch, said.metadata_hash

    return ModernFact(group_id, apply)


def _read_sizes(key: bytes, value: bytes | None) -> ModernFact[ConsumerGroup]:
    group_id = ConsumerGroupMetadataKey.decode(key, 0).group_id  # the same fields
    return ModernFact(group_id, lambda group: None, is_end=True)


def _read_member(key: bytes, value: bytes | None) -> ModernFact[ConsumerGroup]:
    name = ConsumerGroupMemberMetadataKey.decode(key, 0)
    member_id = name.member_id
    if value is None:
        return ModernFact(name.group_id, lambda group: group.remove(member_id), is_end=True)
    said = ConsumerGroupMemberMetadataValue.decode(value, 0)
    classic = _read_classic(said.classic_member_metadata)

    def apply(group: ConsumerGroup) -> None:
        known = group.members.get(member_id) or ConsumerMember(member_id)
        group.put(
            replace(
                known,
                instance_id=said.instance_id,
                rack_id=said.rack_id,
                client_id=said.client_id,
                client_host=said.client_host,
                rebalance_timeout_ms=said.rebalance_timeout_ms,
                server_assignor=said.server_assignor,
                topics=frozenset(said.subscribed_topic_names),
                regex=said.subscribed_topic_regex or "",
                classic=classic,
            )
        )

    return ModernFact(name.group_id, apply)


def _read_classic(told: ClassicMemberMetadata | None) -> ClassicSide | None:
    if told is None or not told.supported_protocols:
        return None
    protocols = tuple((each.name, bytes(each.metadata)) for each in told.supported_protocols)
    return ClassicSide(told.session_timeout_ms, protocols)


def _read_target_epoch(key: bytes, value: bytes | None) -> ModernFact[ConsumerGroup]:
    group_id = ConsumerGroupTargetAssignmentMetadataKey.decode(key, 0).group_id
    if value is None:
        return ModernFact(group_id, lambda group: None, is_end=True)
    epoch = ConsumerGroupTargetAssignmentMetadataValue.decode(value, 0).assignment_epoch

    def apply(group: ConsumerGroup) -> None:
        group.assignment_epoch = epoch

    return ModernFact(group_id, apply)


def _read_target(key: bytes, value: bytes | None) -> ModernFact[ConsumerGroup]:
    name = ConsumerGroupTargetAssignmentMemberKey.decode(key, 0)
    member_id = name.member_id
    if value is None:
        return ModernFact(name.group_id, lambda group: group.targets.pop(member_id, None), is_end=True)
    said = ConsumerGroupTargetAssignmentMemberValue.decode(value, 0)
    target = {each.topic_id: frozenset(each.partitions) for each in said.topic_partitions}

    def apply(group: ConsumerGroup) -> None:
        group.targets[member_id] = target

    return ModernFact(name.group_id, apply)


def _read_current(key: bytes, value: bytes | None) -> ModernFact[ConsumerGroup]:
    name = ConsumerGroupCurrentMemberAssignmentKey.decode(key, 0)
    said = None if value is None else ConsumerGroupCurrentMemberAssignmentValue.decode(value, 0)

    def apply(group: ConsumerGroup) -> None:
        known = group.members.get(name.member_id)
        if said is None:
            if known is not None:
                group.put(_with_current(known, ConsumerGroupCurrentMemberAssignmentValue()))
            return
        group.put(_with_current(known or ConsumerMember(name.member_id), said))

    return ModernFact(name.group_id, apply, is_end=said is None)


def _with_current(member: ConsumerMember, said: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
    known = said.state in MemberState._value2member_map_
    return replace(
        member,
        epoch=said.member_epoch,
        previous_epoch=said.previous_member_epoch,
        state=MemberState(said.state) if known else MemberState.UNKNOWN,
        assigned=_assignment(said.assigned_partitions),
        revoking=_assignment(said.partitions_pending_revocation),
        since=_since(said),
    )


def _since(said: ConsumerGroupCurrentMemberAssignmentValue) -> dict[bytes, dict[int, int]]:
    found: dict[bytes, dict[int, int]] = {}
    for row in (*said.assigned_partitions, *said.partitions_pending_revocation):
        epochs = row.assignment_epochs or []
        if len(epochs) != len(row.partitions):  # as Kafka wrote it before 4.3
            epochs = [said.member_epoch] * len(row.partitions)
        found.setdefault(row.topic_id, {}).update(zip(row.partitions, epochs, strict=True))
    return found


def _assignment(rows: Iterable[TopicPartitions]) -> Assignment:
    return {each.topic_id: frozenset(each.partitions) for each in rows if each.partitions}


def _read_regex(key: bytes, value: bytes | None) -> ModernFact[ConsumerGroup]:
    name = ConsumerGroupRegularExpressionKey.decode(key, 0)
    regex = name.regular_expression
    if value is None:
        return ModernFact(name.group_id, lambda group: group.regexes.pop(regex, None), is_end=True)
    said = ConsumerGroupRegularExpressionValue.decode(value, 0)
    # The version is another process's, or an earlier one: the expression is resolved again.
    resolved = ResolvedRegex(frozenset(said.topics), -1, said.timestamp)

    def apply(group: ConsumerGroup) -> None:
        group.regexes[regex] = resolved

    return ModernFact(name.group_id, apply)


READERS: Readers = {
    _GROUP: _read_group,
    _SIZES: _read_sizes,
    _MEMBER: _read_member,
    _TARGET_EPOCH: _read_target_epoch,
    _TARGET: _read_target,
    _CURRENT: _read_current,
    _REGEX: _read_regex,
}
