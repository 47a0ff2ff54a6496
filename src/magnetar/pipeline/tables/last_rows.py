"""The last rows of a table as marks, for a table that keeps none: one of an earlier version, or filled by `append`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from magnetar.pipeline.history import COLUMNS, LOOK_BACK, Marks, RecordMark, mark_of
from magnetar.pipeline.options import TopicPartition
from magnetar.pipeline.port import last_of
from magnetar.pipeline.tables.schema import PLACE
from magnetar.pipeline.tables.table import Table

_WANTED = (*PLACE, *(name for name in COLUMNS if name not in PLACE))


def last_rows(table: Table, position: Mapping[TopicPartition, int]) -> Marks:
    """Return the mark of each partition's last row; none where its rows are not the topic's records as they were.

    Reads the footers of all files, and of the rows only those groups that may have one of these.
    """
    if not _has_records(table.schema):
        return {}
    found: dict[TopicPartition, RecordMark] = {}
    for each in table.files():
        with table.data.open(each.path) as source:
            file = pq.ParquetFile(source)
            for number in range(file.num_row_groups):
                wanted = {
                    w for w, at in position.items() if _may_have(file.metadata.row_group(number), w, at)
                }
                if not wanted:
                    continue
                rows = file.read_row_group(number, columns=list(_WANTED))
                for which in wanted:
                    mark = _last_of(rows, which, position[which])
                    if mark is not None and (which not in found or found[which].offset < mark.offset):
                        found[which] = mark
    return found


def _has_records(schema: pa.Schema) -> bool:
    """Return whether a table's rows are records with their bytes."""
    if not set(_WANTED) <= set(schema.names):
        return False
    return all(_is_bytes(schema.field(name).type) for name in ("key", "value"))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _may_have(row_group: Any, which: TopicPartition, position: int) -> bool:
    """Return whether a row group may hold the last row of a partition, by its statistics of offsets and partitions."""
    for number in range(row_group.num_columns):
        column = row_group.column(number)
        stats = column.statistics
        if stats is None or not stats.has_min_max:
            continue
        if column.path_in_schema == "partition" and not stats.min <= which.partition <= stats.max:
            return False
        if column.path_in_schema == "offset" and not stats.max >= position - LOOK_BACK:
            return False
    return True


def _last_of(rows: pa.Table, which: TopicPartition, position: int) -> RecordMark | None:
    """Return the mark of a partition's last row before the position: behind it may lie rows of an older history."""
    here = pc.and_(pc.equal(rows["topic"], which.topic), pc.equal(rows["partition"], which.partition))
    mine = rows.filter(pc.and_(here, pc.less(rows["offset"], position)))
    if not mine.num_rows:
        return None
    last = mine.take([pc.index(mine["offset"], pc.max(mine["offset"])).as_py()])
    return mark_of(last_of(last.select(list(COLUMNS)).combine_chunks().to_batches()[0]))
