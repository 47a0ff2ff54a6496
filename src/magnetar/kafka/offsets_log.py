"""The coordinators' logs kept where Kafka keeps them: ``__consumer_offsets`` and ``__transaction_state``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from magnetar.cluster.ownership import Owned
from magnetar.kafka.partitions.conversions import batch_of
from magnetar.kafka.partitions.partition import Partition
from magnetar.kafka.partitions.registry import Partitions
from magnetar.ledger.port import wall_clock_ms
from magnetar.node.broker import Broker
from magnetar.records.batch import read_header
from magnetar.topics.names import CONSUMER_OFFSETS

_READ_BYTES = 4 << 20


class LedgerOffsetsLog:
    """See ``OffsetsLog``. The topic is made with the first append, with as many partitions as were set then."""

    def __init__(self, broker: Broker, partitions: Partitions, topic: str = CONSUMER_OFFSETS) -> None:
        self._broker = broker
        self._partitions = partitions
        self._topic = topic
        self._name = broker.naming.parse(topic)
        self.topic = broker.naming.kafka_name(self._name)
        found = broker.get(topic)
        self.partitions = found.partitions if found is not None else broker.internal_partitions(topic)

    def owner(self, partition: int) -> Owned | None:
        """Return the broker that has a partition, whether the topic has been made or not."""
        return self._broker.cluster.ownership.owner(self._name, partition)

    def is_mine(self, partition: int) -> bool:
        """Whether this broker has a partition."""
        return self._broker.cluster.ownership.is_mine(self._name, partition)

    async def written(self) -> Iterable[int]:
        """Return the partitions that have a ledger."""
        topic = self._broker.get(self._topic)
        names = topic.ledger_names() if topic is not None else []
        found = await asyncio.gather(*map(self._broker.engine.summaries, names))
        return [index for index, ledgers in enumerate(found) if ledgers]

    async def append(self, partition: int, batch: bytes, records: int) -> int:
        """Keep one record batch; durable by the flush policy when this returns."""
        log = await self._get(partition)
        view = memoryview(batch)
        header = read_header(view)
        if header.is_transactional:
            await log.may_end_transactions()
        base_offset, done = log.append(view, header, wall_clock_ms())
        if header.is_transactional:
            log.stated(view, header, base_offset)
        if done is not None:
            await done
        return base_offset

    async def replay(self, partition: int) -> AsyncIterator[memoryview]:
        """Yield the record batches of a partition in order."""
        log = (await self._get(partition)).log
        offset = log.log_start_offset
        while entries := await log.read(offset, max_bytes=_READ_BYTES):
            for entry in entries:
                yield memoryview(batch_of(entry))
            offset = entries[-1].last_offset + 1

    async def trim(self, partition: int, before_offset: int) -> None:
        """Let go of what lies before an offset; whole ledgers leave the disk."""
        await (await self._get(partition)).log.trim(before_offset)

    async def _get(self, partition: int) -> Partition:
        return await self._partitions.get(await self._broker.create_internal(self._topic), partition)
