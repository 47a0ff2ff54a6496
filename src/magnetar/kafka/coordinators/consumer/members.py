"""The requests of members of consumer groups: join, heartbeat, leave, or silence (KIP-848). Pure decisions.

A heartbeat is everything: it joins (epoch 0), reports changes, leaves (epoch -1, or -2 for a static member that
will be back). A change of subscriptions or topics begins a new epoch of the group; a target is made for it, and each
member is led to it with its own heartbeats.

Each method gives a `Decision`, or raises `CoordinatorRefused` and then has changed nothing. ``now_ms`` is an argument.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from magnetar.coordination.decision import Decision
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.actions import GroupAction
from magnetar.kafka.coordinators.bounds import check_topics
from magnetar.kafka.coordinators.consumer import facts
from magnetar.kafka.coordinators.consumer.actions import MakeTarget, ResolveRegexes
from magnetar.kafka.coordinators.consumer.assignors import Subscriber
from magnetar.kafka.coordinators.consumer.facts import member_fact, regex_fact
from magnetar.kafka.coordinators.consumer.group import (
    LEFT_FOR_A_MOMENT,
    NOTHING,
    Assignment,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
)
from magnetar.kafka.coordinators.consumer.reconcile import reconcile
from magnetar.kafka.coordinators.modern.members import Draft, ModernGroups
from magnetar.kafka.coordinators.modern.surroundings import Surroundings
from magnetar.kafka.coordinators.settings import GroupSettings, MigrationPolicy
from magnetar.kafka.coordinators.topics import Shows, compiled
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from magnetar.wire.kafka.messages.consumer_group_heartbeat_response import (
    Assignment as ToldAssignment,
)
from magnetar.wire.kafka.messages.consumer_group_heartbeat_response import (
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

REGEX_PAUSE_MS = 10_000
"""The least time between two resolutions of a group's expressions."""
_NEEDS_MEMBER_ID_SINCE = 1


class Beating(NamedTuple):
    """The client of a heartbeat, its version, and which topics it may see (None: all)."""

    client_id: str
    client_host: str
    api_version: int
    shows: Shows | None = None


