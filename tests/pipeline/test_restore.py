"""A topic that was lost comes back from its table as it was: by audit, by a stock client, and by verification."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition

from magnetar.admin.errors import AdminError
from magnetar.admin.registrar import DirectoryRegistrar
from magnetar.cli.app import run_app
from magnetar.doctor.ledgers import verify
from magnetar.ledger.formats import sparse
from magnetar.ledger.formats.layout import index_path
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.pipeline.audit import AuditRequest, audit
from magnetar.pipeline.restore import Order, Restored, restore
from magnetar.pipeline.restore_ledgers import RestoredPiece, RowUnfit, write_piece
from magnetar.records.batch import PlainRecord
from magnetar.records.compression import Codec
from tests.pipeline.test_audit import rows_of, some_records
from tests.pipeline.writer import NOW_MS, Writer
from tests.process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def bronze(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of three with everything in them that a topic may have, gaps too."""
    random = Random(11)
    writer = Writer(tmp_path_factory.mktemp("before"))
    for each in writer.topic("orders", 3)[:2]:
        if each.partition == 1:
            each.next_offset = 5_000_000_000  # retention has taken what was before
            each._first = each.next_offset
        for number in range(40):
            if number % 4 == 0:  # an offset without a record, as transactions leave them
                each.append([PlainRecord(b"\0\0\0\1", b"\0\0\0\0\0\0", (), NOW_MS)], control=True)
            each.append(
                some_records(random, random.randrange(1, 80)),
                append_time=NOW_MS + number if number % 7 == 0 else None,
            )
        each.close_ledger()
    data = writer.finish()
    path = tmp_path_factory.mktemp("tables") / "bronze"
    source = spark.read.format("magnetar").option("subscribe", "orders").option("includeHeaders", "true")
    source.load(str(data)).write.parquet(str(path))
    return path


def rebuilt(spark: Any, table: Path, data: Path, **more: Any) -> Restored:
    order = Order(str(table), "orders-again", data, **({"ledger_bytes": 20_000} | more))
    return restore(spark, order, DirectoryRegistrar(data))


def written(path: Path, rows: list[dict[str, Any]], like: Path) -> Path:
    path.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, rows_of(like).schema), path / "part.parquet")
    return path


@pytest.mark.parametrize("codec", [Codec.none, Codec.zstd])
def test_a_restored_topic_is_equal_to_its_table(
    spark: Any, bronze: Path, tmp_path: Path, codec: Codec
) -> None:
    data = tmp_path / "data"
    made = rebuilt(spark, bronze, data, codec=codec)
    rows = rows_of(bronze)
    assert made.records == rows.num_rows
    assert [each.low for each in made.partitions] == [1, 5_000_000_001]
    assert all(each.ledgers > 3 for each in made.partitions)
    found = audit(spark, AuditRequest("orders-again", str(bronze), data))
    assert (found.is_equal, found.topic_records, found.not_compared) == (True, rows.num_rows, ())
    report = verify(data)
    assert report.is_whole
    assert report.findings == ()


def test_a_broker_serves_it_and_goes_on_behind_it(
    spark: Any, bronze: Path, tmp_path: Path, start_broker: Callable[..., BrokerProcess]
) -> None:
    data = tmp_path / "data"
    rebuilt(spark, bronze, data)
    expected = {
        (row["partition"], row["offset"]): (
            row["key"],
            row["value"],
            [(h["key"], h["value"]) for h in row["headers"] or ()],
            (2 if row["timestampType"] else 1, round(row["timestamp"].timestamp() * 1000)),
        )
        for row in rows_of(bronze).to_pylist()
    }
    broker = start_broker(data)
    assert consumed(broker.address, len(expected)) == expected
    through_fetch = {"kafka.bootstrap.servers": broker.address}
    assert audit(spark, AuditRequest("orders-again", str(bronze), None, options=through_fetch)).is_equal
    from confluent_kafka import Producer

    places: list[int] = []
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce("orders-again", b"new", partition=1, on_delivery=lambda _, m: places.append(m.offset()))
    producer.flush(30)
    assert places == [max(offset for partition, offset in expected if partition == 1) + 1]


