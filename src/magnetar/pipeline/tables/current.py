"""Current state of a topic: one row per key, from decoded changes, batch by batch.

Changes carry ``_key``, their place ``_partition`` and ``_offset``, ``_timestamp``, and four columns that are not the
table's: ``_at_partition`` and ``_at_offset``, where the record really lies; ``_replayed``, whether it was sent again,
and then its place is that of the first one; ``_deleted``.

Within a partition the higher offset counts. Between partitions, where a topic got more of them and a key moved, the
later timestamp does. The table forgets what was deleted, so a record sent again is applied only if bronze has no later
record of its key, but for those that became dead letters themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from magnetar.pipeline.replays import REPLAY_HEADER
from magnetar.pipeline.tables.listing import dataset_of, is_there
from magnetar.pipeline.tables.ranges import OffsetRange
from magnetar.pipeline.tables.table import Table
from magnetar.pipeline.tables.upsert import apply_changes

_EXTRA = ("_at_partition", "_at_offset", "_replayed", "_deleted")


def state_schema(changes: pa.Schema) -> pa.Schema:
    """Return the columns that the table has."""
    return pa.schema([each for each in changes if each.name not in _EXTRA])


def apply(
    table: Table,
    changes: pa.Table,
    ranges: Sequence[OffsetRange],
    topics: Mapping[str, str],
    *,
    bronze: str | None,
    dead_letters: str | None,
) -> None:
    """Bring the table to the state behind ``changes``, which are of the offsets ``ranges``; the lock is held."""
    changes = changes.filter(pc.invert(_overtaken(changes, bronze, dead_letters)))
    apply_changes(
        table, changes.drop_columns([name for name in _EXTRA if name != "_deleted"]), ["_key"],
        order_by="_offset", within="_partition", across=("_timestamp", "_partition"), deleted="_deleted",
        ranges=ranges, topics=topics,
    )  # fmt: skip


def _overtaken(changes: pa.Table, bronze: str | None, dead_letters: str | None) -> pa.ChunkedArray:
    """Tell which changes were sent again although a later record of their key is there."""
    replayed = changes["_replayed"]
    if bronze is None or not pc.any(replayed).as_py():
        return pc.and_(replayed, False)
    keys = pc.unique(changes.filter(replayed)["_key"])
    later = _records_of(bronze, keys)
    if dead_letters is not None and is_there(dead_letters):
        bad = dataset_of(dead_letters).to_table(columns=["partition", "offset"])
        places = set(zip(bad["partition"].to_pylist(), bad["offset"].to_pylist(), strict=True))
        later = {each for each in later if each[1:] not in places}
    names = ["_replayed", "_key", "_partition", "_offset"]
    rows = zip(*(changes[name].to_pylist() for name in names), strict=True)
    newest: dict[tuple[bytes, int], int] = {}
    for key, partition, offset in later:
        newest[key, partition] = max(offset, newest.get((key, partition), -1))
    return pa.chunked_array(
        [[again and newest.get((key, p), -1) > o for again, key, p, o in rows]], pa.bool_()
    )


def _records_of(bronze: str, keys: Any) -> set[tuple[bytes, int, int]]:
    """Return key, partition and offset of these keys' records, without those that were sent again."""
    columns = ["key", "partition", "offset", "headers"]
    found = dataset_of(bronze).to_table(columns=columns, filter=pc.field("key").isin(keys))
    return {
        (row["key"], row["partition"], row["offset"])
        for row in found.to_pylist()
        if all(header["key"] != REPLAY_HEADER for header in row["headers"] or ())
    }
