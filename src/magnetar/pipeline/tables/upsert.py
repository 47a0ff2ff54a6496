"""Current state: a change feed applied to a table by key, deletes included, with its offsets in the same commit.

Of all changes of a key the last one counts, by ``order_by``; a row that is there already and is younger stays. Files
that hold replaced or deleted rows are written again without them (copy on write), in every format alike; all others
stay as they are. The keys of all files are looked at, so this is for tables of up to some ten million keys; beyond
that, use Delta's ``MERGE`` in ``foreachBatch`` on a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from magnetar.pipeline.tables.errors import TableError
from magnetar.pipeline.tables.files import DataFile, fit, write_files
from magnetar.pipeline.tables.frames import evolve, schema_of, written
from magnetar.pipeline.tables.ranges import OffsetRange
from magnetar.pipeline.tables.table import Table, TableCommit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROW = "__row"


@dataclass(frozen=True, slots=True)
class _Order:
    """Which change of a key is the later one."""

    by: list[str]
    within: str | None
    across: list[str]

    @property
    def columns(self) -> list[str]:
        """All columns that it takes to tell."""
        return list(dict.fromkeys((*self.by, *([self.within] if self.within else ()), *self.across)))

    def last_of_each(self, rows: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Return the last change of each key."""
        if self.within is None:
            return _last_of_each(rows, keys, self.by)
        return _last_of_each(_last_of_each(rows, [*keys, self.within], self.by), keys, self.across)

    def is_late(self, found: pa.Table) -> Any:
        """Tell which changes (``__new_`` columns) are not later than the row that is there."""
        late = _not_later(found, self.by)
        if self.within is not None:
            same = pc.equal(found[self.within], found[f"__new_{self.within}"])
            late = pc.if_else(same, late, _not_later(found, self.across))
        return pc.fill_null(late, False)


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a batch of changes."""

    changes: int
    upserted: int
    deleted: int
    stale: int
    """Keys of which the table already had a later state."""
    files_rewritten: int


def apply_changes(
    table: Table,
    changes: DataFrame | pa.Table,
    keys: Sequence[str],
    *,
    order_by: str | Sequence[str] = "offset",
    within: str | None = None,
    across: Sequence[str] = (),
    deleted: str = "deleted",
    ranges: Sequence[OffsetRange] = (),
    topics: Mapping[str, str] | None = None,
) -> Applied:
    """Bring ``table`` to the state behind ``changes``: one row per key, none for a key whose last change is a delete.

    ``changes`` has the table's columns and perhaps the boolean ``deleted``, which says that a row is a tombstone; it is
    no column of the table. Keys must not be null. ``order_by`` must tell apart the changes of a key: the offset does
    while a key stays in its partition, as Kafka's producers have it. Where keys may move, ``within`` is the column of
    the partition: ``order_by`` counts within one, and ``across`` between two. ``ranges`` and ``topics`` are those of
    `magnetar.pipeline.tables.frames.append`, and with them a batch that was applied before is refused. The caller holds
    the writer's lock.
    """
    order = _Order([order_by] if isinstance(order_by, str) else list(order_by), within, list(across))
    rows = changes if isinstance(changes, pa.Table) else changes.toArrow()
    _check(table, rows, keys, order.columns)
    last = order.last_of_each(rows, keys)
    is_deleted = last[deleted] if deleted in last.schema.names else pa.repeat(pa.scalar(False), len(last))
    state = last.drop_columns([deleted]) if deleted in last.schema.names else last
    evolve(table, schema_of(state))
    with table.attempt() as attempt:
        merge = _Merge(table, state.select([*keys, *order.columns]), keys, order)
        hit = merge.look()
        current = pa.array([row not in merge.stale for row in range(len(last))], pa.bool_())
        upserts = state.filter(pc.and_(current, pc.invert(pc.fill_null(is_deleted, False))))
        added = [*merge.rewritten(attempt), *(written(table, upserts, attempt) if len(upserts) else ())]
        table.on_step("written")
        commit = TableCommit("merge", attempt, added, [f for f, _ in hit], ranges, topics or {})
        if added or hit or ranges:
            table.commit(commit)
        table.on_step("committed")
    stale = len(merge.stale)
    return Applied(len(rows), len(upserts), len(last) - stale - len(upserts), stale, len(hit))


class _Merge:
    """Which rows of which files go, and which changes come too late."""

    def __init__(self, table: Table, changes: pa.Table, keys: Sequence[str], order: _Order) -> None:
        self._table = table
        self._keys = list(keys)
        self._order = order
        new = {name: f"__new_{name}" for name in order.columns}
        self._changes = changes.rename_columns([new.get(name, name) for name in changes.schema.names])
        self._changes = self._changes.append_column("__change", pa.array(range(len(changes)), pa.int64()))
        self.stale: set[int] = set()
        self._hit: list[tuple[DataFile, pa.ChunkedArray]] = []

    def look(self) -> list[tuple[DataFile, pa.ChunkedArray]]:
        """Return the files with rows to take out, and the numbers of these rows."""
        for file in self._table.files():
            if file.deletes:
                raise TableError(
                    f"{self._table}: file {file.path} has rows deleted by another engine; compact it first"
                )
            with self._table.data.open(file.path) as source:
                there = pq.ParquetFile(source).read(columns=[*self._keys, *self._order.columns])
            there = there.append_column(_ROW, pa.array(range(len(there)), pa.int64()))
            found = there.join(self._changes, self._keys, join_type="inner")
            late = self._order.is_late(found)
            self.stale.update(found.filter(late)["__change"].to_pylist())
            if gone := found.filter(pc.invert(late))[_ROW]:
                self._hit.append((file, gone))
        return self._hit

    def rewritten(self, attempt: str) -> list[DataFile]:
        """Write the rows that stay of the files that were hit."""
        table = self._table

        def rest() -> Iterator[tuple[str, pa.RecordBatch]]:
            for file, gone in self._hit:
                with table.data.open(file.path) as source:
                    rows = pq.ParquetFile(source).read()
                numbers = pa.array(range(len(rows)), pa.int64())
                for batch in rows.filter(pc.invert(pc.is_in(numbers, gone))).to_batches(1 << 16):
                    yield file.order, fit(batch, table.schema)

        return write_files(table.data, table.schema, table.layout, attempt, rest())


def _not_later(found: pa.Table, order: Sequence[str]) -> Any:
    """Compare column by column, those of the change with those of the row that is there."""
    late = pa.chunked_array([pa.repeat(pa.scalar(True), len(found))])  # the same place twice changes nothing
    for name in reversed(order):
        there, new = found[name], found[f"__new_{name}"]
        late = pc.or_(pc.greater(there, new), pc.and_(pc.equal(there, new), late))
    return late


def _check(table: Table, rows: pa.Table, keys: Sequence[str], order: Sequence[str]) -> None:
    missing = [name for name in (*keys, *order) if name not in rows.schema.names]
    if not keys or missing:
        raise TableError(
            f"{table}: changes need keys and order; they have no column {missing or 'of the key'}"
        )
    empty = [name for name in (*keys, *order) if rows[name].null_count]
    if empty:
        raise TableError(
            f"{table}: column {empty[0]!r} is null in {rows[empty[0]].null_count} changes; keys cannot be"
        )


def _last_of_each(rows: pa.Table, keys: Sequence[str], order: Sequence[str]) -> pa.Table:
    """Return the last change of each key."""
    numbered = rows.select(list(dict.fromkeys((*keys, *order)))).append_column(
        _ROW, pa.array(range(len(rows)), pa.int64())
    )
    ordered = numbered.sort_by([(name, "ascending") for name in (*order, _ROW)])
    last = ordered.group_by(list(keys), use_threads=False).aggregate([(_ROW, "last")])
    return rows.take(last[f"{_ROW}_last"].combine_chunks().sort())
