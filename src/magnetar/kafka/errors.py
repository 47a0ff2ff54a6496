"""The one table from what happened, in storage's and the broker's words, to Kafka's error codes."""

from __future__ import annotations

from magnetar.auth import errors as auth
from magnetar.base import errors as broker
from magnetar.cluster.ownership import NotOwned
from magnetar.kafka.configs.changes import InvalidChange
from magnetar.kafka.partitions.partition import BatchTooLarge, InvalidTimestamp, NotInPlace, TopicMigrating
from magnetar.ledger import errors as ledger
from magnetar.logs.producers import (
    BatchTooEarly,
    InvalidProducerEpoch,
    MarkerFenced,
    NotInTransaction,
    OutOfOrderSequence,
)
from magnetar.metadata import MetadataError
from magnetar.records import errors as records
from magnetar.wire.kafka.errors import ErrorCode

REFUSALS = (broker.BrokerError, MetadataError, ledger.LedgerError)
"""What a handler turns into an error of the one topic or resource that it concerns."""


class TopicDenied(broker.BrokerError):
    """The client was not granted what it wants of a topic."""


class UnknownTopicId(broker.TopicNotFound):
    """No topic has this id (any more)."""


class UnknownMechanism(broker.BrokerError):
    """A request names a mechanism of SCRAM that there is not."""


class TokenRequestNotAllowed(broker.BrokerError):
    """Who is not known, or by a delegation token alone, makes and sees no delegation tokens."""


class TokenAuthorizationFailed(broker.BrokerError):
    """Somebody wants a delegation token in another's name."""


class InvalidPrincipalType(broker.BrokerError):
    """A principal is none of a user."""


class InvalidRequest(broker.BrokerError):
    """What a request asks for cannot be."""


class SecurityDisabled(broker.BrokerError):
    """What a request asks for is kept by an authorizer, and there is none."""


class ThrottlingQuotaExceeded(broker.BrokerError):
    """A client has made and deleted as many topics and partitions as it may for now (KIP-599)."""


class AlteredTwice(broker.BrokerError):
    """A request changes the same thing twice."""


CODES: dict[type[BaseException], ErrorCode] = {
    TopicDenied: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    NotOwned: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    broker.InvalidTopic: ErrorCode.INVALID_TOPIC_EXCEPTION,
    broker.TopicNotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    broker.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    broker.TooManyTopics: ErrorCode.POLICY_VIOLATION,
    broker.NamespaceNotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    broker.TooManyPartitions: ErrorCode.POLICY_VIOLATION,
    broker.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    broker.InvalidConfig: ErrorCode.INVALID_CONFIG,
    broker.NotDynamic: ErrorCode.INVALID_REQUEST,
    InvalidChange: ErrorCode.INVALID_REQUEST,
    UnknownMechanism: ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    TokenRequestNotAllowed: ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    TokenAuthorizationFailed: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    InvalidPrincipalType: ErrorCode.INVALID_PRINCIPAL_TYPE,
    auth.TokensDisabled: ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    auth.TokenNotFound: ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    auth.TokenNotYours: ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
    auth.TokenExpired: ErrorCode.DELEGATION_TOKEN_EXPIRED,
    auth.TooManyRenewers: ErrorCode.INVALID_REQUEST,
    InvalidRequest: ErrorCode.INVALID_REQUEST,
    SecurityDisabled: ErrorCode.SECURITY_DISABLED,
    ThrottlingQuotaExceeded: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    broker.InvalidQuota: ErrorCode.INVALID_REQUEST,
    AlteredTwice: ErrorCode.DUPLICATE_RESOURCE,
    auth.UserNotFound: ErrorCode.RESOURCE_NOT_FOUND,
    auth.UnacceptableCredential: ErrorCode.UNACCEPTABLE_CREDENTIAL,
    MetadataError: ErrorCode.KAFKA_STORAGE_ERROR,
    records.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    records.InvalidRecord: ErrorCode.INVALID_RECORD,
    records.UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    records.EntryCorrupt: ErrorCode.KAFKA_STORAGE_ERROR,
    BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    TopicMigrating: ErrorCode.NOT_ENOUGH_REPLICAS,
    NotInPlace: ErrorCode.OFFSET_OUT_OF_RANGE,
    BatchTooEarly: ErrorCode.NOT_LEADER_OR_FOLLOWER,  # what the one before it got: both are sent again, in order
    OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    InvalidProducerEpoch: ErrorCode.INVALID_PRODUCER_EPOCH,
    NotInTransaction: ErrorCode.INVALID_TXN_STATE,
    MarkerFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ledger.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    ledger.LedgerTerminated: ErrorCode.POLICY_VIOLATION,
    ledger.LedgerFenced: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ledger.LedgerClosed: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    # As Kafka answers where its remote storage fails: clients say so (KAFKA_STORAGE_ERROR is tried again in silence).
    ledger.TierFailed: ErrorCode.UNKNOWN_SERVER_ERROR,
    ledger.TierObjectMissing: ErrorCode.UNKNOWN_SERVER_ERROR,
    ledger.LedgerError: ErrorCode.KAFKA_STORAGE_ERROR,
}


def code_for(error: BaseException) -> ErrorCode:
    """Return the code of the nearest listed ancestor; a surprise stays a surprise (-1)."""
    return next(
        (CODES[kind] for kind in type(error).__mro__ if kind in CODES), ErrorCode.UNKNOWN_SERVER_ERROR
    )
