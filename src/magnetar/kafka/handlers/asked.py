"""From what a request names to the partition it means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.auth import Access
from magnetar.broker.errors import TopicNotFound
from magnetar.kafka.authorization.checks import Checks
from magnetar.kafka.errors import UnknownTopicId
from magnetar.kafka.partitions.partition import Partition
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    from magnetar.broker.topic import Topic
    from magnetar.kafka.context import RequestContext


async def find_partition(context: RequestContext, name: str, topic_id: bytes, index: int) -> Partition:
    """Return the partition by its topic's id, or by any form of its name; raise ``TopicNotFound`` or ``NotOwned``."""
    return await context.kafka.partitions.get(find_topic(context, name, topic_id), index)


_FIRST_BY_ID = 13
"""From this version on Produce and Fetch name topics by their ids alone (KIP-516)."""


def find_topic(context: RequestContext, name: str, topic_id: bytes) -> Topic:
    """Return the topic of that id, or with any form of that name; raise ``TopicNotFound``."""
    broker = context.kafka.broker
    if not name and (topic_id != ZERO_UUID or context.api_version >= _FIRST_BY_ID):
        topic = broker.get_by_id(topic_id)
        if topic is None:
            raise UnknownTopicId("no topic has this id")
    else:
        topic = broker.topic(name)
    if not broker.visible(topic):
        raise TopicNotFound(f"topic {name} does not exist")
    return topic


def may_read(context: RequestContext, access: Access, name: str, topic_id: bytes) -> bool:
    """Say whether the client may consume the topic that it names; one that cannot be is nobody's."""
    return Checks(access, context).reads(name, topic_id)


def check_epoch(current_leader_epoch: int, partition: Partition) -> ErrorCode:
    """Say whether the client's idea of who leads is older or newer than ours (KIP-320); -1 has none."""
    if current_leader_epoch < 0 or current_leader_epoch == partition.leader_epoch:
        return ErrorCode.NONE
    is_older = current_leader_epoch < partition.leader_epoch
    return ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH
