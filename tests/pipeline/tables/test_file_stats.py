"""What a file's footer says of its columns, as commits tell it."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq

from magnetar.pipeline.tables.files import column_stats

MICROSECONDS = pa.timestamp("us", "UTC")


def test_bounds_span_all_row_groups_and_times_are_utc() -> None:
    times = [datetime(2024, 5, day, tzinfo=UTC) for day in (3, 1, 2)]
    table = pa.table({"timestamp": pa.array(times, MICROSECONDS), "offset": [7, None, 8]})
    assert _stats(table) == {"timestamp": [min(times), max(times), 0], "offset": [7, 8, 1]}


def test_a_time_beyond_every_calendar_costs_the_column_its_bounds_and_nothing_else() -> None:
    times = pa.array([0, (1 << 63) - 1], pa.int64()).cast(MICROSECONDS)
    assert _stats(pa.table({"timestamp": times, "offset": [1, 2]})) == {"offset": [1, 2, 0]}


def _stats(table: pa.Table) -> dict[str, object]:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=2)
    return column_stats(pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata)
