"""One partition of ``__consumer_offsets`` as a value: all its groups, made from facts and giving facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING

from magnetar.coordination.caller import Caller
from magnetar.coordination.decision import Action, Assigned, Decision, Fact, Marker, Stated, Token
from magnetar.kafka.coordinators.classic import ClassicGroups
from magnetar.kafka.coordinators.configs import GroupConfigs, SameForAll
from magnetar.kafka.coordinators.consumer.topics import NoTopics, Topics
from magnetar.kafka.coordinators.facts import (
    Committed,
    GroupFact,
    OffsetFact,
    offset_fact,
    read_fact,
)
from magnetar.kafka.coordinators.group import ClassicGroup, from_value
from magnetar.kafka.coordinators.kinds import (
    AnyGroup,
    Kinds,
    facts_about,
    is_consumer,
    is_share,
    is_streams,
)
from magnetar.kafka.coordinators.offsets import GroupOffsets
from magnetar.kafka.coordinators.pending import Name
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.kafka.coordinators.share.settings import ShareSettings
from magnetar.kafka.coordinators.streams.settings import StreamsSettings
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
    from magnetar.kafka.coordinators.consumer.facts import ConsumerFact
    from magnetar.kafka.coordinators.consumer.members import Beating, ConsumerGroups
    from magnetar.kafka.coordinators.migration import GroupMigration
    from magnetar.kafka.coordinators.share.group import ShareGroup
    from magnetar.kafka.coordinators.share.members import ShareGroups
    from magnetar.kafka.coordinators.streams.facts import StreamsFact
    from magnetar.kafka.coordinators.streams.members import BeatAnswer, StreamsGroups
    from magnetar.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
    from magnetar.wire.kafka.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
    from magnetar.wire.kafka.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
    from magnetar.wire.kafka.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
    from magnetar.wire.kafka.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest

_FACTS_AT_ONCE = 500
_FACTS_OF_A_MEMBER = 3


class GroupsDecider:
    """A `Decider`: replay its facts in order, resume, then ask."""

    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        topics: Topics | None = None,
        configs: GroupConfigs | None = None,
    ) -> None:
        """``configs`` tells the settings in force for a group, as they are changed while the broker runs."""
        self.groups: dict[str, AnyGroup] = {}
        """All groups by their ids; to look at, not to change."""
        kinds = Kinds(self.groups, self._forget)
        self.classic = ClassicGroups(settings, new_id, kinds)
        self.offsets = GroupOffsets(self.classic, kinds)
        self.foreign = 0
        """Records of kinds that are not known here: a snapshot would lose them."""
        self._kinds = kinds
        self._new_id = new_id
        self._topics = topics or NoTopics()
        self._configs = configs or SameForAll(lambda: settings)
        self._consumer: ConsumerGroups | None = None
        self._share: ShareGroups | None = None
        self._streams: StreamsGroups | None = None

    @property
    def consumer(self) -> ConsumerGroups:
        """The consumer groups; their modules are for brokers that have some."""
        if self._consumer is None:
            from magnetar.kafka.coordinators.consumer.members import ConsumerGroups

            self._consumer = ConsumerGroups(self._group_settings, self._topics, self._new_id)
            self._consumer.on_downgrade = lambda *about: self.migration.downgrade(*about)
        return self._consumer

    @cached_property
    def classic_members(self) -> ClassicMembers:
        """Members of consumer groups that speak the classic protocol."""
        from magnetar.kafka.coordinators.consumer.classic_members import ClassicMembers

        return ClassicMembers(self.consumer, self._topics, self._new_id)

    @cached_property
    def migration(self) -> GroupMigration:
        """How groups go over from one protocol to the other."""
        from magnetar.kafka.coordinators.migration import GroupMigration

        return GroupMigration(self._kinds, self.classic, self.consumer, self._topics, self._group_settings)

    def _group_settings(self, group_id: str) -> GroupSettings:
        return self._configs.of(group_id, GroupSettings)

    @property
    def share(self) -> ShareGroups:
        """The share groups; their modules are for brokers that have some."""
        if self._share is None:
            from magnetar.kafka.coordinators.share.members import ShareGroups

            self._share = ShareGroups(
                lambda group_id: self._configs.of(group_id, ShareSettings), self._topics
            )
        return self._share

    @property
    def streams(self) -> StreamsGroups:
        """The streams groups; their modules are for brokers that have some."""
        if self._streams is None:
            from magnetar.kafka.coordinators.streams.members import StreamsGroups

            self._streams = StreamsGroups(
                lambda group_id: self._configs.of(group_id, StreamsSettings), self._topics
            )
        return self._streams

    def _forget(self, group: AnyGroup) -> None:
        if is_streams(group):
            self.streams.forget(group)
        elif is_consumer(group):
            self.consumer.forget(group)
        elif is_share(group):
            self.share.forget(group)
        else:
            self.classic.forget(group)

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Beating, now_ms: int
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        """Take in what a member of a consumer group says (KIP-848)."""
        self.consumer.check(request, caller.api_version)
        known = self.groups.get(request.group_id)
        if request.member_epoch == 0 and isinstance(known, ClassicGroup) and not known.is_empty:
            return self.migration.upgrade(known, request, caller, now_ms)
        group, ended = self._kinds.consumer(request.group_id, create=request.member_epoch == 0)
        if request.member_epoch < 0:
            return self.consumer.leave(group, request, now_ms)
        decision = self.consumer.heartbeat(group, request, caller, now_ms)
        self._kinds.take(group)
        return replace(decision, facts=ended + decision.facts) if ended else decision

    def share_heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Beating, now_ms: int
    ) -> Decision[ShareGroupHeartbeatResponse]:
        """Take in what a member of a share group says (KIP-932)."""
        group = self._kinds.share(request.group_id, create=request.member_epoch == 0)
        if request.member_epoch < 0:
            return self.share.leave(group, request)
        decision = self.share.heartbeat(group, request, caller, now_ms)
        return replace(decision, facts=(*self._take_share(group), *decision.facts))

    def make_share_group(self, group_id: str) -> Decision[ShareGroup]:
        """Return a share group; one that is not there is made, and nobody is in it."""
        from magnetar.kafka.coordinators.share.facts import group_fact

        group = self._kinds.share(group_id, create=True)
        known = self.groups.get(group_id) is group
        ended = self._take_share(group)
        return Decision((*ended, *(() if known else (group_fact(group),))), group)

    def _take_share(self, group: ShareGroup) -> tuple[Stated, ...]:
        """Let a share group have its name; what stood there for a linked subscription ends, offsets and all."""
        known = self.groups.get(group.group_id)
        ended = () if known is None or known is group else self.offsets.delete_group(group.group_id).facts
        self._kinds.take(group)
        return ended

    def streams_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Decision[BeatAnswer]:
        """Take in what a member of a streams group says (KIP-1071)."""
        from magnetar.kafka.coordinators.streams.checks import check

        check(request)
        group, ended = self._kinds.streams(request.group_id, create=request.member_epoch == 0)
        if request.member_epoch < 0:
            return self.streams.leave(group, request)
        decision = self.streams.heartbeat(group, request, caller, now_ms)
        self._kinds.take(group)
        return replace(decision, facts=ended + decision.facts) if ended else decision

    # What members of either kind of group ask with the classic protocol.

    def join(
        self, request: JoinGroupRequest, caller: Caller, token: Token, now_ms: int
    ) -> Decision[JoinGroupResponse]:
        """Let a member into a group; of a classic one the answer comes when its next generation begins."""
        group = self.groups.get(request.group_id)
        if not is_consumer(group) or group.is_empty:
            return self.classic.join(request, caller, token, now_ms)
        self.classic.check(request)
        return self.classic_members.join(group, request, caller, now_ms)

    def sync(self, request: SyncGroupRequest, token: Token, now_ms: int) -> Decision[SyncGroupResponse]:
        """Tell a member its part."""
        group = self.groups.get(request.group_id)
        if is_consumer(group):
            return self.classic_members.sync(group, request, now_ms)
        return self.classic.sync(request, token, now_ms)

    def classic_heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Decision[HeartbeatResponse]:
        """Note that a member lives, and tell it if it has to rejoin."""
        group = self.groups.get(request.group_id)
        if is_consumer(group):
            return self.classic_members.heartbeat(group, request, now_ms)
        return self.classic.heartbeat(request, now_ms)

    def leave(self, request: LeaveGroupRequest, now_ms: int) -> Decision[LeaveGroupResponse]:
        """Take members out."""
        group = self.groups.get(request.group_id)
        if is_consumer(group):
            return self.classic_members.leave(group, request, now_ms)
        return self.classic.leave(request, now_ms)

    # Recovery.

    def replay(self, stated: Stated) -> None:
        """Take in what was stated before; raises ``WireError`` if the record is damaged."""
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
        elif not any(
            replay(stated) for replay in (self._replay_consumer, self._replay_streams, self._replay_share)
        ):
            self.foreign += 1

    def _replay_streams(self, stated: Fact) -> bool:
        from magnetar.kafka.coordinators.streams.facts import read_streams_fact

        about = read_streams_fact(stated.key, stated.value)
        if about is not None:
            self._take_in(about)
        return about is not None

    def _take_in(self, about: StreamsFact) -> None:
        known = self.groups.get(about.group_id)
        if not is_streams(known):
            if about.is_end:
                return
            from magnetar.kafka.coordinators.streams.group import StreamsGroup

            offsets = {} if known is None else known.offsets
            known = self.groups[about.group_id] = StreamsGroup(about.group_id, offsets=offsets)
        about.apply(known)
        if about.ends:
            del self.groups[about.group_id]
            if known.offsets:
                self.groups[about.group_id] = ClassicGroup(about.group_id, offsets=known.offsets)

    def _replay_consumer(self, stated: Fact) -> bool:
        from magnetar.kafka.coordinators.consumer.facts import read_consumer_fact

        about = read_consumer_fact(stated.key, stated.value)
        if about is not None:
            self._take_in_consumer(about)
        return about is not None

    def _take_in_consumer(self, about: ConsumerFact) -> None:
        known = self.groups.get(about.group_id)
        if not is_consumer(known):
            if about.is_end:
                return
            from magnetar.kafka.coordinators.consumer.group import ConsumerGroup

            offsets = {} if known is None else known.offsets
            known = self.groups[about.group_id] = ConsumerGroup(about.group_id, offsets=offsets)
        about.apply(known)
        if about.ends:
            del self.groups[about.group_id]
            if known.offsets:
                self.groups[about.group_id] = ClassicGroup(about.group_id, offsets=known.offsets)

    def _replay_share(self, stated: Fact) -> bool:
        from magnetar.kafka.coordinators.share.facts import read_share_group_fact

        about = read_share_group_fact(stated.key, stated.value)
        if about is None:
            return False
        known = self.groups.get(about.group_id)
        if not is_share(known):
            if about.is_end:
                return True
            from magnetar.kafka.coordinators.share.group import ShareGroup

            known = self.groups[about.group_id] = ShareGroup(about.group_id)
        about.apply(known)
        if about.ends:
            del self.groups[about.group_id]
        return True

    def resume(self, now_ms: int) -> Decision[None]:
        """Begin deadlines anew for the members that the facts tell of."""
        if groups := [each for each in self.groups.values() if is_consumer(each)]:
            self.consumer.resume(groups, now_ms)
        if shares := [each for each in self.groups.values() if is_share(each)]:
            self.share.resume(shares, now_ms)
        if streams := [each for each in self.groups.values() if is_streams(each)]:
            self.streams.resume(streams, now_ms)
        return self.classic.resume(now_ms)

    def done(self, action: Action, result: object, now_ms: int) -> Decision[None]:
        """Hear that an assignment is durable, or what a thread made for a consumer group."""
        if isinstance(action, Assigned):
            return self.classic.kept(action, now_ms)
        from magnetar.kafka.coordinators.consumer.actions import MakeTarget, ResolveRegexes

        if not isinstance(action, MakeTarget | ResolveRegexes):
            return self._share_target_made(action, result)
        group = self.groups.get(action.group_id)
        if not is_consumer(group):
            return Decision((), None)
        if isinstance(action, MakeTarget):
            assert isinstance(result, dict | Exception)
            return self.consumer.target_made(group, action, result)
        assert isinstance(result, dict | Exception)
        return self.consumer.resolved(group, action, result, now_ms)

    def _share_target_made(self, action: Action, result: object) -> Decision[None]:
        from magnetar.kafka.coordinators.share.members import MakeShareTarget

        assert isinstance(action, MakeShareTarget)
        assert isinstance(result, dict | Exception)
        group = self.groups.get(action.group_id)
        return self.share.target_made(group, action, result) if is_share(group) else Decision((), None)

    def wake_ms(self) -> int | None:
        """Return when a member's time is over, or a rebalance's."""
        times = [self.classic.timers.wake_ms()]
        if self._consumer is not None:
            times.append(self._consumer.timers.wake_ms())
        if self._share is not None:
            times.append(self._share.timers.wake_ms())
        if self._streams is not None:
            times.append(self._streams.timers.wake_ms())
        return min((each for each in times if each is not None), default=None)

    def expire(self, now_ms: int) -> Decision[None]:
        """Let go of members whose time is over."""
        return together(
            [
                self._expire_consumer(now_ms),
                self._expire_streams(now_ms),
                self._expire_share(now_ms),
                self.classic.expire(now_ms),
            ]
        )

    def _expire_consumer(self, now_ms: int) -> Decision[None]:
        if self._consumer is None:
            return Decision((), None)
        decisions: list[Decision[None]] = []
        for key in self._consumer.timers.take_due(now_ms):
            group = self.groups.get(key.group_id)
            if is_consumer(group):
                decisions.append(self._consumer.expire(group, key.member_id, now_ms))
        return together(decisions)

    def _expire_streams(self, now_ms: int) -> Decision[None]:
        if self._streams is None:
            return Decision((), None)
        decisions: list[Decision[None]] = []
        for key in self._streams.timers.take_due(now_ms):
            group = self.groups.get(key.group_id)
            if is_streams(group):
                decisions.append(self._streams.expire(group, key.member_id))
        return together(decisions)

    def _expire_share(self, now_ms: int) -> Decision[None]:
        if self._share is None:
            return Decision((), None)
        due = []
        for key in self._share.timers.take_due(now_ms):
            group = self.groups.get(key.group_id)
            if is_share(group):
                due.append((group, key.member_id))
        return self._share.expire(due)

    def _replay_offset(self, said: OffsetFact) -> None:
        if said.committed is not None:
            self.offsets.apply(said.group_id, said.topic, said.partition, said.committed)
            return
        known = self.groups.get(said.group_id)
        partitions: dict[int, Committed] = known.offsets.get(said.topic, {}) if known is not None else {}
        partitions.pop(said.partition, None)
        if known is not None and not partitions:
            known.offsets.pop(said.topic, None)
            if not known.offsets and isinstance(known, ClassicGroup) and known.stored is None:
                # It only ever stood for its offsets.
                del self.groups[said.group_id]

    def _replay_group(self, group_id: str, value: GroupMetadataValue | None) -> None:
        known = self.groups.get(group_id)
        if value is None and known is not None and not isinstance(known, ClassicGroup):
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
        """Return how many keys are not gone."""
        return len(self.offsets.pending) + sum(
            _facts_about(group) + sum(map(len, group.offsets.values())) for group in self.groups.values()
        )

    def snapshot(self) -> Iterator[Sequence[Fact]]:
        """Return the facts of groups, some at a time, then those of transactions that were open at the first call.

        A group may be changed meanwhile; what is stated of what was changed is either. The others come last, as what is
        committed behind them would overrule them; and those of now, as one that ends meanwhile has its marker behind
        the snapshot, and needs its offsets before that.
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


def _facts_about(group: AnyGroup) -> int:
    """Return about how many facts make a group what it is, but for its offsets."""
    if not isinstance(group, ClassicGroup):
        return _FACTS_OF_A_MEMBER * len(group.members) + 2
    return group.stored is not None
