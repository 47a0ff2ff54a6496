"""What whoever asked is told of an error: its HTTP status, and words."""

from __future__ import annotations

import logging

from magnetar.auth.authentication import AuthenticationFailed
from magnetar.base.errors import (
    BrokerError,
    InvalidConfig,
    InvalidPartitions,
    InvalidPolicy,
    InvalidTopic,
    NamespaceNotFound,
    TooManyTopics,
    TopicExists,
    TopicNotFound,
)
from magnetar.cluster.ownership import CannotSplit
from magnetar.coordination.transactions import (
    CoordinatorNotFound,
    CoordinatorNotReady,
    InvalidTxnStatus,
    TransactionNotFound,
)
from magnetar.ledger.errors import LedgerError, LedgerNotFound, OffsetOutOfRange, StorageFull
from magnetar.pulsar.errors import (
    ConsumerBusy,
    IncompatibleSchema,
    NotAllowed,
    NotAuthorized,
    ProducerBusy,
    PulsarError,
    SubscriptionNotFound,
)
from magnetar.pulsar.grown_topics import SubscriptionsMissing
from magnetar.pulsar.rest.request import RestError
from magnetar.records.errors import RecordsError
from magnetar.web.http import BodyTooLarge

_log = logging.getLogger("magnetar.pulsar.rest")

_STATUS: dict[type[BaseException], int] = {
    AuthenticationFailed: 401,
    BodyTooLarge: 413,
    NotAuthorized: 403,
    NamespaceNotFound: 404,
    SubscriptionsMissing: 503,
    TopicNotFound: 404,
    SubscriptionNotFound: 404,
    LedgerNotFound: 404,
    TopicExists: 409,
    TooManyTopics: 412,
    CannotSplit: 412,
    ConsumerBusy: 412,
    ProducerBusy: 412,
    NotAllowed: 412,
    IncompatibleSchema: 409,
    InvalidTopic: 412,
    InvalidPartitions: 412,
    InvalidConfig: 412,
    InvalidPolicy: 412,
    OffsetOutOfRange: 412,
    StorageFull: 507,
    PulsarError: 412,
    LedgerError: 500,
    RecordsError: 500,
    TransactionNotFound: 404,
    CoordinatorNotFound: 404,
    CoordinatorNotReady: 503,
    InvalidTxnStatus: 409,
    BrokerError: 412,
}


def refusal_of(error: BaseException, what: str) -> tuple[int, str]:
    """Return status and words. What nobody has foreseen is 500 and goes to the log, with ``what`` was asked."""
    if isinstance(error, RestError):
        return error.status, str(error)
    status = next((_STATUS[each] for each in type(error).__mro__ if each in _STATUS), 500)
    if status == 500:
        _log.error("%s failed", what, exc_info=error)
    # Pulsar's own words, by which tools know it; which namespace, the path says.
    return status, "Namespace does not exist" if isinstance(error, NamespaceNotFound) else str(error)