def consumed(address: str, count: int) -> dict[tuple[int, int], tuple[Any, ...]]:
    """Return what a stock consumer reads from both partitions."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("orders-again", p, 0) for p in range(2)])
    found: dict[tuple[int, int], tuple[Any, ...]] = {}
    while len(found) < count:
        messages = consumer.consume(10_000, timeout=20)
        assert messages, f"{len(found)} of {count} came"
        for m in messages:
            assert m.error() is None, m.error()
            found[m.partition(), m.offset()] = m.key(), m.value(), m.headers() or [], m.timestamp()
    consumer.close()
    return found


def test_beside_a_running_broker_by_command(
    spark: Any, bronze: Path, tmp_path: Path, start_broker: Callable[..., BrokerProcess], capsys: Any
) -> None:
    data = tmp_path / "data"
    broker = start_broker(data)
    arguments = [
        "restore",
        str(bronze),
        "orders",
        "--bootstrap-server",
        broker.address,
        "--compression",
        "lz4",
    ]
    assert run_app([*arguments, "--partitions", "4", "--config", "retention.ms=1000000000000"]) == 0
    assert "EQUAL to the table" in capsys.readouterr().out
    assert run_app(["audit", "orders", str(bronze), "-b", broker.address, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["partitions"]) == 4
    # A second time there is such a topic, and nothing of it is touched.
    assert run_app(arguments) == 1
    assert "already exists" in capsys.readouterr().err
    assert run_app(["audit", "orders", str(bronze), "-b", broker.address]) == 0


def test_a_piece_without_records_becomes_a_gap(spark: Any, bronze: Path, tmp_path: Path) -> None:
    rows = [row for row in rows_of(bronze).to_pylist() if row["partition"] == 0]
    rows[-1]["offset"] = 7_000_000_000  # further than one batch can span
    table = written(tmp_path / "table", rows, bronze)
    made = rebuilt(spark, table, tmp_path / "data", ledger_bytes=5_000)
    assert made.partitions[0].high == 7_000_000_001
    assert audit(spark, AuditRequest("orders-again", str(table), tmp_path / "data")).is_equal
    assert verify(tmp_path / "data").is_whole


def test_what_no_topic_can_hold_is_refused(spark: Any, bronze: Path, tmp_path: Path) -> None:
    rows = rows_of(bronze).to_pylist()
    twice = written(tmp_path / "twice", [*rows, rows[17]], bronze)
    place = rows[17]["offset"]
    with pytest.raises(
        Exception, match=f"offset {place} of partition {rows[17]['partition']} is in the table more"
    ):
        rebuilt(spark, twice, tmp_path / "data")
    finer = [row | {"timestamp": row["timestamp"].replace(microsecond=1)} for row in rows[:5]]
    with pytest.raises(Exception, match="finer than the milliseconds"):
        rebuilt(spark, written(tmp_path / "finer", finer, bronze), tmp_path / "data")
    with pytest.raises(ValueError, match="fewer than 2 partitions"):
        rebuilt(spark, bronze, tmp_path / "data", partitions=1)
    # What failed has left no topic, and the name is free.
    assert rebuilt(spark, bronze, tmp_path / "data").records == len(rows)
    with pytest.raises(AdminError, match="already exists"):
        rebuilt(spark, bronze, tmp_path / "data")


def test_the_index_knows_the_earliest_times(
    bronze: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse, "POINT_EVERY_BYTES", 500)
    rows = rows_of(bronze).filter(pc.field("partition") == 0).sort_by("offset").combine_chunks()
    last = rows["offset"][-1].as_py()
    # What is behind the last record takes some batches without any.
    piece = RestoredPiece(0, 0, last + 10_000_000_000, 5)
    made = write_piece(tmp_path, piece, rows.to_batches(), codec=Codec.none, now_ms=NOW_MS)
    path = index_path(tmp_path, 5)
    index, _ = SparseIndex.decode(path.read_bytes(), path)
    assert len(index.positions) > 15
    for low, high, earliest in zip(
        index.offsets, [*index.offsets[1:], index.next_offset], index.earliest, strict=True
    ):
        among = (pc.field("offset") >= low) & (pc.field("offset") < high)
        times = rows.filter(among)["timestamp"].to_pylist()
        due = min((round(time.timestamp() * 1000) for time in times), default=(1 << 63) - 1)
        assert earliest == due, (low, high)
    assert made.min_timestamp == index.min_timestamp == min(index.earliest)


def test_a_task_that_fails_leaves_no_ledger(tmp_path: Path) -> None:
    columns = {
        "offset": pa.array([3, 3], pa.int64()),
        "value": pa.array([b"a", b"b"]),
        "timestamp": pa.array([0, 0], pa.timestamp("us", tz="UTC")),
        "timestampType": pa.array([0, 0], pa.int32()),
    }
    rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    with pytest.raises(RowUnfit, match="offset 3 of partition 0"):
        write_piece(tmp_path, RestoredPiece(0, 0, 9, 7), [rows], codec=Codec.none, now_ms=NOW_MS)
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []
