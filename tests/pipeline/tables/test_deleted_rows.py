"""Rows marked as deleted in files that stay: right after any changes, for every reader, and after any kill."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from magnetar.pipeline import tables
from magnetar.pipeline.tables import keyed_rows
from magnetar.pipeline.tables.deleted_rows import packed, unpacked, without
from magnetar.pipeline.tables.engine import LocalEngine
from magnetar.pipeline.tables.files import attempt_of
from magnetar.pipeline.tables.listing import dataset_of
from magnetar.pipeline.tables.maintenance import Upkeep, compact, tidy
from tests.pipeline.tables import upsert_victim
from tests.pipeline.tables.upsert_victim import CHANGES, LAYOUT, SCHEMA
from tests.pipeline.types.readers import READERS, is_there

KEEPS = ("delta", "iceberg")


def change(key: int, at: int, *, deleted: bool = False) -> dict[str, Any]:
    return {"id": b"k%06d" % key, "name": f"name of {key} at {at}", "offset": at, "deleted": deleted}


def made(where: Path, kind: str, rows: int, layout: tables.Layout = LAYOUT) -> tables.Table:
    """Return a table of so many keys in one file."""
    table = tables.open(where, kind, schema=SCHEMA, layout=layout)
    keys = list(range(rows))
    random.Random(7).shuffle(keys)
    apply(table, [change(key, at) for at, key in enumerate(keys)])
    return table


def apply(table: tables.Table, rows: list[dict[str, Any]]) -> Any:
    with table.writing():
        return tables.apply_changes(table, pa.Table.from_pylist(rows, CHANGES), ["id"])


def state_of(rows: pa.Table) -> list[tuple[bytes, str, int]]:
    found = [(bytes(r["id"]), r["name"], r["offset"]) for r in rows.select(SCHEMA.names).to_pylist()]
    return sorted(found)


def expected(state: dict[bytes, dict[str, Any]]) -> list[tuple[bytes, str, int]]:
    return sorted((row["id"], row["name"], row["offset"]) for row in state.values())


@pytest.mark.slow
def test_any_changes_leave_what_a_dictionary_has(tmp_path: Path, kind: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    table = made(tmp_path / "lake" / "t", kind, 3000)
    state = {row["id"]: row for row in table.to_arrow().to_pylist()}
    at, marked, rewritten = 3000, 0, 0
    for number in range(25):
        rows = []
        for _ in range(chance.choice((1, 3, 40, 400))):
            late = chance.random() < 0.1
            rows.append(change(chance.randrange(3500), chance.randrange(at) if late else at))
            rows[-1]["deleted"] = chance.random() < 0.3
            at += not late
        # Of a batch the last change of a key counts, by offset; among equal ones the one that comes last.
        last: dict[bytes, dict[str, Any]] = {}
        for row in sorted(rows, key=lambda each: each["offset"]):
            last[row["id"]] = row
        for key, row in last.items():
            if key in state and state[key]["offset"] >= row["offset"]:
                continue
            state.pop(key, None)
            if not row["deleted"]:
                state[key] = row
        done = apply(table, rows)
        marked, rewritten = marked + done.files_marked, rewritten + done.files_rewritten
        if number % 7 == 3:
            with table.writing():
                tidy(table, LocalEngine(1), Upkeep(keep_s=0))
        if number % 5 == 1:
            table = tables.open(tmp_path / "lake" / "t", kind, layout=LAYOUT)
        assert state_of(table.to_arrow()) == expected(state)
        assert table.state().rows == len(state)
    assert rewritten
    assert bool(marked) == (kind in KEEPS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KEEPS)
def test_all_readers_find_the_same_rows(tmp_path: Path, kind: str) -> None:
    where = tmp_path / "lake" / "t"
    table = made(where, kind, 5000)
    for low in range(5000, 5300, 100):
        rows = [
            change(key, low + n, deleted=n % 4 == 0) for n, key in enumerate(range(low // 100 % 40, 4000, 40))
        ]
        assert apply(table, rows).files_marked
    wanted = state_of(table.to_arrow())
    assert len(wanted) == table.state().rows < 5000
    assert state_of(dataset_of(where).to_table()) == wanted
    with pytest.raises(tables.TableError, match="are deleted; read the table with"):
        table.urls()
    for name, read in READERS[kind].items():
        if is_there(name):
            assert state_of(read(where, kind)) == wanted, name
    with table.writing():
        assert compact(table, LocalEngine(1), fewest=2)
        table.expire(0)
    assert state_of(table.to_arrow()) == wanted
    for name, read in READERS[kind].items():
        if is_there(name):
            assert state_of(read(where, kind)) == wanted, name


def test_a_change_reads_and_writes_little(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "lake" / "t", kind, 200_000, tables.Layout())
    (file,) = table.files()
    groups: list[int] = []

    class Watched(pq.ParquetFile):  # type: ignore[misc]
        def iter_batches(self, *args: Any, row_groups: list[int], **options: Any) -> Iterator[Any]:
            groups.extend(row_groups)
            return super().iter_batches(*args, row_groups=row_groups, **options)

    monkeypatch.setattr(keyed_rows.pq, "ParquetFile", Watched)
    done = apply(table, [change(77, 200_000)])
    monkeypatch.undo()
    assert len(groups) == (1 if kind in KEEPS else 1 + 7)  # the others to be written again
    assert pq.read_metadata(table.data.open(file.path)).num_row_groups == 7
    assert (done.upserted, done.files_marked) == (1, int(kind in KEEPS))
    new = [each for each in table.files() if each.path != file.path]
    if kind in KEEPS:
        assert [each.rows for each in new] == [1]
    found = table.to_arrow()
    assert len(found) == 200_000
    assert found.filter(pa.compute.equal(found["id"], b"k000077"))["offset"].to_pylist() == [200_000]


def test_a_deleted_row_is_forgotten(tmp_path: Path, kind: str) -> None:
    """A change that is older than a deletion counts again, as the table has no row of its key to compare it with."""
    table = made(tmp_path / "lake" / "t", kind, 1000)
    assert apply(table, [change(5, 2000, deleted=True)]).deleted == 1
    done = apply(table, [change(5, 0)])
    assert (done.upserted, done.stale) == (1, 0)
    rows = table.to_arrow()
    assert len(rows) == 1000
    assert rows.filter(pa.compute.equal(rows["id"], b"k000005"))["offset"].to_pylist() == [0]


@pytest.mark.parametrize("kind", KEEPS)
def test_a_tenth_of_a_file_is_the_most(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "lake" / "t", kind, 1000)
    (first,) = (each.path for each in table.files())
    assert apply(table, [change(key, 1000 + key) for key in range(100)]).files_marked == 1
    assert first in {each.path for each in table.files()}
    done = apply(table, [change(500, 2000)])
    assert (done.files_marked, done.files_rewritten) == (0, 1)
    assert first not in {each.path for each in table.files()}
    assert not any(each.deleted for each in table.files())
    assert len(table.to_arrow()) == 1000


@pytest.mark.slow
@pytest.mark.parametrize("kind", tables.FORMATS)
def test_killed_at_each_step(tmp_path: Path, kind: str) -> None:
    steps = [("noted", 2), ("written", 2), ("committed", 2)]
    if kind in KEEPS:
        steps += [("marked", 1), ("marked", 3), ("rewritten", 1), ("compacted", 1)]
    for number, (step, count) in enumerate(steps):
        where = tmp_path / "lake" / f"t{number}"
        with start(where, kind, number, step, count) as process:
            process.communicate()
        assert process.returncode == -signal.SIGKILL, f"{step} was never reached"
        check(where, kind, number)


@pytest.mark.slow
@pytest.mark.parametrize("kind", tables.FORMATS)
def test_killed_at_random_moments(tmp_path: Path, kind: str) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    moments = random.Random(seed)
    for number in range(4):
        with start(tmp_path / "lake" / "t", kind, seed) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(moments.random() ** 2 * 0.8)
            process.kill()
        check(tmp_path / "lake" / "t", kind, seed, finish=number == 3)


def start(where: Path, kind: str, seed: int, step: str = "-", count: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", upsert_victim.__name__, str(where), kind, str(seed), step, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def check(where: Path, kind: str, seed: int, *, finish: bool = True) -> None:
    """Hold a table against the changes that its offsets say it has, and against all when it went on."""
    table = tables.open(where, kind, schema=SCHEMA, layout=LAYOUT)
    for is_last in (False, True)[: 1 + finish]:
        if is_last:
            upsert_victim.go_on(table, seed)
        state = upsert_victim.state_after(seed, upsert_victim.batches_in(table))
        assert state_of(table.to_arrow()) == sorted((key, *rest) for key, rest in state.items())
    with table.writing():
        table.expire(0)
    assert table.place.child("_magnetar").names() == ["writer.lock"]
    assert {name for name in table.data.names() if attempt_of(name)} == table.names()


def test_a_property_of_the_table_has_files_written_again(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    table = made(tmp_path / "lake" / "t", "delta", 1000)
    deltas = DeltaTable(str(tmp_path / "lake" / "t"))
    deltas.alter.set_table_properties({"delta.enableDeletionVectors": "false"}, raise_if_not_exists=False)
    table.refresh()
    done = apply(table, [change(1, 1000)])
    assert (done.files_marked, done.files_rewritten) == (0, 1)
    assert DeltaTable(str(tmp_path / "lake" / "t")).protocol().reader_features in (None, [])


def test_a_layout_has_files_written_again(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "lake" / "t", kind, 1000, tables.Layout(keep_from_bytes=None))
    done = apply(table, [change(1, 1000)])
    assert (done.files_marked, done.files_rewritten) == (0, 1)


def test_a_delta_table_knows_deletion_vectors_and_nothing_else_that_is_new(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    table = made(tmp_path / "lake" / "t", "delta", 1000)
    assert DeltaTable(str(tmp_path / "lake" / "t")).protocol().min_reader_version == 1
    ranges = [tables.OffsetRange("t", 0, 0, 1)]
    for number, topics in enumerate(({}, {"t": "x"}, {"u": "y"})):
        with table.writing():
            rows = pa.Table.from_pylist([change(number, 1000 + number)], CHANGES)
            tables.apply_changes(table, rows, ["id"], ranges=ranges if "t" in topics else (), topics=topics)
            table.expire(3600.0 * number)
    with table.writing():
        table.set_columns(pa.schema([*SCHEMA, ("more", pa.int32())]))
    protocol = DeltaTable(str(tmp_path / "lake" / "t")).protocol()
    assert protocol.reader_features == ["deletionVectors"]
    assert sorted(protocol.writer_features or ()) == ["appendOnly", "deletionVectors", "invariants"]
    assert table.position() == {("t", 0): 1}
    assert table.topics() == {"t": "x", "u": "y"}
    assert len(table.to_arrow()) == 1000


def test_two_writers_one_wins(tmp_path: Path) -> None:
    first = made(tmp_path / "lake" / "t", "delta", 1000)
    second = tables.open(tmp_path / "lake" / "t", "delta", layout=LAYOUT)

    def overtaken(step: str) -> None:
        if step == "marked":
            rows = pa.Table.from_pylist([change(1, 1000)], CHANGES)
            tables.apply_changes(first, rows, ["id"])

    second.steps.append(overtaken)
    with pytest.raises(tables.TableConflict, match="another writer committed"):
        tables.apply_changes(second, pa.Table.from_pylist([change(2, 1000)], CHANGES), ["id"])
    first.refresh()
    assert sorted(each for each in first.to_arrow()["offset"].to_pylist() if each >= 1000) == [1000]
    assert second.names() == first.names() == {n for n in first.data.names() if attempt_of(n)}


@pytest.mark.parametrize("count", [1, 100, 70_000, 200_000])
def test_deleted_rows_are_left_out_of_batches(count: int) -> None:
    chance = random.Random(count)
    numbers = sorted(chance.sample(range(1 << 20), count))
    deleted = unpacked(packed(numbers))
    assert deleted == BitMap64(numbers)
    batch = pa.RecordBatch.from_pydict({"row": pa.array(range(1 << 18, 1 << 19), pa.int64())})
    left = without(batch, 1 << 18, deleted)["row"].to_pylist()
    assert left == sorted(set(range(1 << 18, 1 << 19)) - set(numbers))
    assert packed([]) == b""
    assert not unpacked(b"")
