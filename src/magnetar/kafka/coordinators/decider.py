"""One partition of ``__consumer_offsets`` as a value: all its groups, which are built from facts and return facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

from magnetar.coordination.caller import Caller
from magnetar.coordination.decision import Action, Assigned, Decision, Fact, Marker, Stated, Token
from magnetar.coordination.timers import Timers
from magnetar.kafka.coordinators.actions import GroupAction
from magnetar.kafka.coordinators.classic import ClassicGroups
from magnetar.kafka.coordinators.configs import GroupConfigs, SameForAll
from magnetar.kafka.coordinators.facts import (
    Committed,
    GroupFact,
    OffsetFact,
    offset_fact,
    read_fact,
)
from magnetar.kafka.coordinators.group import ClassicGroup, from_value
from magnetar.kafka.coordinators.kinds import (
    CLASSIC,
    CONSUMER,
    KINDS,
    MODERN,
    SHARE,
    STREAMS,
    AnyGroup,
    GroupKind,
    Kinds,
    facts_about,
    kind_of,
)
from magnetar.kafka.coordinators.modern.surroundings import Surroundings
from magnetar.kafka.coordinators.offsets import GroupOffsets
from magnetar.kafka.coordinators.pending import Name
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.kafka.coordinators.topics import NoTopics, Topics
from magnetar.wire.kafka.messages.group_metadata_value import GroupMetadataValue
from magnetar.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from magnetar.wire.kafka.messages.heartbeat_response import HeartbeatResponse
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest
from magnetar.wire.kafka.messages.join_group_response import JoinGroupResponse
from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest
from magnetar.wire.kafka.messages.leave_group_response import LeaveGroupResponse
from magnetar.wire.kafka.messages.sync_group_request import SyncGroupRequest
from magnetar.wire.kafka.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from magnetar.kafka.coordinators.consumer.classic_members import ClassicMembers
    from magnetar.kafka.coordinators.consumer.members import Beating
    from magnetar.kafka.coordinators.migration import GroupMigration
    from magnetar.kafka.coordinators.modern.members import ModernGroups
    from magnetar.kafka.coordinators.share.group import ShareGroup
    from magnetar.kafka.coordinators.streams.members import BeatAnswer
    from magnetar.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
    from magnetar.wire.kafka.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
    from magnetar.wire.kafka.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
    from magnetar.wire.kafka.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
    from magnetar.wire.kafka.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest

_FACTS_AT_ONCE = 500
G = TypeVar("G")
R = TypeVar("R")


class GroupsDecider:
    """A `Decider`: replay its facts in order, resume, then send requests."""

    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        topics: Topics | None = None,
        configs: GroupConfigs | None = None,
    ) -> None:
        """``configs`` has the settings in force for a group, which change while the broker runs."""
        self.groups: dict[str, AnyGroup] = {}
        """All groups by their ids; to look at, not to change."""
        kinds = Kinds(self.groups, self._forget)
        self.classic = ClassicGroups(settings, new_id, kinds)
        self.offsets = GroupOffsets(self.classic, kinds)
        self.foreign = 0
        """The number of records of unknown kinds: a snapshot would lose them."""
        self._kinds = kinds
        self._around = Surroundings(
            configs or SameForAll(lambda: settings),
            topics or NoTopics(),
            new_id,
            lambda *about: self.migration.downgrade(*about),
        )
        self._rules: dict[str, ModernGroups[Any, Any, Any]] = {}
        """The rules of the modern kinds that have been met."""

    def _rules_of(self, kind: GroupKind[G, R]) -> R:
        """Return the rules of a modern kind; a broker loads them when it meets a group of that kind."""
        rules = self._rules.get(kind.name)
        if rules is None:
            rules = self._rules[kind.name] = kind.module.new_rules(self._around)
        return cast(R, rules)

    def _met(self) -> Iterator[tuple[GroupKind[Any, Any], ModernGroups[Any, Any, Any]]]:
        """Yield the modern kinds that have been met, in their order."""
        return ((kind, self._rules[kind.name]) for kind in MODERN if kind.name in self._rules)

    def timers_of(self, group: AnyGroup) -> Timers:
        """Return the deadlines of groups of a group's kind."""
        rules = self._rules.get(group.kind)
        return self.classic.timers if rules is None else rules.timers

    @cached_property
    def classic_members(self) -> ClassicMembers:
        """Members of consumer groups that speak the classic protocol."""
        from magnetar.kafka.coordinators.consumer.classic_members import ClassicMembers

        around = self._around
        return ClassicMembers(
            lambda group_id: CONSUMER.find(self.groups.get(group_id), group_id),
            self._rules_of(CONSUMER),
            around.topics,
            around.new_id,
            self.classic.check,
        )

    @cached_property
    def migration(self) -> GroupMigration:
        """Return the migration of groups from one protocol to the other."""
        from magnetar.kafka.coordinators.migration import GroupMigration

        around, consumer = self._around, self._rules_of(CONSUMER)
        return GroupMigration(self._kinds, self.classic, consumer, around.topics, around.configs)

    def _forget(self, group: AnyGroup) -> None:
        classic = CLASSIC.own(group)
        if classic is not None:
            self.classic.forget(classic)
        else:
            self._rules_of(KINDS[group.kind]).forget(group)

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Beating, now_ms: int
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        """Apply a heartbeat of a consumer group's member (KIP-848)."""
        rules = self._rules_of(CONSUMER)
        rules.check(request, caller.api_version)
        known = self.classic.known(request.group_id)
        if request.member_epoch == 0 and known is not None and not known.is_empty:
            return self.migration.upgrade(known, request, caller, now_ms)
        group, ended = self._kinds.obtain(CONSUMER, request.group_id, create=request.member_epoch == 0)
        if request.member_epoch < 0:
            return rules.leave(group, request, now_ms)
        decision = rules.heartbeat(group, request, caller, now_ms)
        self._kinds.take(group)
        return replace(decision, facts=ended + decision.facts) if ended else decision

    def share_heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Beating, now_ms: int
    ) -> Decision[ShareGroupHeartbeatResponse]:
        """Apply a heartbeat of a share group's member (KIP-932)."""
        rules = self._rules_of(SHARE)
        group, _ = self._kinds.obtain(SHARE, request.group_id, create=request.member_epoch == 0)
        if request.member_epoch < 0:
            return rules.leave(group, request)
        decision = rules.heartbeat(group, request, caller, now_ms)
        return replace(decision, facts=(*self._take_share(group), *decision.facts))

    def make_share_group(self, group_id: str) -> Decision[ShareGroup]:
        """Return a share group; an unknown one is created, without members."""
        from magnetar.kafka.coordinators.share.facts import group_fact

        group, _ = self._kinds.obtain(SHARE, group_id, create=True)
        known = self.groups.get(group_id) is group
        ended = self._take_share(group)
        return Decision((*ended, *(() if known else (group_fact(group),))), group)

    def _take_share(self, group: ShareGroup) -> tuple[Stated, ...]:
        """Register a share group; the shadow of a linked subscription that had its name ends, with its offsets."""
        known = self.groups.get(group.group_id)
        ended = () if known is None or known is group else self.offsets.delete_group(group.group_id).facts
        self._kinds.take(group)
        return ended

    def streams_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Decision[BeatAnswer]:
        """Apply a heartbeat of a streams group's member (KIP-1071)."""
        from magnetar.kafka.coordinators.streams.checks import check

        check(request)
        rules = self._rules_of(STREAMS)
        group, ended = self._kinds.obtain(STREAMS, request.group_id, create=request.member_epoch == 0)
        if request.member_epoch < 0:
            return rules.leave(group, request)
        decision = rules.heartbeat(group, request, caller, now_ms)
        self._kinds.take(group)
        return replace(decision, facts=ended + decision.facts) if ended else decision

    # Requests of the classic protocol, in a classic group or in a consumer group.

    def join(
        self, request: JoinGroupRequest, caller: Caller, token: Token, now_ms: int
    ) -> Decision[JoinGroupResponse]:
        """Add a member to a group; of a classic one the response comes when its next generation begins."""
        return self._classic_rules(request.group_id, joins=True).join(request, caller, token, now_ms)

    def sync(self, request: SyncGroupRequest, token: Token, now_ms: int) -> Decision[SyncGroupResponse]:
        """Return a member's assignment."""
        return self._classic_rules(request.group_id).sync(request, token, now_ms)

    def classic_heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Decision[HeartbeatResponse]:
        """Begin a member's session again, and answer whether it has to rejoin."""
        return self._classic_rules(request.group_id).heartbeat(request, now_ms)

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Decision[LeaveGroupResponse]:
        """Remove members."""
        return self._classic_rules(request.group_id).leave(request, now_ms)

    def _classic_rules(self, group_id: str, *, joins: bool = False) -> ClassicGroups | ClassicMembers:
        """Return the rules for the classic protocol in a group; an empty consumer group gives way to new members."""
        group = CONSUMER.own(self.groups.get(group_id))
        if group is None or (joins and group.is_empty):
            return self.classic
        return self.classic_members

    # Recovery.

    def replay(self, stated: Stated) -> None:
        """Apply one record of the log; raise ``WireError`` if the record is damaged."""
        if isinstance(stated, Marker):
            self.offsets.apply_end(stated)
            return
        said = read_fact(stated.key, stated.value)
        if isinstance(said, OffsetFact):
            name = Name(said.group_id, said.topic, said.partition)
            if stated.transaction is not None and said.committed is not None:
                self.offsets.pending.add(stated.transaction, name, said.committed)
            else:
                self.offsets.pending.overrule(name)
                self._replay_offset(said)
        elif isinstance(said, GroupFact):
            self._replay_group(said.group_id, said.value)
        elif (kind := kind_of(stated.key)) is not None:
            self._replay_modern(kind, stated)
        else:
            self.foreign += 1

    def _replay_modern(self, kind: GroupKind[Any, Any], stated: Fact) -> None:
        """Replay a record about a group of a modern kind, which takes the place of one of another kind."""
        about = kind.read(stated)
        known = self.groups.get(about.group_id)
        group = kind.own(known)
        if group is None:
            if about.is_end:
                return
            group = self.groups[about.group_id] = kind.new(about.group_id, known)
        about.apply(group)
        if about.ends:
            del self.groups[about.group_id]
            if group.offsets and kind.has_offsets:
                self.groups[about.group_id] = ClassicGroup(about.group_id, offsets=group.offsets)

    def resume(self, now_ms: int) -> Decision[None]:
        """Begin the deadlines of the members that the facts name."""
        groups: dict[str, list[Any]] = {}
        for group in self.groups.values():
            groups.setdefault(group.kind, []).append(group)
        classic = groups.pop(CLASSIC.name, [])
        for name, some in groups.items():
            self._rules_of(KINDS[name]).resume(some, now_ms)
        return self.classic.resume(classic, now_ms)

    def done(self, action: Action, result: object, now_ms: int) -> Decision[None]:
        """Apply that an assignment is durable, or the result of an action of a modern group."""
        if isinstance(action, Assigned):
            return self.classic.kept(action, now_ms)
        assert isinstance(action, GroupAction)
        kind = KINDS[action.kind]
        group = kind.own(self.groups.get(action.group_id))
        if group is None:
            return Decision((), None)
        decision: Decision[None] = self._rules_of(kind).done(group, action, result, now_ms)
        return decision

    def wake_ms(self) -> int | None:
        """Return when the next deadline of a member or a rebalance is."""
        times = [self.classic.timers.wake_ms(), *(rules.timers.wake_ms() for _, rules in self._met())]
        return min((each for each in times if each is not None), default=None)

    def expire(self, now_ms: int) -> Decision[None]:
        """Remove members whose time is over."""
        decisions: list[Decision[None]] = []
        for kind, rules in self._met():
            for key in rules.timers.take_due(now_ms):
                group = kind.own(self.groups.get(key.group_id))
                if group is not None:
                    decisions.append(rules.expire(group, key.member_id, now_ms))
        return together([*decisions, self.classic.expire(now_ms)])

    def _replay_offset(self, said: OffsetFact) -> None:
        if said.committed is not None:
            self.offsets.apply(said.group_id, said.topic, said.partition, said.committed)
            return
        known = self.groups.get(said.group_id)
        partitions: dict[int, Committed] = known.offsets.get(said.topic, {}) if known is not None else {}
        partitions.pop(said.partition, None)
        if known is not None and not partitions:
            known.offsets.pop(said.topic, None)
            if known.is_nothing:
                del self.groups[said.group_id]

    def _replay_group(self, group_id: str, value: GroupMetadataValue | None) -> None:
        known = self.groups.get(group_id)
        if value is None and known is not None and CLASSIC.own(known) is None:
            return  # it was empty when the other kind took its name
        self.groups.pop(group_id, None)
        offsets = known.offsets if known is not None else {}
        if value is not None:
            self.groups[group_id] = from_value(group_id, value)
        elif offsets:
            self.groups[group_id] = ClassicGroup(group_id)
        if group_id in self.groups:
            self.groups[group_id].offsets = offsets

    def live_facts(self) -> int:
        """Return how many keys a snapshot has."""
        return len(self.offsets.pending) + sum(
            group.live_facts() + sum(map(len, group.offsets.values())) for group in self.groups.values()
        )

    def snapshot(self) -> Iterator[Sequence[Fact]]:
        """Return the facts of groups, some at a time, then those of transactions that were open at the first call.

        A group may change meanwhile; its facts are then from before or after the change. Those of transactions come
        last, as commits after them would overrule them; and as of the first call, as a transaction that ends meanwhile
        has its marker after the snapshot, and needs its offsets before that.
        """
        pending = list(self.offsets.pending.facts())
        for group_id in list(self.groups):
            facts = self._group_facts(group_id)
            while some := list(islice(facts, _FACTS_AT_ONCE)):
                yield some
        yield pending

    def _group_facts(self, group_id: str) -> Iterator[Fact]:
        """Return the facts that make one group what it is; none for one that is gone."""
        group = self.groups.get(group_id)
        if group is None:
            return
        yield from facts_about(group)
        for topic, partitions in list(group.offsets.items()):
            for partition, committed in list(partitions.items()):
                yield offset_fact(group_id, topic, partition, committed)


def together(decisions: Sequence[Decision[None]]) -> Decision[None]:
    """Return one decision that is all of them, in their order."""
    return Decision(
        tuple(chain.from_iterable(each.facts for each in decisions)),
        None,
        tuple(chain.from_iterable(each.released for each in decisions)),
        tuple(chain.from_iterable(each.actions for each in decisions)),
    )
