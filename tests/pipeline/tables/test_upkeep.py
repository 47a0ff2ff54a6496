"""Small files are joined, old ones go, columns are added; rows, their order and the position stay."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from magnetar.pipeline import tables
from magnetar.pipeline.options import TopicPartition
from magnetar.pipeline.tables import Layout, OffsetRange, Upkeep, iceberg, parquet
from magnetar.pipeline.tables.engine import LocalEngine
from magnetar.pipeline.tables.files import DataFile, attempt_of, order_of
from magnetar.pipeline.tables.frames import append
from magnetar.pipeline.tables.iceberg import IcebergTable
from magnetar.pipeline.tables.maintenance import small_files, tidy
from tests.pipeline.tables.conftest import TopicOnDisk, rows_of

PLAIN = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("n", pa.int64())]
)


@pytest.mark.slow
def test_small_files_are_joined_in_order(topic: TopicOnDisk, table: tables.Table) -> None:
    kept = Upkeep(compact=False)
    tables.sync("t", table, options=topic.options, max_offsets_per_commit=90, upkeep=kept)
    many, position, version = table.files(), table.position(), table.version
    assert len(many) > 8
    with table.writing():
        assert tables.compact(table, LocalEngine()) > 8
    assert len(table.files()) < len(many) / 3
    assert (rows_of(table.to_arrow()), table.position()) == (topic.rows(), position)
    assert table.version != version
    for each in table.files():
        rows = pq.read_table(table.data.open(each.path))
        places = list(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
        assert places == sorted(places)
    with table.writing():
        assert table.expire(0) >= len(many) - len(table.files())
    assert {name for name in table.data.names() if attempt_of(name)} == {each.path for each in table.files()}
    topic.grow()
    tables.sync("t", table, options=topic.options)
    assert rows_of(table.to_arrow()) == topic.rows()


@pytest.mark.slow
def test_what_is_young_is_kept_for_readers(topic: TopicOnDisk, table: tables.Table) -> None:
    tables.sync("t", table, options=topic.options, max_offsets_per_commit=150, upkeep=Upkeep(compact=False))
    before = {each.path for each in table.files()}
    with table.writing():
        tables.compact(table, LocalEngine())
    assert table.expire(3600) == 0
    assert before <= set(table.data.names())


def test_files_grow_tier_by_tier() -> None:
    def files(*sizes: int) -> list[DataFile]:
        return [
            DataFile(f"{order_of('t', 0, 100 * n)}-0123456789ab-01234567.parquet", size, 1)
            for n, size in enumerate(sizes)
        ]

    def joined(*sizes: int) -> list[list[int]]:
        return [[each.size for each in group] for group in small_files(files(*sizes), 1000)]

    assert joined(*[1] * 7) == []
    assert joined(*[1] * 8) == [[1] * 8]
    assert joined(900, *[1] * 8, 900) == [[1] * 8]
    assert joined(*[100] * 7, *[1] * 8) == [[1] * 8]
    assert joined(*[100] * 9, 800) == [[100] * 9]
    assert joined(*[200] * 20) == []
    others = [DataFile("somebody-elses.parquet", 1, 1) for _ in range(9)]
    assert small_files(others, 1000) == []


def test_columns_are_added_and_types_stay(tmp_path: Path, kind: str) -> None:
    table = tables.open(tmp_path / "lake" / "plain", kind, schema=PLAIN)
    first = pa.Table.from_pylist([{"topic": "t", "partition": 0, "offset": 0, "n": 1}], PLAIN)
    wider = pa.Table.from_pylist(
        [{"topic": "t", "partition": 0, "offset": 1, "n": 2, "word": "new"}],
        pa.schema([*PLAIN, ("word", pa.string())]),
    )
    with table.writing():
        append(table, first, [OffsetRange("t", 0, 0, 1)], {"t": "id"})
        append(table, wider, [OffsetRange("t", 0, 1, 2)], {"t": "id"})
        with pytest.raises(tables.TableError, match="column 'n' is int64, not string"):
            append(table, pa.table({"n": ["x"]}), [], {})
    found = tables.open(tmp_path / "lake" / "plain", kind).to_arrow()
    assert found.sort_by("offset")["word"].to_pylist() == [None, "new"]


def test_ranges_are_committed_once_and_without_gaps_going_back(tmp_path: Path, kind: str) -> None:
    table = tables.open(tmp_path / "lake" / "plain", kind, schema=PLAIN)
    rows = pa.Table.from_pylist([{"topic": "t", "partition": 2, "offset": 5, "n": 1}], PLAIN)
    with table.writing():
        append(table, rows, [OffsetRange("t", 2, 5, 6)], {"t": "id"})
        for low, high in ((5, 6), (4, 6), (0, 9), (6, 6)):
            with pytest.raises(tables.OffsetsCommitted, match="needs offset 6 next"):
                append(table, rows, [OffsetRange("t", 2, low, high)], {"t": "id"})
    assert table.position() == {TopicPartition("t", 2): 6}
    assert len(table.to_arrow()) == 1
    assert len([name for name in table.data.names() if attempt_of(name)]) == 1


@pytest.mark.slow
def test_a_topic_made_anew_is_not_mixed_in(topic: TopicOnDisk, table: tables.Table, tmp_path: Path) -> None:
    tables.sync("t", table, options=topic.options)
    with pytest.raises(tables.TopicReplaced, match="deleted and made anew"), table.writing():
        append(table, table.to_arrow(), [OffsetRange("t", 0, 10**6, 10**6 + 1)], {"t": "another"})
    assert rows_of(table.to_arrow()) == topic.rows()


def test_a_position_survives_checkpoints_and_expired_snapshots(tmp_path: Path, kind: str) -> None:
    where = tmp_path / "lake" / "plain"
    table = tables.open(where, kind, schema=PLAIN)
    for at in range(12):
        rows = pa.Table.from_pylist([{"topic": "t", "partition": 0, "offset": at, "n": at}], PLAIN)
        with table.writing():
            append(table, rows, [OffsetRange("t", 0, at, at + 1)], {"t": "id"})
    with table.writing():
        table.expire(0)
    if kind == "delta":
        log = where / "_delta_log"
        DeltaTable(where).create_checkpoint()
        checkpoint = max(log.glob("*.checkpoint.parquet"))
        for old in log.glob("*.json"):
            if old.stem < checkpoint.name.split(".")[0]:
                old.unlink()
    assert tables.open(where, kind).position() == {TopicPartition("t", 0): 12}


def test_many_small_commits_leave_a_bounded_number_of_files(tmp_path: Path, kind: str) -> None:
    where = tmp_path / "lake" / "t"
    found = []
    for at in range(60):
        table = tables.open(where, kind, schema=PLAIN)
        rows = pa.Table.from_pylist([{"topic": "t", "partition": 0, "offset": at, "n": at}], PLAIN)
        with table.writing():
            append(table, rows, [OffsetRange("t", 0, at, at + 1)], {"t": "id"})
            tidy(table, LocalEngine(), Upkeep(keep_s=0))
        found.append(sum(each.is_file() for each in where.rglob("*")))
    assert max(found[30:]) <= max(found[:30]) + 10, found
    assert tables.open(where, kind).to_arrow().sort_by("n")["n"].to_pylist() == list(range(60))


def test_clear_errors(tmp_path: Path, topic: TopicOnDisk) -> None:
    with pytest.raises(tables.TableError, match="no table format 'orc'; there are: parquet, delta, iceberg"):
        tables.open(tmp_path / "x", "orc")
    with pytest.raises(tables.TableError, match="local directories; use delta or iceberg"):
        tables.open("s3://bucket/x", "parquet")
    (tmp_path / "foreign").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "foreign" / "a.parquet")
    with pytest.raises(tables.TableError, match="holds Parquet files that no commit log speaks of"):
        tables.open(tmp_path / "foreign")
    table = tables.open(tmp_path / "t")
    with pytest.raises(ValueError, match="onDamage must be fail"):
        tables.sync("t", table, options={**topic.options, "onDamage": "skip"})
    with pytest.raises(ValueError, match="no topic 'other'"):
        tables.sync("other", table, options=topic.options)
    with pytest.raises(
        ValueError, match="compression must be one of snappy, zstd, lz4, gzip, none, not 'rar'"
    ):
        Layout(compression="rar")


def test_upkeep_reads_no_more_versions_for_a_longer_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables.open(tmp_path / "t", "parquet", schema=PLAIN)
    read: list[str] = []
    real = parquet._read
    monkeypatch.setattr(parquet, "_read", lambda path: read.append(path.name) or real(path))
    for n in range(12):
        rows = pa.table([["t"], [0], [n], [n]], schema=PLAIN)
        append(table, rows, ranges=[OffsetRange("t", 0, n, n + 1)], topics={"t": "id"})
    read.clear()
    assert table.expire(3600) == 0
    assert read == []
    log = tmp_path / "t" / "_spark_metadata"
    for version in range(4):
        os.utime(log / f"{version}.compact", (1, 1))
    assert table.expire(3600) == 0  # appends list all that was there before
    assert read == ["0.compact", "1.compact", "2.compact", "3.compact"]
    assert sorted(int(each.stem) for each in log.iterdir()) == list(range(3, 13))
    table.refresh()
    assert len(table.to_arrow()) == 12


def test_iceberg_looks_at_one_snapshot_that_stays_whatever_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables.open(tmp_path / "t", "iceberg", schema=PLAIN)
    for n in range(6):
        rows = pa.table([["t"], [0], [n], [n]], schema=PLAIN)
        append(table, rows, ranges=[OffsetRange("t", 0, n, n + 1)], topics={"t": "id"})
    looked: list[int] = []
    real = IcebergTable._paths_of
    monkeypatch.setattr(
        IcebergTable, "_paths_of", lambda self, s: looked.append(s.snapshot_id) or real(self, s)
    )
    assert table.expire(3600) == 0
    assert looked == []
    snapshots = table._table.snapshots()
    monkeypatch.setattr(
        iceberg, "datetime", SimpleNamespace(now=lambda zone: datetime.fromtimestamp(cut, zone))
    )
    cut = (snapshots[2].timestamp_ms + 1) / 1000
    assert table.expire(0) == 0  # appends have all that was there before
    assert looked == [each.snapshot_id for each in snapshots[:4]]
    assert len(table.history()) == 3
    assert len(table.to_arrow()) == 6


def test_where_another_engine_rolled_back_all_snapshots_that_stay_are_looked_at() -> None:
    def snapshot(number: int, parent: int | None) -> SimpleNamespace:
        return SimpleNamespace(snapshot_id=number, parent_snapshot_id=parent, sequence_number=number)

    line = [snapshot(1, None), snapshot(2, 1), snapshot(3, 2)]
    assert iceberg._heirs(line) == line[:1]
    assert iceberg._heirs([]) == []
    back = [*line[:2], snapshot(3, 1)]
    assert iceberg._heirs(back) == back
