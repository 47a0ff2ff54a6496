"""From what a request names to the partition it means."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from magnetar.auth import Access
from magnetar.base.errors import InvalidTopic, TopicNotFound
from magnetar.base.some_lines import OneLineEach
from magnetar.kafka.authorization.checks import Checks
from magnetar.kafka.errors import REFUSALS, UnknownTopicId, code_for
from magnetar.kafka.partitions.partition import Partition
from magnetar.metadata import MetadataError
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.topics.topic import Topic


_lines = OneLineEach(logging.getLogger("magnetar.kafka"))
_NOT_THE_CLIENTS = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR


async def find_partition(context: RequestContext, name: str, topic_id: bytes, index: int) -> Partition:
    """Return the partition by its topic's id, or by any form of its name; raise ``TopicNotFound`` or ``NotOwned``.

    One of several brokers looks at metadata before it says that there is no topic of a name: another broker may have
    made it a moment ago, and names this one as its leader.
    """
    try:
        topic = find_topic(context, name, topic_id)
    except UnknownTopicId:
        raise
    except TopicNotFound:
        if context.looked_up >= _LOOKED_UP_AT_MOST:
            raise
        context.looked_up += 1
        with suppress(InvalidTopic, MetadataError):
            await context.kafka.broker.known(name)
        topic = find_topic(context, name, topic_id)
    return await context.kafka.partitions.get(topic, index)


_LOOKED_UP_AT_MOST = 16
"""Names that metadata are asked for on behalf of one request: it may name a million."""
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


def refusal_of(name: str, index: int, error: Exception) -> ErrorCode:
    """Return the code of what kept a read from being answered; what the client can do nothing about is logged."""
    code = code_for(error)
    if code in _NOT_THE_CLIENTS:
        known = isinstance(error, REFUSALS)
        _lines.error(
            name, "%s-%d cannot be read, and clients are told so: %s%s", name, index,
            "" if known else f"{type(error).__name__}: ", error, exc_info=None if known else error,
        )  # fmt: skip
    return code


def may_read(context: RequestContext, access: Access, name: str, topic_id: bytes) -> bool:
    """Say whether the client may consume the topic that it names; one that cannot be is nobody's."""
    return Checks(access, context).reads(name, topic_id)


def check_epoch(current_leader_epoch: int, partition: Partition) -> ErrorCode:
    """Say whether the client's idea of who leads is older or newer than ours (KIP-320); -1 has none."""
    if current_leader_epoch < 0 or current_leader_epoch == partition.leader_epoch:
        return ErrorCode.NONE
    is_older = current_leader_epoch < partition.leader_epoch
    return ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH
