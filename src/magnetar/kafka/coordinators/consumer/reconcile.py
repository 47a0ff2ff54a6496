"""The steps of one member from what it has to what it should have, one with each heartbeat (KIP-848).

has something to give up  -> UNREVOKED_PARTITIONS, in its old epoch, until it reports that it has given it up
waits for others to do so -> UNRELEASED_PARTITIONS, in the new epoch, with what is free already
has it all                -> STABLE, in the new epoch
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from magnetar.kafka.coordinators.consumer.group import NOTHING, Assignment, ConsumerMember, MemberState

IsHeld = Callable[[bytes, int], bool]


def reconcile(
    member: ConsumerMember, epoch: int, target: Assignment, owned: Assignment | None, is_held: IsHeld
) -> ConsumerMember:
    """Return the member one step further towards the target of an epoch.

    ``owned`` is what it reports to have, None if it reports nothing: then it counts as not having given up anything.
    """
    if member.is_reconciled_to(epoch):
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_some(owned, member.revoking):
            return member
        return _next(member, member.epoch + 1, epoch, target, owned, is_held)
    member_epoch = epoch if member.state is MemberState.UNKNOWN else member.epoch
    return _next(member, member_epoch, epoch, target, owned, is_held)


def _next(
    member: ConsumerMember,
    member_epoch: int,
    epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_held: IsHeld,
) -> ConsumerMember:
    assigned: dict[bytes, frozenset[int]] = {}
    revoking: dict[bytes, frozenset[int]] = {}
    waits = False
    for topic_id in target.keys() | member.assigned.keys():
        wanted = target.get(topic_id, frozenset())
        has = member.assigned.get(topic_id, frozenset())
        if lost := has - wanted:
            revoking[topic_id] = lost
        if keeps := has & wanted:
            assigned[topic_id] = keeps
    if revoking and _owns_some(owned, revoking):
        return _became(member, member_epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking, epoch)
    for topic_id, wanted in target.items():
        missing = wanted - assigned.get(topic_id, frozenset())
        held = {partition for partition in missing if is_held(topic_id, partition)}
        waits = waits or bool(held)
        if free := missing - held:
            assigned[topic_id] = assigned.get(topic_id, frozenset()) | free
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _became(member, epoch, state, assigned, NOTHING, epoch)


def _owns_some(owned: Assignment | None, some: Assignment) -> bool:
    if owned is None:
        return True
    return any(not partitions.isdisjoint(some.get(topic_id, ())) for topic_id, partitions in owned.items())


def _became(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    assigned: Assignment,
    revoking: Assignment,
    target_epoch: int,
) -> ConsumerMember:
    unchanged = (epoch, state, assigned, revoking) == (
        member.epoch,
        member.state,
        member.assigned,
        member.revoking,
    )
    if unchanged:
        return member
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
        since=_since(member, assigned, revoking, target_epoch),
    )


def _since(
    member: ConsumerMember, assigned: Assignment, revoking: Assignment, epoch: int
) -> Mapping[bytes, Mapping[int, int]]:
    """Return in which epoch each partition came; those that are new come with this one."""
    since: dict[bytes, dict[int, int]] = {}
    for held in (assigned, revoking):
        for topic_id, partitions in held.items():
            had = member.since.get(topic_id, {})
            owned = member.assigned.get(topic_id, frozenset())
            before = min(member.epoch, epoch)
            since.setdefault(topic_id, {}).update(
                (each, had.get(each, before if each in owned else epoch)) for each in partitions
            )
    return since
