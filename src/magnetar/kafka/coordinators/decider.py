"""One partition of ``__consumer_offsets`` as a value: all its groups, made from facts and giving facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from magnetar.kafka.coordinators.classic import ClassicGroups
from magnetar.kafka.coordinators.decision import Action, Assigned, Decision, Fact, Marker, Stated
from magnetar.kafka.coordinators.facts import (
    Committed,
    GroupFact,
    OffsetFact,
    group_fact,
    offset_fact,
    read_fact,
)
from magnetar.kafka.coordinators.group import ClassicGroup, from_value
from magnetar.kafka.coordinators.offsets import GroupOffsets
from magnetar.kafka.coordinators.pending import Name
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.wire.kafka.messages.group_metadata_value import GroupMetadataValue

_FACTS_AT_ONCE = 500


class GroupsDecider:
    """A `Decider`: replay its facts in order, resume, then ask."""

    def __init__(self, settings: GroupSettings, new_id: Callable[[], str]) -> None:
        self.classic = ClassicGroups(settings, new_id)
        self.offsets = GroupOffsets(self.classic)
        self.foreign = 0
        """Records of kinds that are not known here: a snapshot would lose them."""

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        """All groups by their ids; to look at, not to change."""
        return self.classic.groups

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
        else:
            self.foreign += 1

    def resume(self, now_ms: int) -> Decision[None]:
        """Begin deadlines anew for the members that the facts tell of."""
        return self.classic.resume(now_ms)

    def done(self, action: Action, result: object, now_ms: int) -> Decision[None]:
        """Hear that a decision's facts are durable, which had an assignment among them."""
        assert isinstance(action, Assigned)
        return self.classic.kept(action, now_ms)

    def wake_ms(self) -> int | None:
        """Return when a member's time is over, or a rebalance's."""
        return self.classic.timers.wake_ms()

    def expire(self, now_ms: int) -> Decision[None]:
        """Let go of members whose time is over."""
        return self.classic.expire(now_ms)

    def _replay_offset(self, said: OffsetFact) -> None:
        if said.committed is not None:
            self.offsets.apply(said.group_id, said.topic, said.partition, said.committed)
            return
        known = self.groups.get(said.group_id)
        partitions: dict[int, Committed] = known.offsets.get(said.topic, {}) if known is not None else {}
        partitions.pop(said.partition, None)
        if known is not None and not partitions:
            known.offsets.pop(said.topic, None)
            if not known.offsets and known.stored is None:
                # It only ever stood for its offsets.
                del self.groups[said.group_id]

    def _replay_group(self, group_id: str, value: GroupMetadataValue | None) -> None:
        known = self.groups.pop(group_id, None)
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
            (group.stored is not None) + sum(map(len, group.offsets.values()))
            for group in self.groups.values()
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
        if group.stored is not None:
            yield group_fact(group_id, group.stored)
        for topic, partitions in list(group.offsets.items()):
            for partition, committed in list(partitions.items()):
                yield offset_fact(group_id, topic, partition, committed)
