"""Groups as operators see them: values, detached from the coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from magnetar.coordination.timers import Timers
from magnetar.kafka.coordinators.group import ClassicGroup, GroupState, Member
from magnetar.kafka.coordinators.modern.surroundings import SettingsOfGroups
from magnetar.kafka.coordinators.rebalance import join_key, session_key, sync_key
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.kafka.coordinators.topics import Topics


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heard_ms_ago: int
    """Time since its last sign of life, ms."""
    session_left_ms: int | None
    """Time until its session expires, ms; None if it waits for an answer."""
    metadata: bytes
    assignment: bytes
    waits_for: str
    """``join``, ``sync`` or nothing: the answer it is waiting for."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group, and what it waits for."""

    group_id: str
    state: StrEnum
    """How far it is, in Kafka\'s words: `GroupState` of classic groups, `ConsumerGroupState` of consumer groups."""
    since_ms: int
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[MemberView, ...]
    pending: tuple[str, ...]
    """Member ids that were assigned and have not joined yet."""
    missing: tuple[str, ...]
    """The members that the rebalance under way waits for: to rejoin, or to sync."""
    time_left_ms: int | None
    """How long it will wait for them at most, ms."""
    storing: bool
    """Whether the leader's assignment is being made durable."""
    reason: str
    """Why the last rebalance began; empty if none did since the broker started."""
    offsets: int
    """How many partitions it has committed offsets for."""
    kind: str = "classic"
    """Or ``consumer`` (KIP-848)."""

    @property
    def why(self) -> str:
        """Return in one sentence why the group does not move, or nothing if it does."""
        names = ", ".join(self.missing)
        left = f"; at most {self.time_left_ms} ms more" if self.time_left_ms is not None else ""
        if self.state is GroupState.EMPTY:
            return "nobody is in the group"
        if self.state is GroupState.PREPARING_REBALANCE:
            return f"rebalancing because of {self.reason}; " + (
                f"waits for {names} to rejoin{left}" if names else f"waits for more members{left}"
            )
        if self.state in ("Assigning", "Reconciling"):
            return f"members are being led to the assignment of epoch {self.generation}; it waits for {names}"
        if self.storing:
            return f"rebalancing because of {self.reason}; the assignment is being stored"
        if self.state is GroupState.COMPLETING_REBALANCE:
            return f"rebalancing because of {self.reason}; waits for {names or self.leader} to sync{left}"
        return ""


class Viewed(NamedTuple):
    """The arguments of a view of a group, in addition to the group."""

    configs: SettingsOfGroups
    topics: Topics
    settings: GroupSettings
    timers: Timers
    now_ms: int


def view(group: ClassicGroup, timers: Timers, now_ms: int) -> GroupView:
    """Return a group as it is now."""
    rebalancing = group.state is GroupState.PREPARING_REBALANCE
    deadline_ms = timers.deadline(join_key(group) if rebalancing else sync_key(group))
    return GroupView(
        group_id=group.group_id,
        state=group.state,
        since_ms=group.since_ms,
        generation=group.generation,
        protocol_type=group.protocol_type or "",
        protocol=group.protocol or "",
        leader=group.leader or "",
        members=tuple(_member(group, member, timers, now_ms) for member in group.members.values()),
        pending=tuple(group.pending),
        missing=_missing(group),
        time_left_ms=None if deadline_ms is None else max(deadline_ms - now_ms, 0),
        storing=group.assigning is not None,
        reason=group.reason,
        offsets=sum(map(len, group.offsets.values())),
    )


def _missing(group: ClassicGroup) -> tuple[str, ...]:
    if group.state is GroupState.PREPARING_REBALANCE:
        late = [member.member_id for member in group.members.values() if member.joining is None]
        return (*late, *group.pending)
    return tuple(group.unsynced)


def _member(group: ClassicGroup, member: Member, timers: Timers, now_ms: int) -> MemberView:
    deadline_ms = timers.deadline(session_key(group, member.member_id))
    return MemberView(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        heard_ms_ago=now_ms - member.heard_ms,
        session_left_ms=None if deadline_ms is None or member.may_be_silent else max(deadline_ms - now_ms, 0),
        metadata=member.metadata(group.protocol),
        assignment=member.assignment,
        waits_for="join" if member.joining is not None else "sync" if member.syncing is not None else "",
    )
