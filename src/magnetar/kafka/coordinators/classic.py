"""The requests of members of classic groups: join, sync, heartbeat, leave, or silence. Pure decisions.

Each method gives a `Decision`, or raises `CoordinatorRefused` and then has changed nothing. ``now_ms`` is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from magnetar.coordination.caller import Caller
from magnetar.coordination.decision import Assigned, Decision, Release, Token
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.timers import TimerKey, Timers
from magnetar.kafka.coordinators.group import ClassicGroup, GroupState, Member, Protocols
from magnetar.kafka.coordinators.kinds import CLASSIC, Kinds, end_of
from magnetar.kafka.coordinators.rebalance import (
    Rebalancer,
    join_key,
    joined,
    refused_join,
    refused_sync,
    sync_key,
    synced,
)
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from magnetar.wire.kafka.messages.heartbeat_response import HeartbeatResponse
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest
from magnetar.wire.kafka.messages.join_group_response import JoinGroupResponse
from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from magnetar.wire.kafka.messages.sync_group_request import SyncGroupRequest
from magnetar.wire.kafka.messages.sync_group_response import SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""A new member cannot send heartbeats yet; past this time its client is assumed to have gone."""
_KNOWN_ID_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9

Answer = TypeVar("Answer")


class ClassicGroups:
    """The classic groups of one partition. ``new_id`` returns texts that never repeat (Kafka: UUIDs)."""

    def __init__(self, settings: GroupSettings, new_id: Callable[[], str], kinds: Kinds) -> None:
        self.settings = settings
        self._kinds = kinds
        self.timers = Timers()
        self._new_id = new_id
        self._moves = Rebalancer(settings, self.timers)

    def _decide(self, answer: Answer | None) -> Decision[Answer]:
        moves = self._moves
        decision = Decision(tuple(moves.facts), answer, tuple(moves.released), tuple(moves.actions))
        moves.facts.clear()
        moves.released.clear()
        moves.actions.clear()
        return decision

    # JoinGroup.

    def join(
        self, request: JoinGroupRequest, caller: Caller, token: Token, now_ms: int
    ) -> Decision[JoinGroupResponse]:
        """Add a member to the group's next generation; the answer comes when that begins."""
        self.check(request)
        taken = self._kinds.groups.get(request.group_id)
        known = CLASSIC.own(taken)
        if taken is not None and known is None and not taken.gives_way:
            raise CoordinatorRefused(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Group {request.group_id} is not a classic group."
            )
        if known is None and request.member_id:
            raise CoordinatorRefused(ErrorCode.UNKNOWN_MEMBER_ID)
        offsets = {} if taken is None else taken.offsets
        group = known or ClassicGroup(request.group_id, since_ms=now_ms, offsets=offsets)
        if not self._has_room(group, request.member_id):
            return self._turn_away(group, request.member_id, now_ms)
        self._check_join(group, request)
        if known is None:
            self._moves.facts += () if taken is None else end_of(taken)
            self._kinds.take(group)
            self._moves.store(group)
        if not request.member_id:
            return self._decide(self._join_new(group, request, caller, token, now_ms))
        if request.member_id in group.pending:
            self._add(group, request.member_id, request, caller, token, now_ms)
            return self._decide(None)
        member = group.members[request.member_id]
        return self._decide(self._join_again(group, member, request, token, now_ms))

    def check(self, request: JoinGroupRequest) -> None:
        """Refuse a request that no group can grant."""
        settings = self.settings
        if not request.group_id:
            raise CoordinatorRefused(ErrorCode.INVALID_GROUP_ID)
        longest = settings.group_max_session_timeout_ms
        if not settings.group_min_session_timeout_ms <= request.session_timeout_ms <= longest:
            raise CoordinatorRefused(ErrorCode.INVALID_SESSION_TIMEOUT)

    def _check_join(self, group: ClassicGroup, request: JoinGroupRequest) -> None:
        if not group.supports(request.protocol_type, (protocol.name for protocol in request.protocols)):
            raise CoordinatorRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.member_id:
            return
        if request.member_id in group.pending:
            if request.group_instance_id is not None:
                # Ids are only reserved for dynamic members; this id was never sent to a static one.
                raise CoordinatorRefused(ErrorCode.UNKNOWN_MEMBER_ID)
            return
        group.check_member(request.member_id, request.group_instance_id)
        if group.state is GroupState.EMPTY:
            raise CoordinatorRefused(ErrorCode.UNKNOWN_MEMBER_ID)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        most = self.settings.group_max_size
        member = group.members.get(member_id)
        if group.state is GroupState.EMPTY:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            # If the limit was lowered, the last members to rejoin have to go.
            return (member is not None and member.joining is not None) or group.joining_count < most
        return member is not None or len(group.members) < most

    def _turn_away(self, group: ClassicGroup, member_id: str, now_ms: int) -> Decision[JoinGroupResponse]:
        if member_id in group.members or member_id in group.pending:
            self._moves.remove(group, member_id)
            self._moves.complete_if_all_joined(group, now_ms)
        return self._decide(refused_join(ErrorCode.GROUP_MAX_SIZE_REACHED))

    def _join_new(
        self, group: ClassicGroup, request: JoinGroupRequest, caller: Caller, token: Token, now_ms: int
    ) -> JoinGroupResponse | None:
        instance_id = request.group_instance_id
        if instance_id is not None:
            new_id = f"{instance_id}-{self._new_id()}"
            if instance_id in group.static:
                return self._take_over(group, new_id, request, caller, token, now_ms)
        else:
            new_id = f"{caller.client_id}-{self._new_id()}"
            if caller.api_version >= _KNOWN_ID_SINCE:
                # A client that never receives its id cannot leave a ghost in the group (KIP-394).
                group.pending[new_id] = None
                key = TimerKey("session", group.group_id, new_id)
                self.timers.schedule(key, now_ms + request.session_timeout_ms)
                return refused_join(ErrorCode.MEMBER_ID_REQUIRED, new_id)
        self._add(group, new_id, request, caller, token, now_ms)
        return None

    def _add(
        self,
        group: ClassicGroup,
        member_id: str,
        request: JoinGroupRequest,
        caller: Caller,
        token: Token,
        now_ms: int,
    ) -> None:
        member = Member(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout_ms(request),
            protocol_type=request.protocol_type,
            protocols=_protocols(request),
            joining=token,
            is_new=True,
        )
        if group.state is GroupState.PREPARING_REBALANCE and group.previous is GroupState.EMPTY:
            group.grew = True
        group.add(member)
        self._moves.renew(group, member, now_ms, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._moves.changed(group, f"adding member {member_id}{_because(request.reason)}", now_ms)

    def _take_over(
        self,
        group: ClassicGroup,
        new_id: str,
        request: JoinGroupRequest,
        caller: Caller,
        token: Token,
        now_ms: int,
    ) -> JoinGroupResponse | None:
        """Put a static member that came back without its id into its old place; fence the holder (KIP-345)."""
        assert request.group_instance_id is not None
        member = group.members[group.static[request.group_instance_id]]
        old_id, old_leader = member.member_id, group.leader
        self._moves.answer_join(member, refused_join(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self._moves.answer_sync(member, refused_sync(ErrorCode.FENCED_INSTANCE_ID))
        self.timers.cancel(TimerKey("session", group.group_id, old_id))
        group.replace(member, new_id)
        self._update(member, request)
        member.is_new = False
        self._moves.renew(group, member, now_ms)
        if group.state is GroupState.STABLE and group.choose_protocol() == group.protocol:
            # Nothing changes for the others, so they are left in peace.
            self._moves.store(group)
            skips = caller.api_version >= _SKIP_ASSIGNMENT_SINCE
            leads = group.leader == new_id
            answer = joined(group, member, skip_assignment=skips and leads)
            if not skips:
                # A member that cannot skip the assignment must not think that it leads (KIP-814).
                answer.leader, answer.members = old_leader or "", []
            return answer
        member.joining = token
        reason = f"static member {new_id} took over from {old_id}{_because(request.reason)}"
        if group.state is GroupState.PREPARING_REBALANCE:
            self._moves.complete_if_all_joined(group, now_ms)
        else:
            # While the leader assigns, it may assign to the old id; then the new one would go without.
            self._moves.prepare(group, reason, now_ms)
        return None

    def _join_again(
        self, group: ClassicGroup, member: Member, request: JoinGroupRequest, token: Token, now_ms: int
    ) -> JoinGroupResponse | None:
        unchanged = member.protocols == _protocols(request)
        leads = group.leader == member.member_id
        answered = group.state is GroupState.COMPLETING_REBALANCE or (
            group.state is GroupState.STABLE and not leads
        )
        if answered and unchanged:
            # It may have missed our answer; the generation is still the right one.
            return joined(group, member)
        self._moves.await_join(member, token)
        self._update(member, request)
        verb = "rejoined" if unchanged else "changed its subscription"
        reason = f"{'leader' if leads else 'member'} {member.member_id} {verb}{_because(request.reason)}"
        self._moves.changed(group, reason, now_ms)
        return None

    def _update(self, member: Member, request: JoinGroupRequest) -> None:
        member.protocols = _protocols(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request)

    # SyncGroup.

    def sync(self, request: SyncGroupRequest, token: Token, now_ms: int) -> Decision[SyncGroupResponse]:
        """Assign a member its part; it waits for the leader, whose request brings all parts."""
        group = self._find(request.group_id)
        if group.state is GroupState.EMPTY:
            raise CoordinatorRefused(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise CoordinatorRefused(ErrorCode.ILLEGAL_GENERATION)
        if _differs(request.protocol_type, group.protocol_type) or _differs(
            request.protocol_name, group.protocol
        ):
            raise CoordinatorRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise CoordinatorRefused(ErrorCode.REBALANCE_IN_PROGRESS)
        self._moves.synced(group, member.member_id)
        if group.state is GroupState.STABLE:
            return self._decide(synced(group, member))
        self._moves.answer_sync(member, refused_sync(ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = token
        if group.leader == member.member_id and group.assigning is None:
            parts = {part.member_id: bytes(part.assignment) for part in request.assignments}
            self._moves.assign(group, parts, now_ms)
        return self._decide(None)

    def kept(self, assigned: Assigned, now_ms: int) -> Decision[None]:
        """Complete an assignment: the facts of its decision are durable."""
        group = self.known(assigned.group_id)
        if group is not None:
            self._moves.kept(group, assigned.generation, now_ms)
        return self._decide(None)

    # Heartbeat.

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Decision[HeartbeatResponse]:
        """Note that a member lives, and answer whether it has to rejoin."""
        group = self._find(request.group_id)
        member = group.check_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise CoordinatorRefused(ErrorCode.ILLEGAL_GENERATION)
        self._moves.renew(group, member, now_ms)
        rebalancing = group.state is GroupState.PREPARING_REBALANCE
        code = ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE
        return self._decide(HeartbeatResponse(error_code=code))

    def touch(self, group_id: str, member_id: str, now_ms: int) -> None:
        """Count a commit as a sign of life, where Kafka does."""
        group = self.known(group_id)
        member = None if group is None else group.members.get(member_id)
        if (
            group is not None
            and member is not None
            and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE)
        ):
            self._moves.renew(group, member, now_ms)

    # LeaveGroup.

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Decision[LeaveGroupResponse]:
        """Remove members, each with its own answer; by instance id alone if an operator asks (KIP-345)."""
        if not request.group_id:
            raise CoordinatorRefused(ErrorCode.INVALID_GROUP_ID)
        group = self.known(request.group_id)
        answers = [self._leave_one(group, member) for member in request.members]
        left = [answer for answer in answers if answer.error_code == ErrorCode.NONE]
        if group is not None and left:
            names = ", ".join(answer.member_id or answer.group_instance_id or "" for answer in left)
            reason = f"{names} left{_because(request.members[0].reason)}"
            if group.state is not GroupState.EMPTY:
                self._moves.changed(group, reason, now_ms)
        return self._decide(LeaveGroupResponse(members=answers))

    def _leave_one(self, group: ClassicGroup | None, who: MemberIdentity) -> MemberResponse:
        answer = MemberResponse(member_id=who.member_id, group_instance_id=who.group_instance_id)
        try:
            if group is None:
                raise CoordinatorRefused(ErrorCode.UNKNOWN_MEMBER_ID)
            member_id = who.member_id
            if not member_id:
                member_id = group.static.get(who.group_instance_id or "", "")
            if member_id not in group.pending:
                group.check_member(member_id, who.group_instance_id)
            self._moves.remove(group, member_id)
        except CoordinatorRefused as refused:
            answer.error_code = refused.code
        return answer

    # Time.

    def expire(self, now_ms: int) -> Decision[None]:
        """Do what is due by now; `timers` have the next time."""
        for key in self.timers.take_due(now_ms):
            group = self.known(key.group_id)
            if group is None:
                continue
            if key.kind == "session":
                self._session_ended(group, key.member_id, now_ms)
            elif key.kind == "join":
                self._moves.join_time_is_up(group, now_ms)
            else:
                self._moves.sync_time_is_up(group, now_ms)
        return self._decide(None)

    def _session_ended(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        member = group.members.get(member_id)
        if member is None and member_id not in group.pending:
            return
        if member is not None and member.may_be_silent:
            return
        self._moves.remove(group, member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            if group.has_all_joined:
                self._moves.complete(group, now_ms)
        elif member is not None:
            self._moves.prepare(group, f"member {member_id} was silent for its whole session", now_ms)

    # Life cycle.

    def resume(self, groups: Iterable[ClassicGroup], now_ms: int) -> Decision[None]:
        """Begin every member's session, after all facts were replayed."""
        for group in groups:
            for member in group.members.values():
                self._moves.renew(group, member, now_ms)
            if len(group.members) > self.settings.group_max_size:
                self._moves.prepare(group, "the group is larger than group.max.size allows", now_ms)
        return self._decide(None)

    def forget(self, group: ClassicGroup) -> None:
        """Cancel a group's timers."""
        for member_id in (*group.members, *group.pending):
            self.timers.cancel(TimerKey("session", group.group_id, member_id))
        self.timers.cancel(join_key(group))
        self.timers.cancel(sync_key(group))

    def dissolve(self, group: ClassicGroup) -> tuple[Release, ...]:
        """Return answers for all members that wait in a group that changes its protocol: they have to join again."""
        for member in group.members.values():
            self._moves.answer_join(member, refused_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            self._moves.answer_sync(member, refused_sync(ErrorCode.REBALANCE_IN_PROGRESS))
        return self._decide(None).released

    def adopt(
        self, group: ClassicGroup, leaving: Collection[str], reason: str, now_ms: int
    ) -> Decision[None]:
        """Take over a stable group that spoke another protocol; with a reason, it rebalances.

        Members in ``leaving`` are stated for the last time, and are not in it any more.
        """
        self._kinds.take(group)
        self._moves.store(group)
        for member_id in leaving:
            group.remove(member_id)
        for member in group.members.values():
            self._moves.renew(group, member, now_ms)
        if reason:
            self._moves.prepare(group, reason, now_ms)
        return self._decide(None)

    def known(self, group_id: str) -> ClassicGroup | None:
        """Return the group of that name if it is a classic one."""
        return CLASSIC.own(self._kinds.groups.get(group_id))

    def _find(self, group_id: str) -> ClassicGroup:
        if not group_id:
            raise CoordinatorRefused(ErrorCode.INVALID_GROUP_ID)
        group = self.known(group_id)
        if group is None:
            raise CoordinatorRefused(ErrorCode.UNKNOWN_MEMBER_ID)
        return group


def _protocols(request: JoinGroupRequest) -> Protocols:
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms


def _differs(told: str | None, known: str | None) -> bool:
    return told is not None and told != known


def _because(reason: str | None) -> str:
    return f" ({reason})" if reason else ""
