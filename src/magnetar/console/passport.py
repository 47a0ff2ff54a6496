"""What is known of a record beyond its entry: the Pulsar subscriptions that have acknowledged it, and that have not."""

from __future__ import annotations

from typing import Any

from magnetar.base.slices import sliced
from magnetar.ledger.values import Position
from magnetar.pulsar.rest.request import AdminRequest
from magnetar.topics.topic import Topic

_MOST = 200


async def subscriptions_at(
    ask: AdminRequest, topic: Topic, index: int, place: Position
) -> list[dict[str, Any]]:
    """Return the subscriptions of a partition, with whether each has acknowledged the entry at a place.

    Cursors that follow Kafka groups are left out: those are among the groups.
    """
    opened = ask.services.topics.opened(topic, index)
    rows: list[dict[str, Any]] = []
    if opened is None:
        return rows
    async for name, subscription in sliced(list(opened.subscriptions.items())[:_MOST]):
        if ask.services.groups.is_groups(opened, name):
            continue
        cursor = subscription.cursor
        is_past = cursor.mark_delete_position >= place or any(
            lower < place <= upper for lower, upper in cursor.deleted_ranges()
        )
        rows.append({"subscription": name, "acknowledged": is_past})
    return rows
