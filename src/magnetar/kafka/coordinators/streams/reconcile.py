"""The steps of one member from the tasks it has to those it should have, one with each heartbeat (KIP-1071).

has tasks to give up      -> UNREVOKED_TASKS, in its old epoch, until it reports that it has given it up
waits for others to do so -> UNRELEASED_TASKS, in the new epoch, with what is free already
has them all              -> STABLE, in the new epoch

A process stores the state of a task once: a task that is active on one of its members cannot be on standby on another.
A standby task that becomes active stays on standby until its previous owner has given it up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from magnetar.kafka.coordinators.streams.group import (
    NOTHING,
    StreamsMember,
    TaskPair,
    Tasks,
    TasksState,
)

Held = Iterable[tuple[StreamsMember, TaskPair]]
_Set = set[tuple[str, int]]


def reconcile(
    member: StreamsMember, epoch: int, target: TaskPair, owned: TaskPair | None, held: Held
) -> StreamsMember:
    """Return the member one step further towards the target of an epoch.

    ``owned`` is what it reports to have, None if nothing: then it counts as not having given up anything. ``held``
    is what others have.
    """
    if member.is_reconciled_to(epoch):
        return member
    member_epoch = member.epoch
    if member.state is TasksState.UNREVOKED_TASKS:
        if owned is None or owned.overlaps(member.revoking):
            return member
        member_epoch += 1
    elif member.state is TasksState.UNKNOWN:
        member_epoch = epoch
    active, standby = flat(member.tasks.active), flat(member.tasks.standby)
    wants_active, wants_standby = flat(target.active), flat(target.standby)
    promoted = standby & wants_active
    revoking = TaskPair(tasks(active - wants_active), tasks(standby - wants_standby - promoted))
    if revoking and (owned is None or owned.overlaps(revoking)):
        kept = TaskPair(tasks(active & wants_active), tasks((standby & wants_standby) | promoted))
        return _became(member, member_epoch, TasksState.UNREVOKED_TASKS, kept, revoking, epoch)
    busy, here = _held(member, held)
    free_active = {task for task in wants_active - active if task not in busy and task not in here}
    free_standby = {task for task in wants_standby - standby if task not in here}
    waits = (wants_active - active) != free_active or (wants_standby - standby) != free_standby
    has = TaskPair(
        tasks((active & wants_active) | free_active),
        tasks((standby & wants_standby) | free_standby | (promoted - free_active)),
    )
    state = TasksState.UNRELEASED_TASKS if waits else TasksState.STABLE
    return _became(member, epoch, state, has, NOTHING, epoch)


def _held(member: StreamsMember, held: Held) -> tuple[_Set, _Set]:
    """Return the tasks that are active elsewhere, and those that another member of the same process has in any role."""
    busy: _Set = set()
    here: _Set = set()
    for other, pair in held:
        active = flat(pair.active)
        busy |= active
        if other.process_id == member.process_id:
            here |= active | flat(pair.standby)
    return busy, here


def flat(some: Tasks) -> _Set:
    """Return tasks as a set of subtopology and number."""
    return {(subtopology, number) for subtopology, numbers in some.items() for number in numbers}


def tasks(some: Iterable[tuple[str, int]]) -> Tasks:
    """Return tasks by subtopology."""
    found: dict[str, set[int]] = {}
    for subtopology, number in some:
        found.setdefault(subtopology, set()).add(number)
    return {subtopology: frozenset(numbers) for subtopology, numbers in found.items()}


def _became(
    member: StreamsMember, epoch: int, state: TasksState, has: TaskPair, revoking: TaskPair, target_epoch: int
) -> StreamsMember:
    if (epoch, state, has, revoking) == (member.epoch, member.state, member.tasks, member.revoking):
        return member
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=state,
        tasks=has,
        revoking=revoking,
        since=since(member, has, revoking, target_epoch),
    )


def since(
    member: StreamsMember, has: TaskPair, revoking: TaskPair, epoch: int
) -> Mapping[str, Mapping[int, int]]:
    """Return the epoch in which each active task was assigned: the member's own, or ``epoch`` for a new task."""
    found: dict[str, dict[int, int]] = {}
    for subtopology, number in flat(has.active) | flat(revoking.active):
        had = member.since.get(subtopology, {})
        found.setdefault(subtopology, {})[number] = had.get(number, epoch)
    return found
