"""One partition of ``__consumer_offsets`` as a value: all its groups, made from facts and giving facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from magnetar.kafka.coordinators.classic import ClassicGroups
from magnetar.kafka.coordinators.decision import Fact
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
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.wire.kafka.messages.group_metadata_value import GroupMetadataValue


class GroupsDecider:
    """Decides for one partition. Replay its facts in order, `ClassicGroups.resume`, then ask."""

    def __init__(self, settings: GroupSettings, new_id: Callable[[], str]) -> None:
        self.classic = ClassicGroups(settings, new_id)
        self.offsets = GroupOffsets(self.classic)
        self.foreign = 0
        """Records of kinds that are not known here: a snapshot would lose them."""

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        """All groups by their ids; to look at, not to change."""
        return self.classic.groups

    def replay(self, fact: Fact) -> None:
        """Take in what was decided before; raises ``WireError`` if the record is damaged."""
        said = read_fact(fact.key, fact.value)
        if isinstance(said, OffsetFact):
            self._replay_offset(said)
        elif isinstance(said, GroupFact):
            self._replay_group(said.group_id, said.value)
        else:
            self.foreign += 1

    def _replay_offset(self, said: OffsetFact) -> None:
        if said.committed is not None:
            group = self.groups.setdefault(said.group_id, ClassicGroup(said.group_id))
            group.offsets.setdefault(said.topic, {})[said.partition] = said.committed
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
        """Count the keys that are not gone."""
        return sum(
            (group.stored is not None) + sum(map(len, group.offsets.values()))
            for group in self.groups.values()
        )

    def snapshot(self, group_id: str) -> Iterator[Fact]:
        """Give the facts that make one group what it is; none for one that is gone."""
        group = self.groups.get(group_id)
        if group is None:
            return
        if group.stored is not None:
            yield group_fact(group_id, group.stored)
        for topic, partitions in group.offsets.items():
            for partition, committed in partitions.items():
                yield offset_fact(group_id, topic, partition, committed)
