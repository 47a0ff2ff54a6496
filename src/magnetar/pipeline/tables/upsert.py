"""Current state: a change feed applied to a table by key, deletes included, with its offsets in the same commit.

Of all changes of a key the last one counts, by ``order_by``; a row that is there already and is younger stays. Large
files that hold replaced or deleted rows stay as well, and the commit says which rows of them are deleted (Delta's
deletion vectors, Iceberg's position deletes), until these are a tenth: then, and where a file is small or the format
knows no such thing, files are written again without them.

Files are sorted by key, in small row groups with bounds of it, so that the keys of a few changes are found in few of
them. Many changes look at the keys of all files: beyond some ten million keys, and batches as large, use Delta's
``MERGE`` in ``foreachBatch`` on a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from magnetar.pipeline.tables.deleted_rows import packed, unpacked
from magnetar.pipeline.tables.errors import TableError
from magnetar.pipeline.tables.files import DataFile, read_in_order, write_files
from magnetar.pipeline.tables.frames import evolve, schema_of, written
from magnetar.pipeline.tables.keyed_rows import ROW, KeyedRows
from magnetar.pipeline.tables.ranges import OffsetRange
from magnetar.pipeline.tables.table import Table, TableCommit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_DELETED = 0.1
"""The share of a file's rows that may be deleted before it is written again."""
MOST_DELETED_BYTES = 64 << 10
"""How large the bitmap of deleted rows may become, which each commit that changes it holds once more."""


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
    files_marked: int = 0
    """Files that stay although some of their rows go."""


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
    state = _as_there(state, table.schema)
    with table.attempt() as attempt:
        merge = _Merge(table, state.select([*keys, *order.columns]), keys, order)
        merge.look()
        current = pa.array([row not in merge.stale for row in range(len(last))], pa.bool_())
        upserts = state.filter(pc.and_(current, pc.invert(pc.fill_null(is_deleted, False))))
        added = merge.rewritten(attempt)
        if len(upserts):
            ordered = upserts.sort_by([(name, "ascending") for name in keys])
            added += written(table, ordered, attempt, sorted_by=tuple(keys))
        table.reached("written")
        commit = TableCommit("merge", attempt, added, merge.replaced, ranges, topics or {}, mark=merge.marked)
        if added or merge.replaced or merge.marked or ranges:
            table.commit(commit)
        table.reached("committed")
    stale = len(merge.stale)
    deletes = len(last) - stale - len(upserts)
    return Applied(len(rows), len(upserts), deletes, stale, len(merge.replaced), len(merge.marked))


class _Merge:
    """Which rows of which files go, and which changes come too late."""

    def __init__(self, table: Table, changes: pa.Table, keys: Sequence[str], order: _Order) -> None:
        self._table = table
        self._order = order
        new = {name: f"__new_{name}" for name in order.columns}
        self._keyed = KeyedRows(table, keys, order.columns, changes)
        self._changes = changes.rename_columns([new.get(name, name) for name in changes.schema.names])
        self._changes = self._changes.append_column("__change", pa.array(range(len(changes)), pa.int64()))
        self._keys = list(keys)
        self.stale: set[int] = set()
        self.replaced: list[DataFile] = []
        """Files that are written again, with all their deleted rows."""
        self.marked: list[DataFile] = []
        """Files that stay, with all their deleted rows."""

    def look(self) -> None:
        """Find the rows that go, and decide about the files that hold them."""
        files = self._table.files()
        self._table.check_deletes(files)
        for file in files:
            there = self._keyed.read(file)
            if there is None:
                continue
            found = there.join(self._changes, self._keys, join_type="inner")
            late = self._order.is_late(found)
            self.stale.update(found.filter(late)["__change"].to_pylist())
            gone = found.filter(pc.invert(late))[ROW]
            if len(gone):
                self._take_out(file, gone)

    def _take_out(self, file: DataFile, gone: pa.ChunkedArray) -> None:
        rows = unpacked(file.deleted) | unpacked(packed(gone.to_numpy()))
        deleted = replace(file, deleted=packed(rows))
        least = self._table.layout.keep_from_bytes
        stays = (
            self._table.keeps_files
            and least is not None
            and file.size >= least
            and len(rows) <= file.rows * MOST_DELETED
            and len(deleted.deleted) <= MOST_DELETED_BYTES
        )
        (self.marked if stays else self.replaced).append(deleted)

    def rewritten(self, attempt: str) -> list[DataFile]:
        """Write the rows that stay of the files that are written again."""
        table, layout = self._table, replace(self._table.layout, sorted_by=tuple(self._keys))
        ordering = [(name, "ascending") for name in self._keys]
        # Sorted files stay so without a look at all their rows; of others each row group becomes so.
        rest = (
            (order, batch.sort_by(ordering))
            for order, batch in read_in_order(table.data, self.replaced, table.schema)
        )
        return write_files(table.data, table.schema, layout, attempt, rest)


def _not_later(found: pa.Table, order: Sequence[str]) -> Any:
    """Compare column by column, those of the change with those of the row that is there."""
    late = pa.chunked_array([pa.repeat(pa.scalar(True), len(found))])  # the same place twice changes nothing
    for name in reversed(order):
        there, new = found[name], found[f"__new_{name}"]
        late = pc.or_(pc.greater(there, new), pc.and_(pc.equal(there, new), late))
    return late


def _as_there(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows in the types of the table's columns, where it may have wider ones."""
    kinds = {each.name: each.type for each in schema}
    return rows.cast(pa.schema([pa.field(name, kinds[name]) for name in rows.schema.names]))


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
        ROW, pa.array(range(len(rows)), pa.int64())
    )
    ordered = numbered.sort_by([(name, "ascending") for name in (*order, ROW)])
    last = ordered.group_by(list(keys), use_threads=False).aggregate([(ROW, "last")])
    return rows.take(last[f"{ROW}_last"].combine_chunks().sort())
