"""A topic on disk, and what its table must hold."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from magnetar.pipeline import tables
from tests.pipeline.test_slices import everything, fill
from tests.pipeline.writer import Writer


class TopicOnDisk:
    """Two partitions with all that records can be; the last ledgers are open and may grow."""

    def __init__(self, data: Path) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.data = data
        self.writer = Writer(data)
        self.partitions = self.writer.topic("t", 2)
        everything(self.partitions[0])
        fill(self.partitions[1], 30)
        self.partitions[1].close_ledger()
        self.writer.finish()

    def grow(self, batches: int = 10) -> None:
        """Add some more to both partitions."""
        for each in self.partitions:
            fill(each, batches)
            each.close_ledger()
        self.writer.finish()

    @property
    def options(self) -> dict[str, str]:
        return {"path": str(self.data)}

    def rows(self) -> list[tuple[object, ...]]:
        """What a table must hold, in the order of partitions and offsets."""
        return [
            (
                each.partition,
                r.offset,
                r.key,
                r.value,
                r.timestamp,
                kind,
                [tuple(h) for h in r.headers] or None,
            )
            for each in self.partitions
            for r, kind in each.expected
        ]


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    """Return a table's rows, sorted by place."""
    names = ("partition", "offset", "key", "value", "timestamp", "timestampType", "headers")
    columns = [
        table[name].cast(pa.int64()).to_numpy() // 1000 if name == "timestamp" else table[name].to_pylist()
        for name in names
    ]
    found = [
        (p, o, key, value, int(time), kind, [(h["key"], h["value"]) for h in headers] if headers else None)
        for p, o, key, value, time, kind, headers in zip(*columns, strict=True)
    ]
    return sorted(found, key=lambda row: row[:2])


@pytest.fixture
def topic(tmp_path: Path) -> TopicOnDisk:
    return TopicOnDisk(tmp_path / "data")


@pytest.fixture(params=["parquet", "delta", "iceberg"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(tmp_path: Path, kind: str) -> tables.Table:
    return tables.open(tmp_path / "lake" / "t", kind)
