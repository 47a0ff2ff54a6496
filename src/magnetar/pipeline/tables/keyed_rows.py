"""The rows of a table's files that may have one of some keys, found by the bounds of their row groups."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from magnetar.pipeline.tables.deleted_rows import is_left, unpacked
from magnetar.pipeline.tables.files import DataFile, fit
from magnetar.pipeline.tables.table import Table

ROW = "__row"
"""The column of a row's number in its file."""
_FOOTERS = 256


class KeyedRows:
    """Reads keys and the columns ``order`` of the rows that have a key of ``changes``, each with its number."""

    def __init__(self, table: Table, keys: Sequence[str], order: Sequence[str], changes: pa.Table) -> None:
        self._table = table
        self._schema = pa.schema([table.schema.field(name) for name in dict.fromkeys((*keys, *order))])
        self._first = keys[0]
        self._wanted = pc.unique(changes[self._first]).sort()
        self._is_bounded = _has_bounds(self._wanted.type)

    def read(self, file: DataFile) -> pa.Table | None:
        """Return a file's rows with such keys that are not deleted, perhaps some more; None if it has none."""
        with self._table.data.open(file.path) as source:
            footer = self._table.footers.get(file.path)
            parquet = pq.ParquetFile(source, metadata=footer)
            if footer is None:
                self._remember(file, parquet.metadata)
            return self._rows(parquet, file)

    def _remember(self, file: DataFile, footer: Any) -> None:
        """Keep a file's footer: it never changes, and the next changes want it again."""
        footers = self._table.footers
        while len(footers) >= _FOOTERS:
            footers.pop(next(iter(footers)))
        footers[file.path] = footer

    def _rows(self, parquet: pq.ParquetFile, file: DataFile) -> pa.Table | None:
        deleted, found, first = unpacked(file.deleted), [], 0
        names = [name for name in self._schema.names if name in parquet.schema_arrow.names]
        for number in range(parquet.num_row_groups):
            group = parquet.metadata.row_group(number)
            at, first = first, first + group.num_rows
            if not self._may_have(group):
                continue
            for batch in parquet.iter_batches(batch_size=1 << 16, row_groups=[number], columns=names):
                fitting = fit(batch, self._schema)
                here = pc.is_in(fitting.column(fitting.schema.get_field_index(self._first)), self._wanted)
                if deleted:
                    here = pc.and_(here, pa.array(is_left(at, batch.num_rows, deleted)))
                numbered = fitting.append_column(ROW, pa.array(range(at, at + batch.num_rows), pa.int64()))
                at += batch.num_rows
                rows = numbered.filter(here)
                if rows.num_rows:
                    found.append(rows)
        return pa.Table.from_batches(found) if found else None

    def _may_have(self, group: Any) -> bool:
        """Return whether a row group's bounds leave it possible that it has one of the keys; without any they do."""
        if not self._is_bounded:
            return True
        for number in range(group.num_columns):
            column = group.column(number)
            if column.path_in_schema == self._first:
                stats = column.statistics
                if stats is None or not stats.has_min_max:
                    return True
                least, greatest = stats.min, stats.max
                if not isinstance(least, type(self._wanted[0].as_py())):
                    return True
                at = bisect_left(_Values(self._wanted), least)
                return at < len(self._wanted) and bool(self._wanted[at].as_py() <= greatest)
        return True  # the file is older than the column


class _Values:
    """An Arrow array as the values that it has, one at a time, for a search in it."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, number: int) -> Any:
        return self._array[number].as_py()


def _has_bounds(kind: pa.DataType) -> bool:
    """Return whether Parquet's bounds of a type are in the order of Python's values, and exact."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind))
