"""The table of kinds: what each names is there, and no record belongs to two kinds."""

from __future__ import annotations

from collections import Counter

import pytest

from magnetar.coordination.decision import Fact
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.decider import GroupsDecider
from magnetar.kafka.coordinators.facts import Committed
from magnetar.kafka.coordinators.group import ClassicGroup, GroupState
from magnetar.kafka.coordinators.kinds import (
    CLASSIC,
    CONSUMER,
    KINDS,
    MODERN,
    SHARE,
    STREAMS,
    GroupKind,
    facts_about,
    kind_of,
)
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.wire.kafka.errors import ErrorCode

BY_NAME = pytest.mark.parametrize("kind", MODERN, ids=lambda kind: kind.name)


@BY_NAME
def test_a_kind_reads_the_records_that_the_table_gives_it(kind: GroupKind) -> None:
    assert set(kind.module.READERS) == kind.records


def test_no_record_belongs_to_two_kinds() -> None:
    assert max(Counter(record for kind in MODERN for record in kind.records).values()) == 1
    assert kind_of((99).to_bytes(2, "big")) is None


@BY_NAME
def test_a_group_has_the_kind_that_made_it_and_is_read_again_from_its_facts(kind: GroupKind) -> None:
    group = kind.new("g", None)
    assert group.kind == kind.name
    assert [each.name for each in KINDS.values() if each.own(group) is not None] == [kind.name]
    decider = GroupsDecider(GroupSettings(), lambda: "id")
    for fact in facts_about(group):
        decider.replay(fact)
    assert kind.own(decider.groups["g"]) is not None
    assert decider.foreign == 0


def test_a_record_that_no_kind_reads_is_counted() -> None:
    decider = GroupsDecider(GroupSettings(), lambda: "id")
    decider.replay(Fact((99).to_bytes(2, "big") + b"key", b"value"))
    assert decider.foreign == 1
    assert not decider.groups


OFFSETS = {"t": {0: Committed(7)}}


@pytest.mark.parametrize(("kind", "inherits"), [(CONSUMER, True), (STREAMS, True), (SHARE, False)])
def test_offsets_go_over_to_the_kinds_that_commit_some(kind: GroupKind, inherits: bool) -> None:
    assert kind.new("g", ClassicGroup("g", offsets=OFFSETS)).offsets == (OFFSETS if inherits else {})


@pytest.mark.parametrize(
    ("kind", "create", "told"),
    [
        (CONSUMER, True, "Group g is not a consumer group."),
        (CONSUMER, False, "Consumer group g not found."),
        (STREAMS, True, "Group g is not a streams group."),
        (STREAMS, False, "Group g is not a streams group."),
        (SHARE, True, "Group g is not a share group."),
        (SHARE, False, "Group g is not a share group."),
    ],
)
def test_a_group_with_members_does_not_change_its_kind(kind: GroupKind, create: bool, told: str) -> None:
    with pytest.raises(CoordinatorRefused, match=told) as refused:
        kind.obtain(ClassicGroup("g", state=GroupState.STABLE), "g", create=create)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_gives_its_name_but_to_share_groups() -> None:
    known = ClassicGroup("g", offsets=OFFSETS)
    assert CONSUMER.obtain(known, "g", create=True).offsets == OFFSETS
    with pytest.raises(CoordinatorRefused):
        SHARE.obtain(known, "g", create=True)
    with pytest.raises(CoordinatorRefused):
        STREAMS.obtain(CONSUMER.new("g", None), "g", create=True)
    assert CLASSIC.own(known) is known
