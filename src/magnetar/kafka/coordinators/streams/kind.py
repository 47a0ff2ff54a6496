"""The interface of the table of kinds for streams groups (`magnetar.kafka.coordinators.kinds`)."""

from __future__ import annotations

from magnetar.kafka.coordinators.streams.facts import READERS, facts_of, group_end
from magnetar.kafka.coordinators.streams.group import StreamsGroup
from magnetar.kafka.coordinators.streams.members import StreamsGroups
from magnetar.kafka.coordinators.streams.settings import StreamsSettings
from magnetar.kafka.coordinators.views import GroupView, Viewed

__all__ = ["READERS", "facts_of", "group_end", "new_group", "new_rules", "view"]

new_group = StreamsGroup
new_rules = StreamsGroups


def view(group: StreamsGroup, seen: Viewed) -> GroupView:
    """Return the group as operators see it."""
    from magnetar.kafka.coordinators.streams.views import streams_view

    return streams_view(group, seen.configs.of(group.group_id, StreamsSettings), seen.timers, seen.now_ms)