class ConsumerGroups(ModernGroups[ConsumerGroup, ConsumerMember, Assignment]):
    """The consumer groups of one partition."""

    facts = facts
    nothing = NOTHING
    timed = ("session", "revoke", "join", "sync")

    def __init__(self, around: Surroundings) -> None:
        ModernGroups.__init__(self, around)
        self.downgrade = around.downgrade

    def _settings(self, group_id: str) -> GroupSettings:
        return self._configs.of(group_id, GroupSettings)

    def session_ms(self, group: ConsumerGroup, member: ConsumerMember) -> int:
        """Return how long a member may be silent: a classic one sets that itself."""
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self._settings(group.group_id).group_consumer_session_timeout_ms

    def assignment_interval_ms(self, group: ConsumerGroup) -> int:
        """Return the least time between two targets."""
        return self._settings(group.group_id).group_consumer_assignment_interval_ms

    def subscribed_topics(self, group: ConsumerGroup) -> frozenset[str]:
        """Return the topics that members named, and those that their expressions match."""
        return group.subscribed_topics()

    def has_to_revoke(self, member: ConsumerMember) -> bool:
        """True if a member has partitions to give up; a classic one joins again for that, which has its own time."""
        return member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None

    def migration(self, group: ConsumerGroup) -> MigrationPolicy:
        """Return whether the group may migrate to the other protocol."""
        return self._settings(group.group_id).migration

    # Heartbeats.

    def check(self, request: ConsumerGroupHeartbeatRequest, api_version: int) -> None:
        """Refuse what can never be granted."""
        check_topics(len(request.subscribed_topic_names or ()))
        _check(request, api_version, self._settings(request.group_id).group_consumer_assignors)
        if request.subscribed_topic_regex:
            compiled(request.subscribed_topic_regex)

    def heartbeat(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        caller: Beating,
        now_ms: int,
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        """Apply a member's heartbeat, and lead it one step on; the request was checked, and is not a leave."""
        draft = Draft()
        joins = request.member_epoch == 0
        owned = _owned(request)
        member_id = request.member_id or self._new_id()
        self.check_room(group, member_id, request.instance_id)
        before = self._before(group, member_id, request, owned, draft)
        member = _told(before, request, caller)
        self.take_in(group, before, member, draft)
        self._resolve(group, caller, now_ms, draft)
        self.refresh(group, draft)
        self.retarget(group, now_ms, draft)
        member = self.reconcile(group, group.members[member.member_id], owned, now_ms, draft)
        self.heard(group, member, now_ms)
        # A full request wants a full answer; a member that is an epoch behind has missed an answer.
        full = (
            request.member_epoch != before.epoch
            or joins
            or (
                request.rebalance_timeout_ms != -1
                and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
                and owned is not None
            )
        )
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._settings(group.group_id).group_consumer_heartbeat_interval_ms,
            assignment=told_assignment(member) if full or member.assigned != before.assigned else None,
        )
        return draft.decide(answer)

    def check_room(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
        """Refuse one member too many; a member that takes a static member's place does not count."""
        most = self._settings(group.group_id).group_consumer_max_size
        if len(group.members) >= most and member_id not in group.members and instance_id not in group.static:
            raise CoordinatorRefused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )

    def _before(
        self,
        group: ConsumerGroup,
        member_id: str,
        request: ConsumerGroupHeartbeatRequest,
        owned: Assignment | None,
        draft: Draft,
    ) -> ConsumerMember:
        """Return the member as it was before this heartbeat; one that was not there has nothing yet."""
        joins = request.member_epoch == 0
        if request.instance_id is None:
            known = group.members.get(member_id)
            if known is None and joins:
                return ConsumerMember(member_id)
            known = group.member(member_id)
        else:
            known = group.static_member(request.instance_id)
            if known is None:
                if joins:
                    return ConsumerMember(member_id, request.instance_id)
                raise CoordinatorRefused(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown."
                )
            if joins and known.member_id != member_id:
                self._check_released(known, member_id, request.instance_id)
                return self.replace_member(group, known, member_id, draft)
            if joins and known.epoch == LEFT_FOR_A_MOMENT:
                return self.replace_member(group, known, member_id, draft)
            _check_instance(known, member_id, request.instance_id)
        _check_epoch(known, request.member_epoch, owned)
        return known

    @staticmethod
    def _check_released(known: ConsumerMember, member_id: str, instance_id: str) -> None:
        """Refuse a static member whose place another has; a classic holder gives it up, as in classic groups."""
        if known.epoch != LEFT_FOR_A_MOMENT and known.classic is None:
            raise CoordinatorRefused(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {known.member_id} member.",
            )

    def take_in(
        self, group: ConsumerGroup, before: ConsumerMember, member: ConsumerMember, draft: Draft
    ) -> None:
        """Note a member's own fields; a new subscription or assignor requires a new assignment.

        An unresolved expression requires one once it is resolved, if it matches topics that the group did not read.
        """
        if member != before or before.member_id not in group.members:
            draft.facts.append(member_fact(group.group_id, member))
        default = self._settings(group.group_id).group_consumer_assignors[0]
        assignor = group.assignor(default)
        group.put(member)
        topics, regex = member.topics != before.topics, member.regex != before.regex
        if topics or regex:
            group.topics_version = -1
        is_resolved = not member.regex or member.regex in group.regexes
        if topics or (regex and is_resolved) or group.assignor(default) != assignor:
            self.bump(group, draft)
        if before.regex and before.regex != member.regex:
            self._drop_regex(group, before.regex, draft)

    def _drop_regex(self, group: ConsumerGroup, regex: str, draft: Draft) -> None:
        if not group.uses_regex(regex) and group.regexes.pop(regex, None) is not None:
            draft.facts.append(regex_fact(group.group_id, regex, None))

    # Topics.

    def _resolve(self, group: ConsumerGroup, caller: Beating, now_ms: int, draft: Draft) -> None:
        """Resolve expressions that are new to the group, or all if the topics' names have changed."""
        if group.resolving:
            return
        version = self._topics.version
        refresh_ms = self._settings(group.group_id).group_consumer_regex_refresh_interval_ms
        due = []
        for regex in group.used_regexes():
            known = group.regexes.get(regex)
            if known is None:
                due.append(regex)
                continue
            passed_ms = now_ms - known.timestamp
            if (known.version != version and passed_ms >= REGEX_PAUSE_MS) or passed_ms >= refresh_ms:
                due.append(regex)
        if due:
            group.resolving = True
            draft.actions.append(ResolveRegexes(group.group_id, tuple(due), version, caller.shows))

    def _resolved(
        self,
        group: ConsumerGroup,
        asked: ResolveRegexes,
        found: dict[str, frozenset[str]] | BaseException,
        now_ms: int,
    ) -> Decision[None]:
        """Store the topics that expressions match; with other topics than before a new assignment is due."""
        group.resolving = False
        draft = Draft()
        if not isinstance(found, BaseException):
            for regex, topics in found.items():
                if not group.uses_regex(regex):
                    continue
                known = group.regexes.get(regex)
                group.regexes[regex] = ResolvedRegex(topics, asked.version, now_ms)
                draft.facts.append(regex_fact(group.group_id, regex, group.regexes[regex]))
                if topics != (frozenset() if known is None else known.topics):
                    group.topics_version = -1
                    self.bump(group, draft)
        self.refresh(group, draft)  # in the same epoch
        return Decision(tuple(draft.facts), None)

    # Targets.

    def order_target(self, group: ConsumerGroup) -> MakeTarget:
        """Return the target to compute for the group's epoch."""
        ids, sizes = self.seen_topics(group)
        known: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
        subscribers = []
        for member in group.members.values():
            subscribed = (member.topics, member.regex)  # most members have the same
            if subscribed not in known:
                names = group.topics_of(member)
                known[subscribed] = frozenset(ids[name] for name in names if name in ids)
            target = group.targets.get(member.member_id, NOTHING)
            subscribers.append(Subscriber(member.member_id, member.instance_id, known[subscribed], target))
        assignor = group.assignor(self._settings(group.group_id).group_consumer_assignors[0])
        return MakeTarget(group.group_id, group.epoch, assignor, tuple(subscribers), sizes)

    def done(self, group: ConsumerGroup, action: GroupAction, result: object, now_ms: int) -> Decision[None]:
        """Apply a target, or the topics that expressions match."""
        if not isinstance(action, ResolveRegexes):
            return ModernGroups.done(self, group, action, result, now_ms)
        assert isinstance(result, dict | Exception)
        return self._resolved(group, action, result, now_ms)

    # One member's way.

    def reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        owned: Assignment | None,
        now_ms: int,
        draft: Draft,
    ) -> ConsumerMember:
        """Lead a member one step on; ``owned`` is what it reports to have, None if it reports nothing."""
        target = group.targets.get(member.member_id, NOTHING)
        moved = reconcile(member, group.assignment_epoch, target, owned, group.is_held)
        if moved is member:
            return member
        self.move(group, moved, now_ms, draft)
        return moved

    # Leaving.

    def leave(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, now_ms: int
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        """Remove a member; a static one that will be back (-2) retains its place for a session."""
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            found = group.static_member(request.instance_id)
            if found is None:
                raise CoordinatorRefused(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown."
                )
            _check_instance(found, request.member_id, request.instance_id)
            member = found
        draft = Draft()
        if request.member_epoch == LEFT_FOR_A_MOMENT:
            left = replace(member, epoch=LEFT_FOR_A_MOMENT, revoking=NOTHING)
            self.leave_for_a_moment(group, left, draft)
        else:
            self.remove(group, [member], f"member {member.member_id} left", now_ms, draft)
        answer = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        return draft.decide(answer)

    def may_downgrade(self, group: ConsumerGroup, leaving: Collection[str]) -> bool:
        """True if the group without some of its members becomes a classic one: all others are classic members."""
        settings = self._settings(group.group_id)
        return (
            group.are_others_classic(leaving)
            and settings.migration.downgrades
            and len(group.members) - len(leaving) <= settings.group_max_size
        )

    def remove(
        self,
        group: ConsumerGroup,
        members: Sequence[ConsumerMember],
        reason: str,
        now_ms: int,
        draft: Draft,
    ) -> None:
        """Remove members; if only classic ones are left, the group becomes a classic one, and rebalances."""
        leaving = {member.member_id for member in members}
        if leaving and self.may_downgrade(group, leaving):
            self.downgrade(group, leaving, reason, now_ms, draft)
            return
        for member in members:
            self.drop(group, member, draft)

    def dropped(self, group: ConsumerGroup, member: ConsumerMember, draft: Draft) -> None:
        """Remove an expression that no other member uses."""
        if member.regex:
            self._drop_regex(group, member.regex, draft)
        group.topics_version = -1

    # Time.

    def expire(self, group: ConsumerGroup, member_id: str, now_ms: int) -> Decision[None]:
        """Remove a member that was silent for too long, or did not give up in time what it had to."""
        draft = Draft()
        member = group.members.get(member_id)
        if member is not None:
            self.remove(group, [member], f"member {member_id} was silent for too long", now_ms, draft)
        return draft.decide(None)


def told_assignment(member: ConsumerMember) -> ToldAssignment:
    """Return what a member has, as the answer lists it."""
    return ToldAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in member.assigned.items()
        ]
    )


