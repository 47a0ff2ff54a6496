"""Current state from a change feed, held against SQLite, which saw the same changes."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

from magnetar.pipeline import tables
from magnetar.pipeline.tables import OffsetRange
from magnetar.pipeline.tables.upsert import apply_changes

SCHEMA = pa.schema([("id", pa.binary()), ("name", pa.string()), ("offset", pa.int64())])
CHANGES = pa.schema([*SCHEMA, ("deleted", pa.bool_())])


def changes(seed: int, low: int, high: int) -> pa.Table:
    chance = random.Random(seed)
    rows = [
        {"id": b"%d" % chance.randrange(60), "name": f"n{at}", "offset": at, "deleted": chance.random() < 0.3}
        for at in range(low, high)
    ]
    return pa.Table.from_pylist(rows, CHANGES)


@pytest.fixture
def state(tmp_path: Path, kind: str) -> tables.Table:
    return tables.open(tmp_path / "lake" / "state", kind, schema=SCHEMA)


def rows(table: tables.Table) -> list[tuple[bytes, str, int]]:
    return sorted((r["id"], r["name"], r["offset"]) for r in table.to_arrow().to_pylist())


@pytest.mark.slow
def test_the_state_is_that_of_a_database(state: tables.Table) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("create table state (id blob primary key, name text, at integer)")
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    for low in range(0, 500, 100):
        batch = changes(seed + low, low, low + 100)
        for row in batch.to_pylist():
            database.execute("delete from state where id = ?", (row["id"],))
            if not row["deleted"]:
                database.execute(
                    "insert into state values (?, ?, ?)", (row["id"], row["name"], row["offset"])
                )
        with state.writing():
            apply_changes(
                state, batch, ["id"], ranges=[OffsetRange("t", 0, low, low + 100)], topics={"t": "x"}
            )
        assert rows(state) == sorted(database.execute("select id, name, at from state"))


def test_a_batch_is_applied_once(state: tables.Table) -> None:
    ranges = [OffsetRange("t", 0, 0, 100)]
    with state.writing():
        apply_changes(state, changes(1, 0, 100), ["id"], ranges=ranges, topics={"t": "x"})
        before, version = rows(state), state.version
        with pytest.raises(tables.OffsetsCommitted):
            apply_changes(state, changes(1, 0, 100), ["id"], ranges=ranges, topics={"t": "x"})
    assert (rows(state), state.version) == (before, version)


def test_what_comes_late_changes_nothing(state: tables.Table) -> None:
    new = pa.Table.from_pylist([{"id": b"a", "name": "new", "offset": 7, "deleted": False}], CHANGES)
    old = pa.Table.from_pylist(
        [
            {"id": b"a", "name": "old", "offset": 3, "deleted": True},
            {"id": b"b", "name": "other", "offset": 4, "deleted": None},
        ],
        CHANGES,
    )
    with state.writing():
        apply_changes(state, new, ["id"])
        done = apply_changes(state, old, ["id"])
    assert (done.stale, done.upserted, done.deleted, done.files_rewritten) == (1, 1, 0, 0)
    assert rows(state) == [(b"a", "new", 7), (b"b", "other", 4)]


def test_keys_cannot_be_null_or_missing(state: tables.Table) -> None:
    bad = pa.Table.from_pylist([{"id": None, "name": "x", "offset": 1, "deleted": False}], CHANGES)
    with state.writing():
        with pytest.raises(tables.TableError, match="column 'id' is null in 1 changes"):
            apply_changes(state, bad, ["id"])
        with pytest.raises(tables.TableError, match="no column \\['key'\\]"):
            apply_changes(state, bad, ["key"])
    assert rows(state) == []
