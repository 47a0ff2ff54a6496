"""The interface of the table of kinds for consumer groups (`magnetar.kafka.coordinators.kinds`)."""

from __future__ import annotations

from magnetar.kafka.coordinators.consumer.facts import READERS, facts_of, group_end
from magnetar.kafka.coordinators.consumer.group import ConsumerGroup
from magnetar.kafka.coordinators.consumer.members import ConsumerGroups
from magnetar.kafka.coordinators.views import GroupView, Viewed

__all__ = ["READERS", "facts_of", "group_end", "new_group", "new_rules", "view"]

new_group = ConsumerGroup
new_rules = ConsumerGroups


def view(group: ConsumerGroup, seen: Viewed) -> GroupView:
    """Return the group as operators see it."""
    from magnetar.kafka.coordinators.consumer.views import consumer_view

    return consumer_view(group, seen.topics, seen.settings, seen.timers, seen.now_ms)
