"""Where a coordinator's facts are stored, as a port: a partition of its internal topic."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Protocol

from magnetar.cluster.ownership import Owned
from magnetar.records.batch import read_header


class OffsetsLog(Protocol):
    """The partitioned log of facts. Partitions that were never written cost nothing."""

    topic: str
    """The one name of the topic that it is."""

    @property
    def partitions(self) -> int:
        """How many there are; fixed when the log is first made, whatever the configuration says later."""
        ...

    def owner(self, partition: int) -> Owned | None:
        """Return the broker that has a partition, and with it the groups that are kept there; None for nobody now."""
        ...

    def is_mine(self, partition: int) -> bool:
        """Whether this broker has a partition; others are not to be read, and cannot be written."""
        ...

    async def written(self) -> Iterable[int]:
        """Return the partitions that hold anything, or may."""
        ...

    async def append(self, partition: int, batch: bytes, records: int) -> int:
        """Keep one record batch and give its base offset; once this returns, a crash keeps it.

        Whatever it raises, whether the batch was kept is unknown then, and the partition is replayed.
        """
        ...

    def replay(self, partition: int) -> AsyncIterator[bytes | memoryview]:
        """Return the whole record batches of a partition in order."""
        ...

    async def trim(self, partition: int, before_offset: int) -> None:
        """Forget what lies before an offset; some of it may stay."""
        ...


class MemoryOffsetsLog:
    """An `OffsetsLog` that lives as long as the process."""

    def __init__(self, partitions: int = 50, topic: str = "__consumer_offsets") -> None:
        self.partitions = partitions
        self.topic = topic
        self._batches: dict[int, list[tuple[int, bytes]]] = {}
        self._next: dict[int, int] = {}

    def owner(self, partition: int) -> Owned | None:
        """Return this broker: it has all partitions."""
        return Owned(0, 0)

    def is_mine(self, partition: int) -> bool:
        """Return True: nobody else has any."""
        return True

    async def written(self) -> Iterable[int]:
        """Return the partitions that hold anything."""
        return sorted(self._batches)

    async def append(self, partition: int, batch: bytes, records: int) -> int:
        """Keep one record batch and give its base offset."""
        base_offset = self._next.get(partition, 0)
        self._batches.setdefault(partition, []).append((base_offset, batch))
        self._next[partition] = base_offset + records
        return base_offset

    async def replay(self, partition: int) -> AsyncIterator[bytes]:
        """Yield the record batches of a partition in order."""
        for _, batch in list(self._batches.get(partition, ())):
            yield batch

    async def trim(self, partition: int, before_offset: int) -> None:
        """Forget batches that end before an offset."""
        kept = [
            (base_offset, batch)
            for base_offset, batch in self._batches.get(partition, ())
            if base_offset + read_header(batch).records_count > before_offset
        ]
        self._batches[partition] = kept
