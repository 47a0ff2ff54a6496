"""The topic that a request means, by name in any form or by id."""

from __future__ import annotations

from magnetar.broker.core import Broker
from magnetar.broker.topic import Topic
from magnetar.kafka.errors import REFUSALS
from magnetar.wire.kafka.errors import ErrorCode


def named_topic(broker: Broker, name: str, topic_id: bytes = b"") -> Topic | None:
    """Return the topic, or None if there is none or the client may not see it; the id counts where there is no name."""
    try:
        topic = broker.get(name) if name else broker.get_by_id(topic_id)
    except REFUSALS:
        return None
    return topic if topic is not None and broker.visible(topic) else None


async def known_topic(broker: Broker, name: str, topic_id: bytes = b"") -> Topic | None:
    """Return a topic as `named_topic` does; one of several brokers looks at metadata before it says that there is none.

    Clients make a topic through one broker, and a moment later commit offsets to a coordinator on another.
    """
    topic = named_topic(broker, name, topic_id)
    if topic is not None or not name or len(broker.ownership.brokers()) < 2:
        return topic
    try:
        parsed = broker.naming.parse(name)
        await broker.learn(parsed.namespace_name, parsed)
    except REFUSALS:
        return None
    return named_topic(broker, name)


def not_found(name: str) -> ErrorCode:
    """Return the code for a topic that was asked for by this name, or by id if it is empty."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name else ErrorCode.UNKNOWN_TOPIC_ID
