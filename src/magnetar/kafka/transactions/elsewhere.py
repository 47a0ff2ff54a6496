"""Transactions whose coordinator is one worker, and whose partitions are others': what workers ask each other.

The leader of a partition asks the coordinator whether a batch is of a transaction under way. Meanwhile the coordinator
may end it, and its marker come to the partition first: the batch would open a transaction that nobody ends. So the
leader counts the markers that it writes, and asks again if one came while it waited (Kafka's verification guard).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Final

from magnetar.broker.errors import TopicNotFound
from magnetar.broker.peers import PeerFailed, Peers
from magnetar.broker.producers import EndTransactionMarker, ProducerRefused
from magnetar.kafka.coordinators.refused import CoordinatorRefused
from magnetar.kafka.transactions.coordinator import TransactionCoordinator
from magnetar.kafka.transactions.decider import ProducerIdAndEpoch
from magnetar.kafka.transactions.markers import WRITE, Markers
from magnetar.kafka.transactions.metadata import TransactionPartition
from magnetar.ledger.errors import LedgerError, LedgerTerminated
from magnetar.metadata import MetadataError
from magnetar.wire.kafka.errors import ErrorCode

ADMIT: Final = "admit-to-transaction"


async def admitted(
    transactions: TransactionCoordinator,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    where: TransactionPartition,
    adds_as: int | None,
) -> ErrorCode:
    """Return whether what comes to a partition is of a transaction under way.

    It is made so first by clients that add partitions this way, of the ``transaction.version`` ``adds_as``. Nothing is
    awaited between the last look and the return. Raises `CoordinatorRefused`.
    """
    markers = transactions.markers
    owner, peers = transactions.owner_of(transactional_id), markers.peers
    if peers is None or owner is None or owner.node_id == peers.node_id:
        return await _decided(transactions, transactional_id, producer, where, adds_as)
    while True:
        before = markers.written[where]
        asked = pickle.dumps((transactions.topic, transactional_id, producer, where, adds_as))
        try:
            refused, code = pickle.loads(await peers.ask(owner.node_id, ADMIT, asked))
        except PeerFailed:
            raise CoordinatorRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
        if refused:
            raise CoordinatorRefused(code)
        if code is not ErrorCode.NONE or markers.written[where] == before:
            return ErrorCode(code)
        adds_as = None


async def _decided(
    transactions: TransactionCoordinator,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    where: TransactionPartition,
    adds_as: int | None,
) -> ErrorCode:
    if adds_as is not None:
        await transactions.add_partitions(transactional_id, producer, frozenset({where}), adds_as)
    return transactions.verify(transactional_id, producer, (where,))[where]


def answer_others(
    peers: Peers, markers: Markers, room: Callable[[str], TransactionCoordinator | None]
) -> None:
    """Have other workers answered; ``room`` returns the coordinator whose facts lie in a topic."""

    async def admit(asked: bytes) -> bytes:
        topic, transactional_id, producer, where, adds_as = pickle.loads(asked)
        transactions = room(topic)
        try:
            if transactions is None:
                raise CoordinatorRefused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            code = await _decided(transactions, transactional_id, producer, where, adds_as)
        except CoordinatorRefused as refused:
            return pickle.dumps((True, refused.code))
        return pickle.dumps((False, code))

    async def write_marker(asked: bytes) -> bytes:
        told, where = pickle.loads(asked)
        try:
            await markers.write(EndTransactionMarker(*told), where)
        except (TopicNotFound, LedgerTerminated, ProducerRefused):
            pass  # there is nothing to end, and will not be
        except (CoordinatorRefused, LedgerError, MetadataError) as error:
            raise PeerFailed(f"no marker in {where.topic}-{where.partition}: {error}") from error
        return b""

    markers.peers = peers
    peers.answers[ADMIT] = admit
    peers.answers[WRITE] = write_marker
