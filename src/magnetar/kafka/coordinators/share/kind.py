"""The interface of the table of kinds for share groups (`magnetar.kafka.coordinators.kinds`)."""

from __future__ import annotations

from magnetar.kafka.coordinators.share.facts import READERS, facts_of, group_end
from magnetar.kafka.coordinators.share.group import ShareGroup
from magnetar.kafka.coordinators.share.members import ShareGroups
from magnetar.kafka.coordinators.share.settings import ShareSettings
from magnetar.kafka.coordinators.views import GroupView, Viewed

__all__ = ["READERS", "facts_of", "group_end", "new_group", "new_rules", "view"]

new_group = ShareGroup
new_rules = ShareGroups


def view(group: ShareGroup, seen: Viewed) -> GroupView:
    """Return the group as operators see it."""
    from magnetar.kafka.coordinators.share.views import share_view

    return share_view(group, seen.configs.of(group.group_id, ShareSettings), seen.timers, seen.now_ms)
