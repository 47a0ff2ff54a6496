"""Members of consumer groups that speak the classic protocol, while a group migrates from one to the other (KIP-848).

They join, sync and send heartbeats as in a classic group, and are led to their target as all others are: the answer to
a heartbeat makes a member that is behind rejoin; JoinGroup says what it owns, and SyncGroup returns what it may have.
Each method gives a `Decision`, or raises `CoordinatorRefused` and then has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from magnetar.coordination.caller import Caller
from magnetar.coordination.decision import Decision, Token
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.timers import TimerKey
from magnetar.kafka.coordinators.consumer.embedded import assignment_of, by_id, read_subscription, version_of
from magnetar.kafka.coordinators.consumer.group import (
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from magnetar.kafka.coordinators.consumer.members import ConsumerGroups
from magnetar.kafka.coordinators.group import CONSUMER
from magnetar.kafka.coordinators.modern.members import Draft
from magnetar.kafka.coordinators.topics import Topics
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from magnetar.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from magnetar.wire.kafka.messages.heartbeat_response import HeartbeatResponse
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest
from magnetar.wire.kafka.messages.join_group_response import JoinGroupResponse
from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from magnetar.wire.kafka.messages.sync_group_request import SyncGroupRequest
from magnetar.wire.kafka.messages.sync_group_response import SyncGroupResponse

_KNOWN_ID_SINCE = 4


class ClassicMembers:
    """The classic members of the consumer groups of one partition; ``new_id`` returns texts that never repeat."""

    def __init__(
        self,
        find: Callable[[str], ConsumerGroup],
        consumer: ConsumerGroups,
        topics: Topics,
        new_id: Callable[[], str],
        check: Callable[[JoinGroupRequest], None],
    ) -> None:
        """``check`` refuses a JoinGroup that no group can grant."""
        self._group = find
        self._consumer = consumer
        self._topics = topics
        self._new_id = new_id
        self._check = check

    def join(
        self, request: JoinGroupRequest, caller: Caller, token: Token, now_ms: int
    ) -> Decision[JoinGroupResponse]:
        """Store a member's subscription; the response comes immediately, with the epoch that it has now."""
        self._check(request)
        group = self._group(request.group_id)
        consumer = self._consumer
        if not consumer.migration(group).lets_classic_members_in:
            raise CoordinatorRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        member_id = request.member_id or self._new_id()
        consumer.check_room(group, member_id, request.group_instance_id)
        names = [each.name for each in request.protocols]
        if request.protocol_type != CONSUMER or not group.supports_classic(names):
            raise CoordinatorRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if (
            not request.member_id
            and request.group_instance_id is None
            and caller.api_version >= _KNOWN_ID_SINCE
        ):
            return Decision(
                (), JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            )
        try:
            said = read_subscription(bytes(request.protocols[0].metadata))
        except WireError:
            raise CoordinatorRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from None
        draft = Draft()
        before = self._before(group, request, member_id, draft)
        replaced = draft.replaced
        # Whether the last consumer-protocol member has given its place to this one.
        ends_consumer = (
            replaced is not None and replaced.classic is None and consumer.may_downgrade(group, {member_id})
        )
        member = _told(before, request, said, caller, self._topics)
        consumer.take_in(group, before, member, draft)
        consumer.refresh(group, draft)
        if not ends_consumer:
            consumer.retarget(group, now_ms, draft)
        rows = [(each.topic, list(each.partitions)) for each in said.owned_partitions]
        owned = by_id(rows, self._topics)
        if not ends_consumer or group.assignment_epoch == group.epoch:
            member = consumer.reconcile(group, group.members[member_id], owned, now_ms, draft)
        answer = JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type=CONSUMER,
            protocol_name=names[0],
            member_id=member_id,
        )
        consumer.timers.cancel(_key("join", group, member_id))
        if ends_consumer:
            stale = group.assignment_epoch < group.epoch
            reason = (
                "a classic member took the last consumer's place before all was assigned" if stale else ""
            )
            consumer.downgrade(group, frozenset(), reason, now_ms, draft)
        else:
            consumer.heard(group, member, now_ms)
            consumer.timers.schedule(
                _key("sync", group, member_id), now_ms + max(member.rebalance_timeout_ms, 0)
            )
        return draft.decide(answer)

    def _before(
        self, group: ConsumerGroup, request: JoinGroupRequest, member_id: str, draft: Draft
    ) -> ConsumerMember:
        instance_id = request.group_instance_id
        if instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        known = group.static_member(instance_id)
        if request.member_id:
            return _static(known, request.member_id, instance_id)
        if known is None:
            return ConsumerMember(member_id, instance_id)
        return self._consumer.replace_member(group, known, member_id, draft)

    def sync(self, request: SyncGroupRequest, token: Token, now_ms: int) -> Decision[SyncGroupResponse]:
        """Return what a member has; unless it has to join again for the next step."""
        group = self._group(request.group_id)
        member, side = _classic(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        protocol, metadata = side.protocols[0]
        if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, protocol):
            raise CoordinatorRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(group, member, now_ms)
            raise CoordinatorRefused(ErrorCode.REBALANCE_IN_PROGRESS)
        self._consumer.timers.cancel(_key("sync", group, member.member_id))
        self._consumer.heard(group, member, now_ms)
        return Decision(
            (),
            SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=assignment_of(member.assigned, self._topics, version_of(metadata)),
            ),
        )

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Decision[HeartbeatResponse]:
        """Begin a member's session again, and answer whether it has to rejoin."""
        group = self._group(request.group_id)
        member, _ = _classic(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        draft = Draft()
        consumer = self._consumer
        consumer.heard(group, member, now_ms)
        # A group may have no other members whose heartbeats advance it.
        consumer.refresh(group, draft)
        consumer.retarget(group, now_ms, draft)
        code = ErrorCode.NONE
        if (
            member.epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
        ):
            code = ErrorCode.REBALANCE_IN_PROGRESS
            self._expect_join(group, member, now_ms)
        return draft.decide(HeartbeatResponse(error_code=code))

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Decision[LeaveGroupResponse]:
        """Remove members of either protocol, each with its own answer."""
        group = self._group(request.group_id)
        leaving: dict[str, ConsumerMember] = {}
        answers = []
        for who in request.members:
            answer = MemberResponse(member_id=who.member_id, group_instance_id=who.group_instance_id)
            try:
                member = _leaving(group, who)
                leaving[member.member_id] = member
            except CoordinatorRefused as refused:
                answer.error_code = refused.code
            answers.append(answer)
        draft = Draft()
        self._consumer.remove(group, list(leaving.values()), "members left", now_ms, draft)
        return draft.decide(LeaveGroupResponse(members=answers))

    def _expect_join(self, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> None:
        key = _key("join", group, member.member_id)
        if key not in self._consumer.timers:
            self._consumer.timers.schedule(key, now_ms + max(member.rebalance_timeout_ms, 0))


def _key(kind: str, group: ConsumerGroup, member_id: str) -> TimerKey:
    return TimerKey(kind, group.group_id, member_id)


def _told(
    member: ConsumerMember,
    request: JoinGroupRequest,
    said: ConsumerProtocolSubscription,
    caller: Caller,
    topics: Topics,
) -> ConsumerMember:
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=said.rack_id or member.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=timeout_ms if timeout_ms >= 0 else request.session_timeout_ms,
        topics=frozenset(map(topics.meant, said.topics)),
        regex="",
        classic=ClassicSide(
            request.session_timeout_ms,
            tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        ),
    )


def _static(known: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    if known is None:
        raise CoordinatorRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if known.member_id != member_id:
        raise CoordinatorRefused(ErrorCode.FENCED_INSTANCE_ID)
    return known


def _classic(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicSide]:
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = _static(group.static_member(instance_id), member_id, instance_id)
    if member.classic is None:
        raise CoordinatorRefused(ErrorCode.UNKNOWN_MEMBER_ID)
    return member, member.classic


def _leaving(group: ConsumerGroup, who: MemberIdentity) -> ConsumerMember:
    if who.group_instance_id is None:
        return group.member(who.member_id)
    known = group.static_member(who.group_instance_id)
    return _static(known, who.member_id or (known.member_id if known else ""), who.group_instance_id)


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise CoordinatorRefused(ErrorCode.ILLEGAL_GENERATION)
