"""What is known of one transactional id, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from magnetar.coordination.transactions import PulsarTransaction, TxnStatus

NO_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
MAX_EPOCH: Final = (1 << 15) - 1
"""Never told to a client, so that whoever has the one before can still be fenced."""


class State(IntEnum):
    """Kafka's states of a transaction, by the numbers that they are stored as."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """Kafka's name of it, as tools show it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""Decided, and being written to the partitions."""
IDLE: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""No transaction is under way."""


class TransactionPartition(NamedTuple):
    """A partition by its topic's one name."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """One transactional id. Times in ms."""

    transactional_id: str
    producer_id: int
    epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: State = State.EMPTY
    partitions: frozenset[TransactionPartition] = frozenset()
    start_ms: int = NO_TIME
    update_ms: int = NO_TIME
    version: int = 0
    """Kafka's ``transaction.version`` that the client speaks."""
    last_epoch: int = NO_EPOCH
    """That before, if its producer went on with a new one by itself; not stored."""
    previous_producer_id: int = NO_ID
    """That before the last change."""
    next_producer_id: int = NO_ID
    """That after the transaction under way, if this one has no epochs left."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left that a client may be told."""
        return self.epoch >= MAX_EPOCH - 1

    @property
    def due_ms(self) -> int:
        """When the transaction under way is aborted."""
        return self.start_ms + self.timeout_ms


_OF_PULSAR: Final = {
    TxnStatus.OPEN: State.ONGOING,
    TxnStatus.COMMITTING: State.PREPARE_COMMIT,
    TxnStatus.COMMITTED: State.COMPLETE_COMMIT,
    TxnStatus.ABORTING: State.PREPARE_ABORT,
    TxnStatus.ABORTED: State.COMPLETE_ABORT,
}


def shown(each: PulsarTransaction) -> TransactionMetadata:
    """Return a transaction of Pulsar's as Kafka's tools see one."""
    return TransactionMetadata(
        str(each.txn),
        each.txn.producer_id,
        0,
        each.timeout_ms,
        _OF_PULSAR[each.status],
        frozenset(TransactionPartition(*where) for where in each.partitions),
        each.start_ms,
        each.ended_ms or each.start_ms,
    )
