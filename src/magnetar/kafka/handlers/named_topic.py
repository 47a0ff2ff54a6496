"""The topic that a request means, by name in any form or by id."""

from __future__ import annotations

from contextlib import suppress

from magnetar.kafka.errors import REFUSALS
from magnetar.node.broker import Broker
from magnetar.topics.topic import Topic
from magnetar.wire.kafka.errors import ErrorCode


def named_topic(broker: Broker, name: str, topic_id: bytes = b"") -> Topic | None:
    """Return the topic, or None if there is none or the client may not see it; the id counts where there is no name."""
    try:
        topic = broker.get(name) if name else broker.get_by_id(topic_id)
    except REFUSALS:
        return None
    return topic if topic is not None and broker.visible(topic) else None


async def known_topic(broker: Broker, name: str, topic_id: bytes = b"") -> Topic | None:
    """Return a topic as `named_topic` does, one that another broker has just made as well."""
    with suppress(*REFUSALS):
        if name:
            await broker.known(name)
    return named_topic(broker, name, topic_id)


def not_found(name: str) -> ErrorCode:
    """Return the code for a topic that was asked for by this name, or by id if it is empty."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name else ErrorCode.UNKNOWN_TOPIC_ID
