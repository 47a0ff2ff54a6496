"""Where Pulsar's transactions and the one transaction coordinator meet: all that the two handlers know of each other.

The coordinator (`magnetar.kafka.transactions`) decides, and keeps what it decided in ``__transaction_state``. Pulsar's
side asks it for its clients, and is asked to end what was decided in topics and subscriptions. Topics go by their one
name.
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
"""What the log says of it: what it is called, and where (`` in topic-partition``, or nothing)."""


class CoordinatorNotFound(BrokerError):
    """There is no coordinator of this number, or another broker has it."""


class CoordinatorNotReady(BrokerError):
    """The coordinator is being loaded, or could not keep what it decided: ask again."""


class TransactionNotFound(BrokerError):
    """The coordinator knows no such transaction (any more)."""


class InvalidTxnStatus(BrokerError):
    """The transaction is not in a state in which this can be asked of it."""


class TooManyTransactions(BrokerError):
    """The coordinator has as many open as it may, or one has as much in it as it may."""


class TxnStatus(StrEnum):
    """Pulsar's states of a transaction."""

    OPEN = "OPEN"
    COMMITTING = "COMMITTING"
    COMMITTED = "COMMITTED"
    ABORTING = "ABORTING"
    ABORTED = "ABORTED"

    @property
    def commits(self) -> bool:
        """Whether it was decided to be committed."""
        return self in (TxnStatus.COMMITTING, TxnStatus.COMMITTED)

    @property
    def is_ending(self) -> bool:
        """Whether it is decided, and not ended everywhere."""
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
    """An entry a transaction is done with, or of a batch of ``messages`` all but ``remaining``, or all up to it."""

    ledger_id: int
    entry_id: int
    remaining: int | None = None
    messages: int = 0
    cumulative: bool = False


@dataclass(frozen=True, slots=True)
class PulsarTransaction:
    """What is known of one. Times in ms."""

    txn: TxnId
    status: TxnStatus
    timeout_ms: int
    start_ms: int
    owner: str = ""
    """The role of the client that began it."""
    partitions: frozenset[TxnPartition] = frozenset()
    subscriptions: frozenset[TxnSubscription] = frozenset()
    names: frozenset[tuple[TxnPartition, str]] = frozenset()
    """What the client calls the partitions, and those of the subscriptions."""
    ended_ms: int = 0
    """When it was over everywhere; 0 before."""

    @property
    def due_ms(self) -> int:
        """When it is aborted, unless it ends before."""
        return self.start_ms + self.timeout_ms


Acks = dict[TxnSubscription, tuple[Ack, ...]]
"""What a transaction acknowledged, by subscription, in its order."""


class Coordinator(Protocol):
    """What decides. Methods raise the errors of this module; what changes anything is durable on return."""

    @property
    def coordinators(self) -> int:
        """How many there are, each on one of the brokers."""
        ...

    def owner(self, coordinator: int) -> Owned | None:
        """Return the broker that has a coordinator, None for nobody now; raise `CoordinatorNotFound`."""
        ...

    def check(self, coordinator: int) -> None:
        """Raise unless this broker has a coordinator, and has loaded it."""
        ...

    async def loaded(self) -> None:
        """Wait until all that this broker has are loaded."""
        ...

    async def begin(self, coordinator: int, timeout_ms: int, owner: str, most_open: int) -> TxnId:
        """Begin a transaction; ``most_open`` may be open at a time, 0 for no bound."""
        ...

    async def add_partitions(self, txn: TxnId, partitions: Mapping[TxnPartition, str]) -> None:
        """Have partitions be of an open transaction; with what the client calls each."""
        ...

    async def add_subscriptions(self, txn: TxnId, subscriptions: Mapping[TxnSubscription, str]) -> None:
        """Have subscriptions be of an open transaction; with what the client calls the topic of each."""
        ...

    async def acknowledge(self, txn: TxnId, where: TxnSubscription, acks: Sequence[Ack]) -> None:
        """Keep what an open transaction acknowledges in a subscription of its own."""
        ...

    async def end(self, txn: TxnId, *, committed: bool) -> None:
        """Commit or abort; on return that counts in all topics and subscriptions.

        Whoever was told so is told `TransactionNotFound` from then on.
        """
        ...

    def is_open(self, txn: TxnId, partition: TxnPartition) -> bool:
        """Whether a transaction is open and may write to a partition, as of this moment."""
        ...

    def find(self, txn: TxnId) -> PulsarTransaction:
        """Return a transaction."""
        ...

    def acks_of(self, txn: TxnId) -> Acks:
        """Return what a transaction acknowledged."""
        ...

    def all(self, coordinator: int) -> Sequence[PulsarTransaction]:
        """Return a coordinator's transactions, those that ended lately as well."""
        ...

    def acks_on(self, topic: str, partition: int) -> Sequence[tuple[TxnId, TxnSubscription, Sequence[Ack]]]:
        """Return what transactions that are not over have acknowledged in one topic's subscriptions."""
        ...


class Participants(Protocol):
    """Topics and subscriptions, where transactions are ended."""

    async def end(
        self, txn: TxnId, *, committed: bool, partitions: Collection[TxnPartition], acks: Acks
    ) -> asyncio.Future[None]:
        """Return when a decision counts everywhere, markers durable; tried for as long as it takes.

        What is given back tells when also what was acknowledged is durable where it belongs.
        """
        ...
