"""What the handlers about transactions share: who asks, and how Kafka puts refusals in older versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from magnetar.kafka.handlers.named_topic import named_topic
from magnetar.node.broker import Broker
from magnetar.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from magnetar.kafka.transactions.metadata import TransactionPartition

EPOCH_BUMPED, EACH_DECLARED = 2, 0
"""``transaction.version``: with 2 each transaction has an epoch, and batches declare their partitions; before, not."""

OF_BATCHES: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""What the sender of a batch is told where its transaction cannot be looked up, as from Kafka: to try again."""
OF_OFFSETS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""The same for offsets: it is not the group's coordinator that has to be looked for anew."""


def fenced_as(code: ErrorCode, version: int, since: int = 2) -> ErrorCode:
    """Return a code as clients of a version know it: PRODUCER_FENCED came with version ``since``."""
    if code is ErrorCode.PRODUCER_FENCED and version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def partition_of(
    broker: Broker, name: str, index: int, *, internal: bool = False
) -> TransactionPartition | ErrorCode:
    """Return a partition that a transaction may have, by its topic's one name, or why there is none.

    Of ``internal`` topics other brokers may tell: what is written there are a group's offsets.
    """
    from magnetar.kafka.transactions.metadata import TransactionPartition  # Produce needs the rest of this

    topic = named_topic(broker, name)
    if topic is None or not 0 <= index < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic.internal and not internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return TransactionPartition(topic.kafka_name, index)
