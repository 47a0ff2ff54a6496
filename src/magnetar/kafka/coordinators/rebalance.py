"""The steps of a classic group from one generation to the next.

    Empty --first join--> PreparingRebalance --all joined, or time is up--> CompletingRebalance
    CompletingRebalance --the leader's assignment is durable--> Stable --a change--> PreparingRebalance ...

The requests of members are in `classic`; here is what a group does when something about it has changed.
"""

from __future__ import annotations

from magnetar.coordination.decision import Action, Assigned, Fact, Release, Token
from magnetar.coordination.timers import TimerKey, Timers
from magnetar.kafka.coordinators.facts import group_fact
from magnetar.kafka.coordinators.group import ClassicGroup, GroupState, InitialDelay, Member
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from magnetar.wire.kafka.messages.sync_group_response import SyncGroupResponse


class Rebalancer:
    """Moves groups between their states; it collects facts and answers until they are taken."""

    def __init__(self, settings: GroupSettings, timers: Timers) -> None:
        self.settings = settings
        self.timers = timers
        self.facts: list[Fact] = []
        self.released: list[Release] = []
        self.actions: list[Action] = []

    # Members' sessions.

    def renew(self, group: ClassicGroup, member: Member, now_ms: int, timeout_ms: int | None = None) -> None:
        """Restart the member's session, or set another time; a request of it has just come."""
        member.heard_ms = now_ms
        timeout = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.timers.schedule(session_key(group, member.member_id), now_ms + timeout)

    def remove(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member, with its session and its waiting requests."""
        member = group.members.get(member_id)
        if member is not None:
            self.answer_join(member, refused_join(ErrorCode.UNKNOWN_MEMBER_ID))
            self.answer_sync(member, refused_sync(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
        self.timers.cancel(session_key(group, member_id))

    # Answers to members that wait.

    def answer_join(self, member: Member, answer: JoinGroupResponse) -> None:
        """Answer the member's waiting JoinGroup, if there is one."""
        if member.joining is not None:
            self.released.append(Release(member.joining, answer))
            member.joining = None

    def answer_sync(self, member: Member, answer: SyncGroupResponse) -> None:
        """Answer the member's waiting SyncGroup, if there is one."""
        if member.syncing is not None:
            self.released.append(Release(member.syncing, answer))
            member.syncing = None

    def await_join(self, member: Member, token: Token) -> None:
        """Park a JoinGroup; an earlier one of the same member is dismissed."""
        self.answer_join(member, refused_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.joining = token

    # The group.

    def store(self, group: ClassicGroup) -> None:
        """State the group as it is now."""
        group.stored = group.value()
        self.facts.append(group_fact(group.group_id, group.stored))

    def changed(self, group: ClassicGroup, reason: str, now_ms: int) -> None:
        """Rebalance because of a change; if that is under way already, see whether it can be completed."""
        if group.state is not GroupState.PREPARING_REBALANCE:
            self.prepare(group, reason, now_ms)
        else:
            self.complete_if_all_joined(group, now_ms)

    def prepare(self, group: ClassicGroup, reason: str, now_ms: int) -> None:
        """Begin a rebalance: all members have to join again."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                self._give_assignment(group, member, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        group.unsynced.clear()
        group.assigning = None
        self.timers.cancel(sync_key(group))
        was_empty = group.state is GroupState.EMPTY
        group.reason = reason
        group.become(GroupState.PREPARING_REBALANCE, now_ms)
        if was_empty:
            self._wait_for_more(group, now_ms)
        elif group.has_all_joined:
            self.complete(group, now_ms)
        else:
            self.timers.schedule(join_key(group), now_ms + group.rebalance_timeout_ms)

    def _wait_for_more(self, group: ClassicGroup, now_ms: int) -> None:
        delay = self.settings.group_initial_rebalance_delay_ms
        group.grew = False
        group.awaited = InitialDelay(delay, max(group.rebalance_timeout_ms - delay, 0))
        self.timers.schedule(join_key(group), now_ms + delay)

    def join_time_is_up(self, group: ClassicGroup, now_ms: int) -> None:
        """Continue without members that have not joined, unless a new group may still wait (KIP-134)."""
        awaited = group.awaited
        if awaited is not None and group.grew and awaited.remaining_ms:
            group.grew = False
            delay = min(self.settings.group_initial_rebalance_delay_ms, awaited.remaining_ms)
            group.awaited = InitialDelay(delay, max(awaited.remaining_ms - awaited.current_ms, 0))
            self.timers.schedule(join_key(group), now_ms + delay)
        else:
            self.complete(group, now_ms)

    def complete_if_all_joined(self, group: ClassicGroup, now_ms: int) -> None:
        """Complete the rebalance under way if no member is missing; a group that was empty waits out its delay."""
        rebalancing = group.state is GroupState.PREPARING_REBALANCE
        if rebalancing and group.previous is not GroupState.EMPTY and group.has_all_joined:
            self.complete(group, now_ms)

    def complete(self, group: ClassicGroup, now_ms: int) -> None:
        """End the joining: drop members that have not rejoined, and answer the others with the new generation."""
        assert group.state is GroupState.PREPARING_REBALANCE
        group.awaited = None
        self.timers.cancel(join_key(group))
        for member in list(group.members.values()):
            if member.joining is None and not member.is_static:
                self.remove(group, member.member_id)
        if group.members and not group.elect():
            # Only static members are left and none has come back: wait until one does or their sessions end.
            self.timers.schedule(join_key(group), now_ms + group.rebalance_timeout_ms)
            return
        group.next_generation(now_ms)
        if not group.members:
            self.store(group)
            return
        for member in group.members.values():
            self.answer_join(member, joined(group, member))
            self.renew(group, member, now_ms)
            member.is_new = False
            group.unsynced[member.member_id] = None
        self.timers.schedule(sync_key(group), now_ms + group.rebalance_timeout_ms)

    def assign(self, group: ClassicGroup, assignments: dict[str, bytes], now_ms: int) -> None:
        """Take the leader's assignment; until it is durable the group stays as it is, also for observers."""
        group.assigning = {member_id: assignments.get(member_id, b"") for member_id in group.members}
        group.stored = group.value(group.assigning, now_ms)
        self.facts.append(group_fact(group.group_id, group.stored))
        self.actions.append(Assigned(group.group_id, group.generation))

    def kept(self, group: ClassicGroup, generation: int, now_ms: int) -> None:
        """Make the group stable, now that the assignment is durable, and answer the members that wait for theirs.

        Unless it rebalances again: then an obsolete assignment is not sent.
        """
        assignments, said = group.assigning, group.stored
        if assignments is None or said is None or group.generation != generation:
            return
        group.assigning = None
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.become(GroupState.STABLE, said.current_state_timestamp)
        for member in group.members.values():
            self._give_assignment(group, member, ErrorCode.NONE, now_ms)

    def _give_assignment(self, group: ClassicGroup, member: Member, code: ErrorCode, now_ms: int) -> None:
        if member.syncing is None:
            return
        self.answer_sync(member, refused_sync(code) if code else synced(group, member))
        # Its session ran, and may have ended, while it waited for us.
        self.renew(group, member, now_ms)

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        """Note that a member has requested its assignment."""
        group.unsynced.pop(member_id, None)
        if not group.unsynced:
            self.timers.cancel(sync_key(group))

    def sync_time_is_up(self, group: ClassicGroup, now_ms: int) -> None:
        """Drop members that joined and then never requested their assignment."""
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.unsynced:
            return
        missing = list(group.unsynced)
        for member_id in missing:
            self.remove(group, member_id)
        reason = f"removing {', '.join(missing)}: no SyncGroup within the rebalance timeout"
        self.prepare(group, reason, now_ms)


def session_key(group: ClassicGroup, member_id: str) -> TimerKey:
    """Return the key of a member's session."""
    return TimerKey("session", group.group_id, member_id)


def join_key(group: ClassicGroup) -> TimerKey:
    """Return the key of the join deadline."""
    return TimerKey("join", group.group_id)


def sync_key(group: ClassicGroup) -> TimerKey:
    """Return the key of the sync deadline."""
    return TimerKey("sync", group.group_id)


def refused_join(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """Return the refusal of a JoinGroup."""
    return JoinGroupResponse(error_code=code, member_id=member_id)


def refused_sync(code: ErrorCode) -> SyncGroupResponse:
    """Return the refusal of a SyncGroup."""
    return SyncGroupResponse(error_code=code)


def joined(group: ClassicGroup, member: Member, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """Return the answer to JoinGroup for the current generation; the leader gets the metadata of all members."""
    leads = group.leader == member.member_id
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=[_told(other, group.protocol) for other in group.members.values()] if leads else [],
    )


def _told(member: Member, protocol: str | None) -> JoinGroupResponseMember:
    return JoinGroupResponseMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        metadata=member.metadata(protocol),
    )


def synced(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """Return the answer to SyncGroup with a member's part of the current generation."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )
