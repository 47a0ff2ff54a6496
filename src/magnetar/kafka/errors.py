"""The one table from what happened, in storage's and the broker's words, to Kafka's error codes."""

from __future__ import annotations

from magnetar.kafka.handlers.asked import TopicDenied, UnknownTopicId
from magnetar.kafka.handlers.broker_errors import BROKER_CODES
from magnetar.kafka.partitions.partition import BatchTooLarge, InvalidTimestamp
from magnetar.kafka.partitions.producers import OutOfOrderSequence, ProducerFenced
from magnetar.ledger import errors as ledger
from magnetar.records import errors as records
from magnetar.wire.kafka.errors import ErrorCode

CODES: dict[type[BaseException], ErrorCode] = BROKER_CODES | {
    records.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    records.InvalidRecord: ErrorCode.INVALID_RECORD,
    records.UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    records.EntryCorrupt: ErrorCode.KAFKA_STORAGE_ERROR,
    UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    TopicDenied: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
    ledger.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    ledger.LedgerTerminated: ErrorCode.POLICY_VIOLATION,
    ledger.LedgerFenced: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ledger.LedgerClosed: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ledger.LedgerError: ErrorCode.KAFKA_STORAGE_ERROR,
}


def code_for(error: BaseException) -> ErrorCode:
    """Give the code of the nearest listed ancestor; a surprise stays a surprise (-1)."""
    return next(
        (CODES[kind] for kind in type(error).__mro__ if kind in CODES), ErrorCode.UNKNOWN_SERVER_ERROR
    )
