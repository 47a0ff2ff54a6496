"""The ports between Pulsar transactions and the one transaction coordinator: all that the two handlers share.

The coordinator (`magnetar.kafka.transactions`) decides, and stores its decisions in ``__transaction_state``. Pulsar's
side sends it the requests of its clients, and ends in topics and subscriptions what the coordinator decided. Topics go
by their one name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from magnetar.base.errors import BrokerError
from magnetar.cluster.ownership import Owned
from magnetar.records.pulsar_transactions import TxnId

__all__ = [
    "UNFORESEEN_END",
    "Ack",
    "CoordinatorNotFound",
    "CoordinatorNotReady",
    "Coordinator",
    "InvalidTxnStatus",
    "Participants",
    "PulsarTransaction",
    "TooManyTransactions",
    "TransactionNotFound",
    "TxnId",
    "TxnPartition",
    "TxnStatus",
    "TxnSubscription",
]


UNFORESEEN_END = (
    "transaction %r is decided, and ending it%s failed for a reason that nobody foresaw. It is tried again; until it "
    "works its producer waits, and consumers get nothing committed behind it. If this line comes again, restart the "
    "broker (or unload the bundle of __transaction_state), and report what follows"
)
"""The log line; its arguments are the transaction's name and the place (`` in topic-partition``, or nothing)."""


class CoordinatorNotFound(BrokerError):
    """There is no coordinator of this number, or another broker owns it."""


class CoordinatorNotReady(BrokerError):
    """The coordinator is being loaded, or could not store what it decided: try again."""


class TransactionNotFound(BrokerError):
    """The coordinator knows no such transaction (any more)."""


class InvalidTxnStatus(BrokerError):
    """The state of the transaction does not allow this request."""


class TooManyTransactions(BrokerError):
    """The coordinator has as many transactions open as it may, or one has as much in it as it may."""


class TxnStatus(StrEnum):
    """Pulsar's states of a transaction."""

    OPEN = "OPEN"
    COMMITTING = "COMMITTING"
    COMMITTED = "COMMITTED"
    ABORTING = "ABORTING"
    ABORTED = "ABORTED"

    @property
    def commits(self) -> bool:
        """True if the decision is to commit."""
        return self in (TxnStatus.COMMITTING, TxnStatus.COMMITTED)

    @property
    def is_ending(self) -> bool:
        """True if it is decided, and has not ended everywhere."""
        return self in (TxnStatus.COMMITTING, TxnStatus.ABORTING)


class TxnPartition(NamedTuple):
    """A partition that a transaction writes to."""

    topic: str
    partition: int


class TxnSubscription(NamedTuple):
    """A subscription in which a transaction acknowledges."""

    topic: str
    partition: int
    subscription: str


class Ack(NamedTuple):
    """An acknowledged entry, or of a batch of ``messages`` all but ``remaining``; or all up to it if ``cumulative``."""

    ledger_id: int
    entry_id: int
    remaining: int | None = None
    messages: int = 0
    cumulative: bool = False


@dataclass(frozen=True, slots=True)
class PulsarTransaction:
    """A transaction as its coordinator knows it. Times in ms."""

    txn: TxnId
    status: TxnStatus
    timeout_ms: int
    start_ms: int
    owner: str = ""
    """The role of the client that began it."""
    partitions: frozenset[TxnPartition] = frozenset()
    subscriptions: frozenset[TxnSubscription] = frozenset()
    names: frozenset[tuple[TxnPartition, str]] = frozenset()
    """The client's names for the partitions, and for those of the subscriptions."""
    ended_ms: int = 0
    """When it had ended everywhere; 0 before."""

    @property
    def due_ms(self) -> int:
        """When it is aborted, unless it ends before."""
        return self.start_ms + self.timeout_ms


Acks = dict[TxnSubscription, tuple[Ack, ...]]
"""What a transaction acknowledged, by subscription, in the order of the requests."""


class Coordinator(Protocol):
    """The coordinator's port. Methods raise the errors of this module; changes are durable on return."""

    @property
    def coordinators(self) -> int:
        """The number of coordinators, each on one of the brokers."""
        ...

    def owner(self, coordinator: int) -> Owned | None:
        """Return the broker that owns a coordinator, None if no broker does now; raise `CoordinatorNotFound`."""
        ...

    def check(self, coordinator: int) -> None:
        """Raise unless this broker owns a coordinator, and has loaded it."""
        ...

    async def loaded(self) -> None:
        """Wait until all that this broker owns are loaded."""
        ...

    async def begin(self, coordinator: int, timeout_ms: int, owner: str, most_open: int) -> TxnId:
        """Begin a transaction; at most ``most_open`` may be open at a time, 0 for no bound."""
        ...

    async def add_partitions(self, txn: TxnId, partitions: Mapping[TxnPartition, str]) -> None:
        """Add partitions to an open transaction, each with the client's name for it."""
        ...

    async def add_subscriptions(self, txn: TxnId, subscriptions: Mapping[TxnSubscription, str]) -> None:
        """Add subscriptions to an open transaction, each with the client's name for its topic."""
        ...

    async def acknowledge(self, txn: TxnId, where: TxnSubscription, acks: Sequence[Ack]) -> None:
        """Store what an open transaction acknowledges in one of its subscriptions."""
        ...

    async def end(self, txn: TxnId, *, committed: bool) -> None:
        """Commit or abort; on return the decision counts in all topics and subscriptions.

        Once the client has that answer, a repeated request raises `TransactionNotFound`.
        """
        ...

    def is_open(self, txn: TxnId, partition: TxnPartition) -> bool:
        """True if a transaction is open and may write to a partition now."""
        ...

    def find(self, txn: TxnId) -> PulsarTransaction:
        """Return a transaction."""
        ...

    def acks_of(self, txn: TxnId) -> Acks:
        """Return what a transaction acknowledged."""
        ...

    def all(self, coordinator: int) -> Sequence[PulsarTransaction]:
        """Return a coordinator's transactions, with those that ended recently."""
        ...

    def acks_on(self, topic: str, partition: int) -> Sequence[tuple[TxnId, TxnSubscription, Sequence[Ack]]]:
        """Return what transactions that have not ended acknowledged in one topic's subscriptions."""
        ...


class Participants(Protocol):
    """Topics and subscriptions, where transactions are ended."""

    async def end(
        self, txn: TxnId, *, committed: bool, partitions: Collection[TxnPartition], acks: Acks
    ) -> asyncio.Future[None]:
        """Return when a decision counts everywhere, markers durable; try for as long as it takes.

        The future is done when also the acknowledgements are durable where they belong.
        """
        ...
