"""What the APIs of share groups' offsets have in common: a group that operators ask about, and change when empty."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.coordinators.share.group import ShareGroup
    from magnetar.topics.topic import Topic


def find_group(context: RequestContext, group_id: str) -> ShareGroup:
    """Return a share group; raise `CoordinatorRefused`."""
    if not group_id:
        raise CoordinatorRefused(ErrorCode.INVALID_GROUP_ID, "Group id must not be empty.")
    group = context.kafka.groups.share_group(group_id)
    if group is None:
        raise CoordinatorRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    return group


def find_empty_group(context: RequestContext, group_id: str) -> ShareGroup:
    """Return a share group that nobody is in; raise `CoordinatorRefused`."""
    return check_empty(find_group(context, group_id))


def check_empty(group: ShareGroup) -> ShareGroup:
    """Return the group; raise `CoordinatorRefused` if somebody is in it."""
    if not group.is_empty:
        raise CoordinatorRefused(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    return group


@asynccontextmanager
async def moving_subscription(
    context: RequestContext, group_id: str, topic: Topic, index: int, offset: int
) -> AsyncIterator[None]:
    """Have a linked subscription begin where its group then does; raise `CoordinatorRefused` if it has consumers."""
    links = context.kafka.broker.coordination.linked_queues
    if not links.is_linked(group_id):
        yield
        return
    if links.subscriptions.is_used(group_id, topic, index):
        raise CoordinatorRefused(
            ErrorCode.NON_EMPTY_GROUP, "The linked Pulsar subscription has consumers; stop them first."
        )
    async with links.subscriptions.moving_with_group(group_id, topic, index, offset):
        yield