def _told(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Beating) -> ConsumerMember:
    """Return the member with what it reports now; what it omits has not changed."""
    topics = request.subscribed_topic_names
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms < 0
        else request.rebalance_timeout_ms,
        server_assignor=member.server_assignor
        if request.server_assignor is None
        else request.server_assignor,
        topics=member.topics if topics is None else frozenset(topics),
        regex=member.regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
        classic=None,
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Assignment | None:
    if request.topic_partitions is None:
        return None
    return {each.topic_id: frozenset(each.partitions) for each in request.topic_partitions if each.partitions}


def _check_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    """Refuse an epoch that is not the member's; the one before counts, as the answer with the new one may be lost.

    Epoch 0 of a member that has nothing begins again: it was fenced, or its first answer was lost.
    """
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        raise CoordinatorRefused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. "
            "The member must abandon all its partitions and rejoin.",
        )
    if epoch == 0:
        return
    if epoch > member.epoch:
        which = "greater"
    elif epoch < member.epoch:
        covered = owned is not None and all(
            partitions <= member.assigned.get(topic_id, frozenset()) for topic_id, partitions in owned.items()
        )
        if epoch == member.previous_epoch and covered:
            return
        which = "smaller"
    else:
        return
    raise CoordinatorRefused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {which} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _check_instance(member: ConsumerMember, member_id: str, instance_id: str) -> None:
    if member.member_id != member_id:
        raise CoordinatorRefused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )


def _check(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]) -> None:
    def refuse(wrong: bool, why: str) -> None:
        if wrong:
            raise CoordinatorRefused(ErrorCode.INVALID_REQUEST, why)

    epoch = request.member_epoch
    refuse(not request.group_id.strip(), "GroupId can't be empty.")
    refuse(request.instance_id is not None and not request.instance_id.strip(), "InstanceId can't be empty.")
    refuse(request.rack_id is not None and not request.rack_id.strip(), "RackId can't be empty.")
    needs_id = epoch != 0 or api_version >= _NEEDS_MEMBER_ID_SINCE
    refuse(needs_id and not request.member_id.strip(), "MemberId can't be empty.")
    if epoch == 0:
        refuse(request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request.")
        refuse(request.topic_partitions != [], "TopicPartitions must be empty when (re-)joining.")
        names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
        refuse(
            names is None and regex is None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif epoch == LEFT_FOR_A_MOMENT:
        refuse(request.instance_id is None, "InstanceId can't be null.")
    refuse(epoch < LEFT_FOR_A_MOMENT, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise CoordinatorRefused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )
