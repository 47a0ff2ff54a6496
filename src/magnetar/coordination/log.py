"""Where a coordinator's facts are stored, as a port: a partition of its internal topic."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Protocol

from magnetar.cluster.ownership import Owned
from magnetar.records.batch import read_header


class OffsetsLog(Protocol):
    """The partitioned log of facts. Partitions that were never written cost nothing."""

    topic: str
    """The one name of its topic."""

    @property
    def partitions(self) -> int:
        """The number of partitions; fixed when the log is created, whatever the configuration is later."""
        ...

    def owner(self, partition: int) -> Owned | None:
        """Return the broker that owns a partition, and with it the groups stored there; None if no broker does now."""
        ...

    def is_mine(self, partition: int) -> bool:
        """True if this broker owns a partition; others must not be read, and cannot be written."""
        ...

    async def written(self) -> Iterable[int]:
        """Return the partitions that have records, or may have."""
        ...

    async def append(self, partition: int, batch: bytes, records: int) -> int:
        """Persist one record batch and return its base offset; once this returns, the batch survives a crash.

        Whatever it raises, it is unknown then if the batch was stored, and the partition is replayed.
        """
        ...

    def replay(self, partition: int) -> AsyncIterator[bytes | memoryview]:
        """Return all record batches of a partition in order."""
        ...

    async def trim(self, partition: int, before_offset: int) -> None:
        """Delete what lies before an offset; some of it may stay."""
        ...


class MemoryOffsetsLog:
    """An `OffsetsLog` that lives as long as the process."""

    def __init__(self, partitions: int = 50, topic: str = "__consumer_offsets") -> None:
        self.partitions = partitions
        self.topic = topic
        self._batches: dict[int, list[tuple[int, bytes]]] = {}
        self._next: dict[int, int] = {}

    def owner(self, partition: int) -> Owned | None:
        """Return this broker: it owns all partitions."""
        return Owned(0, 0)

    def is_mine(self, partition: int) -> bool:
        """Return True: there is no other broker."""
        return True

    async def written(self) -> Iterable[int]:
        """Return the partitions that have records."""
        return sorted(self._batches)

    async def append(self, partition: int, batch: bytes, records: int) -> int:
        """Store one record batch and return its base offset."""
        base_offset = self._next.get(partition, 0)
        self._batches.setdefault(partition, []).append((base_offset, batch))
        self._next[partition] = base_offset + records
        return base_offset

    async def replay(self, partition: int) -> AsyncIterator[bytes]:
        """Yield the record batches of a partition in order."""
        for _, batch in list(self._batches.get(partition, ())):
            yield batch

    async def trim(self, partition: int, before_offset: int) -> None:
        """Delete batches that end before an offset."""
        kept = [
            (base_offset, batch)
            for base_offset, batch in self._batches.get(partition, ())
            if base_offset + read_header(batch).records_count > before_offset
        ]
        self._batches[partition] = kept
