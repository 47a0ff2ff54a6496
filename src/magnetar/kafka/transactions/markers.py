"""How a transaction is ended in the partitions that it touched: a marker in each, and in what groups committed."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

from magnetar.broker.core import Broker
from magnetar.broker.errors import BrokerError, TopicNotFound
from magnetar.broker.ownership import NotOwned
from magnetar.broker.peers import Peers
from magnetar.broker.producers import EndTransactionMarker, ProducerRefused
from magnetar.kafka.coordinators.refused import CoordinatorRefused
from magnetar.kafka.partitions.registry import Partitions
from magnetar.kafka.transactions.metadata import TransactionPartition
from magnetar.ledger.errors import LedgerError, LedgerTerminated
from magnetar.metadata import MetadataError

WRITE = "write-marker"
"""What other workers are asked."""
_RETRY_S = (0.02, 0.1, 0.5, 2.0)
_log = logging.getLogger(__name__)


class Markers:
    """Writes markers. ``end_offsets`` ends a transaction in a partition of a group coordinator's, if it is one's."""

    def __init__(
        self,
        broker: Broker,
        partitions: Partitions,
        end_offsets: Callable[[str, int, EndTransactionMarker], Awaitable[None] | None],
    ) -> None:
        self._broker = broker
        self._partitions = partitions
        self._end_offsets = end_offsets
        self.peers: Peers | None = None
        """Other workers, that write markers to partitions of theirs."""
        self.written: Counter[TransactionPartition] = Counter()
        """How many markers were written here to each partition; counted only where there are other workers."""

    async def write_all(
        self, marker: EndTransactionMarker, partitions: Iterable[TransactionPartition]
    ) -> None:
        """Return when the marker is durable in each partition that there is; tried again for as long as it takes."""
        await asyncio.gather(*(self._write_surely(marker, each) for each in partitions))

    async def _write_surely(self, marker: EndTransactionMarker, where: TransactionPartition) -> None:
        tries = 0
        while True:
            try:
                await self.write(marker, where)
                return
            except TopicNotFound:
                return  # it went with its transaction
            except LedgerTerminated:
                _log.warning(
                    "%s-%d was terminated with a transaction of producer %d open", *where, marker.producer_id
                )
                return
            except ProducerRefused as refused:
                # A newer epoch has written here: what was of this one's transaction has been ended by that.
                _log.warning("no marker in %s-%d: %s", *where, refused)
                return
            except (BrokerError, LedgerError, MetadataError, CoordinatorRefused) as error:
                wait_s = _RETRY_S[min(tries, len(_RETRY_S) - 1)]
                if tries == len(_RETRY_S):
                    _log.warning("a marker cannot be written to %s-%d: %s; tried again", *where, error)
                tries += 1
                await asyncio.sleep(wait_s)

    async def write(self, marker: EndTransactionMarker, where: TransactionPartition) -> None:
        """Write one marker, durable on return.

        Where another worker has the partition, it does. Raises ``TopicNotFound``, `NotOwned`, ``PeerFailed``,
        ``ProducerRefused``, ``LedgerError``.
        """
        topic = self._broker.topic(where.topic)
        if self.peers is not None:
            owner = self._broker.ownership.owner(topic.name, where.partition)
            if owner is not None and owner.node_id != self.peers.node_id:
                await self.peers.ask(owner.node_id, WRITE, pickle.dumps((tuple(marker), where)))
                return
        if topic.internal:
            if not self._broker.ownership.is_mine(topic.name, where.partition):
                raise NotOwned(f"{where.topic}-{where.partition}", None)
            self._count(where)
            ended = self._end_offsets(topic.kafka_name, where.partition, marker)
            if ended is not None:
                await ended
            return
        partition = await self._partitions.get(topic, where.partition)
        await partition.may_end_transactions()
        self._count(where)
        done = partition.end_transaction(marker)
        if done is not None:
            await done

    def _count(self, where: TransactionPartition) -> None:
        if self.peers is not None:
            self.written[where] += 1
