"""The migration of a group with members from the classic protocol to the consumer protocol, and back (KIP-848).

Upgrade: the first consumer-protocol member that joins turns a classic group into a consumer group; its members stay,
with what they had. Downgrade: when the last such member goes, the rest is a classic group again, and rebalances.
``group.consumer.migration.policy`` decides whether either is done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from magnetar.coordination.decision import Decision
from magnetar.coordination.refused import CoordinatorRefused
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
from magnetar.kafka.coordinators.consumer.group import Assignment, ClassicSide, ConsumerGroup, ConsumerMember
from magnetar.kafka.coordinators.consumer.members import Beating, ConsumerGroups
from magnetar.kafka.coordinators.group import CONSUMER, ClassicGroup, GroupState, Member
from magnetar.kafka.coordinators.kinds import Kinds, end_of
from magnetar.kafka.coordinators.modern.members import Draft
from magnetar.kafka.coordinators.modern.surroundings import SettingsOfGroups
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.kafka.coordinators.topics import Topics, hash_of
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from magnetar.wire.kafka.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse


class GroupMigration:
    """The migration of the groups of one partition."""

    def __init__(
        self,
        kinds: Kinds,
        classic: ClassicGroups,
        consumer: ConsumerGroups,
        topics: Topics,
        configs: SettingsOfGroups,
    ) -> None:
        self._kinds = kinds
        self._classic = classic
        self._consumer = consumer
        self._topics = topics
        self._configs = configs

    def upgrade(
        self, known: ClassicGroup, request: ConsumerGroupHeartbeatRequest, caller: Beating, now_ms: int
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        """Add the first consumer-protocol member to a classic group, which becomes a consumer group."""
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

        settings = self._configs.of(known.group_id, GroupSettings)
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
        for member in _with_what_they_own(members, self._claims(known)):
            group.put(member)
            group.targets[member.member_id] = member.assigned
        group.metadata_hash = hash_of(self._topics, group.subscribed_topics())
        return group

    def _upgraded_member(self, group: ClassicGroup, member: Member) -> ConsumerMember:
        protocol = group.protocol or member.protocols[0][0]
        said = read_subscription(member.metadata(protocol))
        version_of(member.protocols[0][1])  # later code assumes that it has one
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
            classic=ClassicSide(member.session_timeout_ms, member.protocols),
        )

    def _claims(self, group: ClassicGroup) -> list[tuple[str, Assignment]]:
        """Return what members reported to own when they last joined; members of the latest generation first.

        A member's assignment is not all that it has: before it has synced it has its assignment of the previous
        generation, and during a rebalance it is assigned nothing. Once it has given up what it should, it joins again.
        """
        said = []
        for member in group.members.values():
            one = read_subscription(member.metadata(group.protocol or member.protocols[0][0]))
            rows = [(each.topic, list(each.partitions)) for each in one.owned_partitions]
            said.append((one.generation_id, member.member_id, by_id(rows, self._topics)))
        said.sort(key=lambda each: -each[0])
        return [(member_id, owned) for _, member_id, owned in said]

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
                # Until the next generation the log has the members that left, as in any classic group: if the broker
                # ends before that, their sessions expire, and what they had goes to the others.
                session_ms = self._configs.of(group.group_id, GroupSettings).group_consumer_session_timeout_ms
                topics = sorted(self._topics.written(name) for name in group.topics_of(member))
                side = ClassicSide(session_ms, ((made.protocol, subscription_of(topics)),))
                made.add(self._downgraded_member(replace(member, instance_id=None), side))
        made.subscribed = made.find_subscribed()
        return made

    def _downgraded_member(self, member: ConsumerMember, side: ClassicSide | None) -> Member:
        """Return it with what it has or has yet to give up, not with its target.

        Another member may have yet to give up a part of the target; and should the broker end before the rebalance,
        members that joined before are answered with this. Before the rebalance a consumer-protocol member may also come
        back, and must not get what this member was only asked to give up.
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
            assignment=assignment_of(member.held, self._topics, version_of(side.protocols[0][1])),
        )


def _with_what_they_own(
    members: Sequence[ConsumerMember], claims: Sequence[tuple[str, Assignment]]
) -> Iterator[ConsumerMember]:
    """Yield members with what they report to own in addition to their assignment, unless another is entitled to it.

    The member to which the leader assigned a partition is entitled to it, since the leader knew what all own; otherwise
    the first that claims it.
    """
    taken = {each for member in members for each in _pairs(member.assigned)}
    owned: dict[str, dict[bytes, frozenset[int]]] = {each.member_id: dict(each.assigned) for each in members}
    for member_id, claimed in claims:
        mine = owned[member_id]
        for topic_id, partitions in claimed.items():
            if free := frozenset(each for each in partitions if (topic_id, each) not in taken):
                mine[topic_id] = mine.get(topic_id, frozenset()) | free
                taken.update((topic_id, each) for each in free)
    for member in members:
        yield replace(member, assigned=owned[member.member_id])


def _pairs(assigned: Assignment) -> Iterator[tuple[bytes, int]]:
    return ((topic_id, each) for topic_id, partitions in assigned.items() for each in partitions)


class _CustomAssignor(Exception):
    """An assignment has something for the clients' own assignor, which would be lost."""
