"""How a group with members goes over from the classic protocol to the consumer protocol, and back (KIP-848).

Upgrade: the first consumer-protocol member that joins makes a consumer group of a classic one; who was in it stays,
with what it had. Downgrade: when the last such member goes, what is left is a classic group again, and rebalances.
Whether either is done says ``group.consumer.migration.policy``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from magnetar.kafka.coordinators.classic import ClassicGroups
from magnetar.kafka.coordinators.consumer.embedded import (
    assignment_of,
    by_id,
    read_assignment,
    read_subscription,
    subscription_of,
    version_of,
)
from magnetar.kafka.coordinators.consumer.facts import facts_of, group_end
from magnetar.kafka.coordinators.consumer.group import ClassicSide, ConsumerGroup, ConsumerMember
from magnetar.kafka.coordinators.consumer.members import Beating, ConsumerGroups, Draft
from magnetar.kafka.coordinators.consumer.topics import Topics, hash_of
from magnetar.kafka.coordinators.decision import Decision
from magnetar.kafka.coordinators.group import CONSUMER, ClassicGroup, GroupState, Member
from magnetar.kafka.coordinators.kinds import Kinds, end_of
from magnetar.kafka.coordinators.refused import CoordinatorRefused
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from magnetar.wire.kafka.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse


class GroupMigration:
    """Of the groups of one partition."""

    def __init__(
        self,
        kinds: Kinds,
        classic: ClassicGroups,
        consumer: ConsumerGroups,
        topics: Topics,
        settings: Callable[[str], GroupSettings],
    ) -> None:
        self._kinds = kinds
        self._classic = classic
        self._consumer = consumer
        self._topics = topics
        self._settings = settings

    def upgrade(
        self, known: ClassicGroup, request: ConsumerGroupHeartbeatRequest, caller: Beating, now_ms: int
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        """Let the first consumer-protocol member into a classic group, which becomes a consumer group by that."""
        group = self._upgraded(known)
        facts = (*end_of(known), *facts_of(group))
        decision = self._consumer.heartbeat(group, request, caller, now_ms)
        released = self._classic.dissolve(known)
        self._kinds.take(group)
        for member in group.members.values():
            if member.classic is not None:
                self._consumer.heard(group, member, now_ms)
        return replace(decision, facts=facts + decision.facts, released=released)

    def _upgraded(self, known: ClassicGroup) -> ConsumerGroup:
        def refuse(why: str) -> CoordinatorRefused:
            return CoordinatorRefused(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {known.group_id} to consumer group because {why}",
            )

        settings = self._settings(known.group_id)
        if not settings.migration.upgrades:
            raise refuse("online upgrade is disabled.")
        if not known.is_consumer:
            raise refuse("the group does not use the consumer embedded protocol.")
        if len(known.members) > settings.group_consumer_max_size:
            raise refuse("the group size exceeds the consumer group maximum size.")
        try:
            members = [self._upgraded_member(known, member) for member in known.members.values()]
        except WireError:
            raise refuse("the embedded consumer protocol is malformed.") from None
        except _CustomAssignor:
            raise refuse(
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
                "default assignor before re-attempting the upgrade."
            ) from None
        group = ConsumerGroup(
            known.group_id,
            epoch=known.generation,
            assignment_epoch=known.generation,
            offsets=known.offsets,
        )
        for member in members:
            group.put(member)
            group.targets[member.member_id] = member.assigned
        group.metadata_hash = hash_of(self._topics, group.subscribed_topics())
        return group

    def _upgraded_member(self, group: ClassicGroup, member: Member) -> ConsumerMember:
        protocol = group.protocol or member.protocols[0][0]
        said = read_subscription(member.metadata(protocol))
        version_of(member.protocols[0][1])  # later on it is taken for granted that it has one
        has = read_assignment(member.assignment)
        if has.user_data:
            raise _CustomAssignor
        rows = [(each.topic, list(each.partitions)) for each in has.assigned_partitions]
        assigned = by_id(rows, self._topics)
        return ConsumerMember(
            member.member_id,
            member.instance_id,
            said.rack_id or None,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            topics=frozenset(map(self._topics.meant, said.topics)),
            epoch=group.generation,
            previous_epoch=group.generation,
            assigned=assigned,
            since={key: dict.fromkeys(parts, group.generation) for key, parts in assigned.items()},
            classic=ClassicSide(member.session_timeout_ms, member.protocols),
        )

    def downgrade(
        self, group: ConsumerGroup, leaving: Collection[str], reason: str, now_ms: int, draft: Draft
    ) -> None:
        """Make a classic group of a consumer group whose members but for ``leaving`` are classic."""
        made = self._downgraded(group, leaving, now_ms)
        draft.facts += list(group_end(group))
        decision = self._classic.adopt(made, leaving, reason, now_ms)
        draft.facts += decision.facts  # type: ignore[arg-type]
        draft.released += decision.released
        draft.actions += decision.actions

    def _downgraded(self, group: ConsumerGroup, leaving: Collection[str], now_ms: int) -> ClassicGroup:
        made = ClassicGroup(
            group.group_id,
            state=GroupState.STABLE,
            since_ms=now_ms,
            generation=group.epoch,
            protocol_type=CONSUMER,
            offsets=group.offsets,
        )
        staying = [member for member in group.members.values() if member.member_id not in leaving]
        for member in staying:
            made.add(self._downgraded_member(member, member.classic))
        made.protocol = made.choose_protocol()
        for member in group.members.values():
            if member.member_id in leaving:
                # Until the next generation the log tells of who left, as of every classic group: should the broker
                # end before that, their sessions do, and what they had is given to the others.
                session_ms = self._settings(group.group_id).group_consumer_session_timeout_ms
                topics = sorted(self._topics.written(name) for name in group.topics_of(member))
                side = ClassicSide(session_ms, ((made.protocol, subscription_of(topics)),))
                made.add(self._downgraded_member(replace(member, instance_id=None), side))
        made.subscribed = made.find_subscribed()
        return made

    def _downgraded_member(self, member: ConsumerMember, side: ClassicSide | None) -> Member:
        """Return it with what it has, not with its target.

        A part of that another may have yet to give up; and should the broker end before the rebalance, who joined
        before is answered with what stands here.
        """
        assert side is not None
        return Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=side.session_timeout_ms,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            protocol_type=CONSUMER,
            protocols=side.protocols,
            assignment=assignment_of(member.assigned, self._topics, version_of(side.protocols[0][1])),
        )


class _CustomAssignor(Exception):
    """An assignment has something for the clients' own assignor, which would be lost."""
