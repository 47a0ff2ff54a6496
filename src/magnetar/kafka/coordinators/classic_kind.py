"""The interface of the table of kinds for classic groups (`magnetar.kafka.coordinators.kinds`)."""

from __future__ import annotations

from collections.abc import Iterable

from magnetar.coordination.decision import Fact
from magnetar.kafka.coordinators.facts import group_fact
from magnetar.kafka.coordinators.group import ClassicGroup
from magnetar.kafka.coordinators.views import GroupView, Viewed
from magnetar.kafka.coordinators.views import view as classic_view

new_group = ClassicGroup


def facts_of(group: ClassicGroup) -> Iterable[Fact]:
    """Return the record of the group, if it has one."""
    return () if group.stored is None else (group_fact(group.group_id, group.stored),)


def group_end(group: ClassicGroup) -> Iterable[Fact]:
    """Return the record of the group's end."""
    return (group_fact(group.group_id, None),)


def view(group: ClassicGroup, seen: Viewed) -> GroupView:
    """Return the group as operators see it."""
    return classic_view(group, seen.timers, seen.now_ms)
