"""What is replayed of a streams group that ended: nothing of the group, and its committed offsets."""

from __future__ import annotations

from magnetar.kafka.coordinators.decider import GroupsDecider
from magnetar.kafka.coordinators.facts import Committed, offset_fact
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.kafka.coordinators.streams.facts import group_end, group_fact
from magnetar.kafka.coordinators.streams.group import StreamsGroup


def replayed(*facts: object) -> GroupsDecider:
    decider = GroupsDecider(GroupSettings(), lambda: "id")
    for each in facts:
        decider.replay(each)  # type: ignore[arg-type]
    return decider


def test_a_group_that_ended_is_gone() -> None:
    group = StreamsGroup("g")
    assert list(replayed(group_fact(group)).groups) == ["g"]
    assert not replayed(group_fact(group), *group_end(group)).groups


def test_its_offsets_stay() -> None:
    group = StreamsGroup("g")
    committed = offset_fact("g", "t", 0, Committed(7))
    decider = replayed(group_fact(group), committed, *group_end(group))
    assert decider.groups["g"].offsets["t"][0].offset == 7
