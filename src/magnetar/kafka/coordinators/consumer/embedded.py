"""The messages of consumers of classic groups inside JoinGroup and SyncGroup: subscriptions and assignments.

    int16 version, then the message; an unknown version is read as the newest known one

The coordinator looks into them where members of both protocols are in one group.
"""

from __future__ import annotations

from typing import TypeVar

from magnetar.kafka.coordinators.consumer.group import Assignment
from magnetar.kafka.coordinators.topics import Topics
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from magnetar.wire.kafka.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

Embedded = TypeVar("Embedded", bound=Message)


def version_of(data: bytes) -> int:
    """Return the version of an embedded message; raise ``WireError`` if there is none."""
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise WireError("no version of the consumers' protocol")
    return version


def _read(message: type[Embedded], data: bytes) -> Embedded:
    return message.decode(data[2:], min(version_of(data), message.MAX_VERSION))


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Return a member's subscription; raise ``WireError`` if it is malformed."""
    return _read(ConsumerProtocolSubscription, metadata)


def subscription_of(topics: list[str]) -> bytes:
    """Return the subscription of a member that reads these topics, in the oldest version."""
    return bytes(2) + ConsumerProtocolSubscription(topics=topics).encode(0)


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Return a member's assignment; raise ``WireError`` if it is malformed."""
    return _read(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment()


def assignment_of(assigned: Assignment, topics: Topics, version: int) -> bytes:
    """Return an assignment as clients of a version read it, without topics that are gone."""
    version = min(version, ConsumerProtocolAssignment.MAX_VERSION)
    named = ((topics.name_of(topic_id), partitions) for topic_id, partitions in sorted(assigned.items()))
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=topics.written(name), partitions=sorted(partitions))
            for name, partitions in named
            if name is not None
        ]
    )
    return version.to_bytes(2, "big") + message.encode(version)


def by_id(named: list[tuple[str, list[int]]], topics: Topics) -> Assignment:
    """Return partitions of topics as clients write them, by the topics' ids, without topics that are gone."""
    found: dict[bytes, frozenset[int]] = {}
    for written, partitions in named:
        topic = topics.find(topics.meant(written))
        if topic is not None and partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(partitions)
    return found
