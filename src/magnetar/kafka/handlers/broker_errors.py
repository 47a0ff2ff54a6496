"""What the broker core and its metadata store refuse, in Kafka's codes."""

from __future__ import annotations

from magnetar.broker.errors import (
    BrokerError,
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    NamespaceNotFound,
    NotDynamic,
    TooManyTopics,
    TopicExists,
    TopicNotFound,
)
from magnetar.kafka.configs.changes import InvalidChange
from magnetar.ledger.errors import LedgerError
from magnetar.metadata import MetadataError
from magnetar.wire.kafka.errors import ErrorCode

REFUSALS = (BrokerError, MetadataError, LedgerError)
"""What a handler turns into an error of the one topic or resource that it concerns."""

BROKER_CODES: dict[type[BaseException], ErrorCode] = {
    InvalidTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    TopicNotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    TooManyTopics: ErrorCode.POLICY_VIOLATION,
    NamespaceNotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    InvalidConfig: ErrorCode.INVALID_CONFIG,
    NotDynamic: ErrorCode.INVALID_REQUEST,
    InvalidChange: ErrorCode.INVALID_REQUEST,
    MetadataError: ErrorCode.KAFKA_STORAGE_ERROR,
    LedgerError: ErrorCode.KAFKA_STORAGE_ERROR,
}


def broker_code(error: BaseException) -> ErrorCode:
    """Give the code of the nearest listed ancestor."""
    ancestors = type(error).__mro__
    return next((BROKER_CODES[a] for a in ancestors if a in BROKER_CODES), ErrorCode.UNKNOWN_SERVER_ERROR)
