"""How a transaction is ended in the partitions that it touched: a marker in each, and in what groups committed.

Partitions of other brokers get theirs by WriteTxnMarkers, in which all goes that is to go to a broker by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from magnetar.base.collector import fleeting
from magnetar.base.errors import BrokerError, TopicNotFound
from magnetar.base.retries import Retries
from magnetar.base.slices import sliced
from magnetar.cluster.ownership import NotOwned
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.transactions import UNFORESEEN_END
from magnetar.kafka.other_brokers import OtherBrokers
from magnetar.kafka.partitions.registry import Partitions
from magnetar.kafka.transactions.markers_of_others import MOST_FOR_ANOTHER, MarkersOfOthers
from magnetar.kafka.transactions.metadata import TransactionPartition
from magnetar.ledger.errors import LedgerError, LedgerTerminated
from magnetar.logs.producers import EndTransactionMarker, MarkerFenced, ProducerRefused
from magnetar.metadata import MetadataError
from magnetar.node.broker import Broker

_HERE_AT_ONCE = 32
"""Partitions of this broker in which a transaction is ended at once; one that was not open costs 15 kB."""
_PATIENT_AT_ONCE = 1_000
"""Of one owner's that are tried again and again, while others have their turns."""
_PASSING = (MarkerFenced, BrokerError, LedgerError, MetadataError, CoordinatorRefused)
"""What comes and goes."""
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
        by_owner: dict[int | None, list[TransactionPartition]] = {}
        async for where in sliced(iter(partitions)):
            by_owner.setdefault(self._owner(where), []).append(where)
        with fleeting():
            async with asyncio.TaskGroup() as group:
                self._write_owners(marker, by_owner, transactional_id, group)

    def _write_owners(
        self,
        marker: EndTransactionMarker,
        by_owner: Mapping[int | None, list[TransactionPartition]],
        transactional_id: str,
        group: asyncio.TaskGroup,
    ) -> None:
        """Begin to write all owners' markers."""
        for owner, theirs in by_owner.items():
            # One request to another broker takes many; here each may have to be opened.
            at_once = _HERE_AT_ONCE if owner is None else MOST_FOR_ANOTHER
            left, patient = iter(theirs), asyncio.Semaphore(_PATIENT_AT_ONCE)
            for _ in range(min(at_once, len(theirs))):
                group.create_task(self._write_some(marker, left, transactional_id, group, patient))

    def _owner(self, where: TransactionPartition) -> int | None:
        """Return which other broker has a partition; None if this one has, or nobody, or there is no such partition."""
        try:
            owner = self._broker.cluster.ownership.owner(
                self._broker.topic(where.topic).name, where.partition
            )
        except TopicNotFound:
            return None
        return (
            None
            if owner is None or owner.node_id == self._broker.cluster.ownership.node_id
            else owner.node_id
        )

    async def _write_some(
        self,
        marker: EndTransactionMarker,
        left: Iterator[TransactionPartition],
        transactional_id: str,
        group: asyncio.TaskGroup,
        patient: asyncio.Semaphore,
    ) -> None:
        """Write what is left of one owner's, beside others that do. What fails is tried again beside them."""
        for where in left:
            error = await self._tried(marker, where, transactional_id)
            if error is None:
                continue
            await patient.acquire()
            trying = group.create_task(self._write_surely(marker, where, transactional_id, error))
            trying.add_done_callback(lambda _: patient.release())

    async def _write_surely(
        self,
        marker: EndTransactionMarker,
        where: TransactionPartition,
        transactional_id: str,
        error: Exception,
    ) -> None:
        """Go on after the first try failed with ``error``."""
        retries = Retries(_log)
        again: Exception | None = error
        while again is not None:
            if isinstance(again, _PASSING):
                # Who is fenced has lost the transaction to another coordinator, and stops as soon as it hears of that.
                # If it took its marker for written, and got the transaction back, nobody would ever write one.
                await retries.after(again, "a marker cannot be written to %s-%d", *where)
            else:
                about = f" in {where[0]}-{where[1]}"
                await retries.after_unforeseen(again, UNFORESEEN_END, transactional_id, about)
            again = await self._tried(marker, where, transactional_id)

    async def _tried(
        self, marker: EndTransactionMarker, where: TransactionPartition, transactional_id: str
    ) -> Exception | None:
        """Write one marker, durable on return; return why it is to be tried again, None where there is no need to."""
        try:
            other = self._owner(where)
            if other is None:
                await self.write(marker, where)
            else:
                await self._of_others.write(other, marker, where)
        except TopicNotFound:
            pass  # it went with its transaction
        except LedgerTerminated:
            _log.warning(
                "%s-%d was terminated with a transaction of producer %d open", *where, marker.producer_id
            )
        except ProducerRefused as refused:
            if isinstance(refused, MarkerFenced):
                return refused
            # A newer epoch has written here: what was of this one's transaction has been ended by that.
            _log.warning("no marker in %s-%d: %s", *where, refused)
        except Exception as error:
            return error
        return None

    async def write(self, marker: EndTransactionMarker, where: TransactionPartition) -> None:
        """Write one marker, durable on return.

        Raises ``TopicNotFound``, `NotOwned`, ``ProducerRefused``, ``LedgerError``.
        """
        topic = self._broker.topic(where.topic)
        if topic.internal:
            if not self._broker.cluster.ownership.is_mine(topic.name, where.partition):
                raise NotOwned(f"{where.topic}-{where.partition}", None)
            self._ends(marker, where)
            ended = self._end_offsets(topic.kafka_name, where.partition, marker)
            if ended is not None:
                await ended
            return
        async with self._partitions.lent(topic, where.partition) as partition:
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
