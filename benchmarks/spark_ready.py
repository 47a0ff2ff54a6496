"""A source with nothing to do: slices as ours cuts them, and of each the first Arrow batch again and again.

What Spark takes with it, no source that is written in Python takes less: the bounds of what ours can reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader

from magnetar.pipeline.source import BatchReader, MagnetarDataSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class ReadyDataSource(MagnetarDataSource):
    """What ``format("magnetar-ready")`` finds once it is registered; batches only."""

    @classmethod
    def name(cls) -> str:
        return "magnetar-ready"

    def reader(self, schema: StructType) -> ReadyReader:
        return ReadyReader(super().reader(schema))


class ReadyReader(DataSourceReader):  # type: ignore[misc]
    """Gives as many rows as there are; but only the first of a slice are made of what lies there."""

    def __init__(self, real: BatchReader) -> None:
        self._real = real

    def partitions(self) -> list[Any]:
        return list(self._real.partitions())

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        batches = self._real.read(partition)
        batch = next(batches)
        left = partition.high - partition.low
        while left > 0:
            yield batch.slice(0, left)
            left -= batch.num_rows
