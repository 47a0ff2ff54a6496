"""Errors in Pulsar's numbers: what a client is told when storage, the core or a handler raises."""

from __future__ import annotations

from magnetar.auth.authentication import AuthenticationFailed
from magnetar.base.errors import (
    BrokerError,
    InvalidPartitions,
    InvalidTopic,
    NamespaceNotFound,
    TooManyTopics,
    TopicExists,
    TopicNotFound,
)
from magnetar.cluster.ownership import NotOwned
from magnetar.coordination.transactions import (
    CoordinatorNotFound,
    CoordinatorNotReady,
    InvalidTxnStatus,
    TooManyTransactions,
    TransactionNotFound,
)
from magnetar.ledger.errors import LedgerClosed, LedgerError, LedgerFenced, LedgerTerminated, StorageFull
from magnetar.metadata import MetadataError, MetadataFailed
from magnetar.records.errors import CorruptBatch, RecordsError
from magnetar.wire.pulsar.pulsar_pb2 import ServerError


class PulsarError(Exception):
    """What a handler refuses; ``code`` is Pulsar's number."""

    code: ServerError = ServerError.UnknownError

    def __init__(self, message: str, code: ServerError | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class ConsumerBusy(PulsarError):
    """Another consumer has the subscription, or it is of another type."""

    code = ServerError.ConsumerBusy


class ConsumerAssignError(PulsarError):
    """The hash ranges that a consumer asks for belong to another one, or make no sense."""

    code = ServerError.ConsumerAssignError


class ProducerBusy(PulsarError):
    """A producer of that name is connected, or one that has the topic to itself."""

    code = ServerError.ProducerBusy


class ProducerFenced(PulsarError):
    """Another producer has the topic to itself now; this one shall not come back."""

    code = ServerError.ProducerFenced


class SubscriptionNotFound(PulsarError):
    """No subscription of that name, and it may not be made."""

    code = ServerError.SubscriptionNotFound


class NotAllowed(PulsarError):
    """What was asked for cannot be done here."""

    code = ServerError.NotAllowedError


class TopicTerminated(PulsarError):
    """The topic takes no more messages."""

    code = ServerError.TopicTerminatedError


class NotAuthorized(PulsarError):
    """The client's role has no grant for this; ``what`` it is about is for the log, as in Pulsar."""

    code = ServerError.AuthorizationError

    def __init__(self, message: str, what: object = "") -> None:
        super().__init__(message)
        self.what = what

    @classmethod
    def client(cls, to: str, what: object) -> NotAuthorized:
        """Return it in the words of Pulsar's broker, which some of its clients' users know it by."""
        return cls(f"Client is not authorized to {to}", what)


class IncompatibleSchema(PulsarError):
    """The schema does not go with those that the topic has."""

    code = ServerError.IncompatibleSchema


class TransactionConflict(PulsarError):
    """Another transaction has acknowledged the message, or it is done with."""

    code = ServerError.TransactionConflict


class BadCommand(Exception):
    """A client broke the protocol's rules: its connection ends."""


_CODES: dict[type[BaseException], ServerError] = {
    NotOwned: ServerError.ServiceNotReady,
    InvalidTopic: ServerError.InvalidTopicName,
    TopicNotFound: ServerError.TopicNotFound,
    TopicExists: ServerError.TopicNotFound,
    NamespaceNotFound: ServerError.TopicNotFound,
    TooManyTopics: ServerError.NotAllowedError,
    InvalidPartitions: ServerError.NotAllowedError,  # a reserved name, which no second try makes free
    CoordinatorNotFound: ServerError.TransactionCoordinatorNotFound,
    CoordinatorNotReady: ServerError.TransactionCoordinatorNotFound,  # clients look again, and ask again
    TransactionNotFound: ServerError.TransactionNotFound,
    InvalidTxnStatus: ServerError.InvalidTxnStatus,
    TooManyTransactions: ServerError.NotAllowedError,
    AuthenticationFailed: ServerError.AuthenticationError,
    BrokerError: ServerError.MetadataError,
    MetadataFailed: ServerError.ServiceNotReady,  # clients try again
    MetadataError: ServerError.MetadataError,
    LedgerTerminated: ServerError.TopicTerminatedError,
    LedgerFenced: ServerError.ServiceNotReady,
    LedgerClosed: ServerError.ServiceNotReady,
    StorageFull: ServerError.PersistenceError,
    LedgerError: ServerError.PersistenceError,
    CorruptBatch: ServerError.ChecksumError,
    RecordsError: ServerError.UnknownError,
}


def code_for(error: BaseException) -> ServerError:
    """Return Pulsar's number for what was raised; a surprise stays UnknownError."""
    if isinstance(error, PulsarError):
        return error.code
    ancestors = type(error).__mro__
    return next((_CODES[each] for each in ancestors if each in _CODES), ServerError.UnknownError)
