"""How a transaction is ended in the partitions that it touched: a marker in each, and in what groups committed.

Partitions of other brokers get theirs by WriteTxnMarkers, in which all goes that is to go to a broker by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager

from magnetar.broker.core import Broker
from magnetar.broker.errors import BrokerError, TopicNotFound
from magnetar.broker.ownership import NotOwned
from magnetar.broker.producers import EndTransactionMarker, MarkerFenced, ProducerRefused
from magnetar.broker.retries import Retries
from magnetar.broker.transactions import UNFORESEEN_END
from magnetar.kafka.coordinators.refused import CoordinatorRefused
from magnetar.kafka.other_brokers import OtherBrokers
from magnetar.kafka.partitions.registry import Partitions
from magnetar.kafka.transactions.markers_of_others import MarkersOfOthers
from magnetar.kafka.transactions.metadata import TransactionPartition
from magnetar.ledger.errors import LedgerError, LedgerTerminated
from magnetar.metadata import MetadataError

_log = logging.getLogger(__name__)


class MarkerWatch:
    """Whether a transaction has been ended in a partition since somebody began to watch."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended = False


class Markers:
    """Writes markers. ``end_offsets`` ends a transaction in a partition of a group coordinator's, if it is one's."""

    def __init__(
        self,
        broker: Broker,
        partitions: Partitions,
        end_offsets: Callable[[str, int, EndTransactionMarker], Awaitable[None] | None],
        others: OtherBrokers,
    ) -> None:
        self._broker = broker
        self._partitions = partitions
        self._end_offsets = end_offsets
        self._of_others = MarkersOfOthers(others, broker.background)
        self._watched: dict[tuple[int, TransactionPartition], list[MarkerWatch]] = {}

    async def write_all(
        self,
        marker: EndTransactionMarker,
        partitions: Iterable[TransactionPartition],
        transactional_id: str = "",
    ) -> None:
        """Return when the marker is durable in each partition that there is; tried again for as long as it takes.

        The log tells of ``transactional_id`` what goes wrong.
        """
        await asyncio.gather(*(self._write_surely(marker, each, transactional_id) for each in partitions))

    async def _write_surely(
        self, marker: EndTransactionMarker, where: TransactionPartition, transactional_id: str
    ) -> None:
        retries = Retries(_log)
        while True:
            try:
                owner = self._broker.ownership.owner(self._broker.topic(where.topic).name, where.partition)
                if owner is None or owner.node_id == self._broker.ownership.node_id:
                    await self.write(marker, where)
                else:
                    await self._of_others.write(owner.node_id, marker, where)
                return
            except TopicNotFound:
                return  # it went with its transaction
            except LedgerTerminated:
                _log.warning(
                    "%s-%d was terminated with a transaction of producer %d open", *where, marker.producer_id
                )
                return
            except (MarkerFenced, BrokerError, LedgerError, MetadataError, CoordinatorRefused) as error:
                # Who is fenced has lost the transaction to another coordinator, and stops as soon as it hears of that.
                # If it took its marker for written, and got the transaction back, nobody would ever write one.
                await retries.after(error, "a marker cannot be written to %s-%d", *where)
            except ProducerRefused as refused:
                # A newer epoch has written here: what was of this one's transaction has been ended by that.
                _log.warning("no marker in %s-%d: %s", *where, refused)
                return
            except Exception as error:
                await retries.after_unforeseen(
                    error, UNFORESEEN_END, transactional_id, f" in {where[0]}-{where[1]}"
                )

    async def write(self, marker: EndTransactionMarker, where: TransactionPartition) -> None:
        """Write one marker, durable on return.

        Raises ``TopicNotFound``, `NotOwned`, ``ProducerRefused``, ``LedgerError``.
        """
        topic = self._broker.topic(where.topic)
        if topic.internal:
            if not self._broker.ownership.is_mine(topic.name, where.partition):
                raise NotOwned(f"{where.topic}-{where.partition}", None)
            self._ends(marker, where)
            ended = self._end_offsets(topic.kafka_name, where.partition, marker)
            if ended is not None:
                await ended
            return
        partition = await self._partitions.get(topic, where.partition)
        await partition.may_end_transactions()
        self._ends(marker, where)
        done = partition.end_transaction(marker)
        if done is not None:
            await done

    @contextmanager
    def watch(self, producer_id: int, where: TransactionPartition) -> Iterator[MarkerWatch]:
        """Tell whether a transaction of the producer is ended in a partition while another broker is asked."""
        watch = MarkerWatch()
        watched = self._watched.setdefault((producer_id, where), [])
        watched.append(watch)
        try:
            yield watch
        finally:
            watched.remove(watch)
            if not watched:
                self._watched.pop((producer_id, where), None)

    def _ends(self, marker: EndTransactionMarker, where: TransactionPartition) -> None:
        for watch in self._watched.get((marker.producer_id, where), ()):
            watch.ended = True
