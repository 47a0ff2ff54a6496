"""A change feed as Debezium writes it, against a database that saw the same changes; the seed is printed."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from magnetar.pipeline.jobs.spec import ProjectSpec, TopicSpec
from magnetar.pipeline.jobs.topic import REPLAY_HEADER, TopicTables, current_state

pytestmark = pytest.mark.spark

PARTITIONS = 3
BRONZE = (
    "topic string, partition int, offset long, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)


class Feed:
    """Partitions that records are appended to, as a producer with Kafka's keyed partitioning would."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self._next = [0] * PARTITIONS

    def send(
        self, key: bytes, value: bytes | None, headers: list[tuple[str, bytes]] | None = None
    ) -> tuple[int, int]:
        import datetime

        partition = sum(key) % PARTITIONS
        offset = self._next[partition]
        # Gaps are normal; clocks go back; neither may matter.
        self._next[partition] += random.choice((1, 1, 1, 2, 7))
        stamp = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(
            seconds=random.randrange(10**6)
        )
        self.rows.append(("t", partition, offset, stamp, key, value, headers))
        return partition, offset


def change(op: str, before: Any, after: Any, wrapped: bool) -> bytes:
    envelope = {"before": before, "after": after, "op": op, "ts_ms": 1, "source": {"table": "t"}}
    return json.dumps({"schema": {"type": "struct"}, "payload": envelope} if wrapped else envelope).encode()


def tables(**more: Any) -> TopicTables:
    topic = TopicSpec("t", **({"format": "json", "schema": "id int, name string, amount double"} | more))
    return TopicTables(ProjectSpec(Path(), Path(), {"t": topic}), topic)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_debezium_feed_gives_what_the_database_has(spark: Any, seed: int) -> None:
    random.seed(seed)
    database = sqlite3.connect(":memory:")
    database.execute("create table t (id integer primary key, name text, amount real)")
    database.row_factory = sqlite3.Row
    feed = Feed()
    for _ in range(1500):
        number = random.randrange(120)
        key = json.dumps({"id": number}).encode()
        found = database.execute("select * from t where id = ?", (number,)).fetchone()
        before = dict(found) if found else None
        wrapped = random.random() < 0.5
        if before and random.random() < 0.3:
            database.execute("delete from t where id = ?", (number,))
            if random.random() < 0.8:
                feed.send(key, change("d", before, None, wrapped))
                if random.random() < 0.5:
                    feed.send(key, None)
            else:  # a tombstone alone is a deletion too
                feed.send(key, None)
            continue
        after = {
            "id": number,
            "name": random.choice(("ä", None, "x")),
            "amount": random.choice((None, 1.5, -2e9)),
        }
        database.execute("insert or replace into t values (:id, :name, :amount)", after)
        feed.send(key, change(random.choice("ur") if before else "c", before, after, wrapped))
    # What is no change is a dead letter and changes nothing.
    for bad in (b"[]", b"{}", b'{"op": "c"}', b'{"op": "t"}', b"x", change("u", None, None, False)):
        feed.send(b'{"id": 5}', bad)
    random.shuffle(feed.rows)
    flow = tables(envelope="debezium")
    decoded = flow.decode(spark.createDataFrame(feed.rows, BRONZE).repartition(3))
    rows = flow.current(decoded).select("id", "name", "amount").collect()
    expected = database.execute("select * from t order by id").fetchall()
    assert sorted(map(tuple, rows)) == [tuple(row) for row in expected]
    dead = flow.dead_letters(decoded).collect()
    assert len(dead) == 6
    assert all(row.error and row.value for row in dead)
    assert decoded.count() == len(feed.rows)


def test_a_replayed_record_counts_at_its_first_place(spark: Any) -> None:
    feed = Feed()
    partition, first = feed.send(b"k", b'{"id": 1, "name": "old, mended"}')
    feed.rows.clear()
    feed.send(b"k", b'{"id": 1, "name": "newer"}')
    place = f"{partition}:{first}".encode()
    feed.send(b"k", b'{"id": 1, "name": "old, mended"}', [(REPLAY_HEADER, place)])
    feed.send(b"other", b'{"id": 2, "name": "mended"}', [(REPLAY_HEADER, b"0:9")])
    feed.send(b"forged", b'{"id": 3, "name": "kept"}', [(REPLAY_HEADER, b"\xff nonsense")])
    flow = tables()
    rows = flow.current(flow.decode(spark.createDataFrame(feed.rows, BRONZE))).collect()
    assert {row.id: row.name for row in rows} == {1: "newer", 2: "mended", 3: "kept"}


def test_a_key_that_moved_to_another_partition(spark: Any) -> None:
    from datetime import datetime

    decoded = spark.createDataFrame(
        [
            ("before", 0, 900, datetime(2026, 1, 1), b"k", None, "upsert", None, None, None),
            ("after", 5, 3, datetime(2026, 1, 2), b"k", None, "upsert", None, None, None),
        ],
        "name string, _partition int, _offset long, _timestamp timestamp, _key binary, "
        "_headers array<struct<key: string, value: binary>>, _op string, _schema_id int, _error string, _bytes binary",
    )
    assert [row.name for row in current_state(decoded).collect()] == ["after"]


def test_json_that_is_none(spark: Any) -> None:
    cases = {
        b'{"id": 1, "name": "a"}': None,
        b' \n{"id": 1} ': None,
        b"{}": None,
        b"[1]": "it is JSON, but not an object",
        b'[{"id": 1}]': "it is JSON, but not an object",
        b"3": "it is JSON, but not an object",
        b"null": "it is JSON, but not an object",
        b'"text"': "it is JSON, but not an object",
        b"": "it is not JSON",
        b'{"id": 1': "it is not JSON",
        b'{"id": 1} {"id": 2}': "it is not JSON",
        b'{"id": 1} trailing': "it is not JSON",
        b'{"id": "one"}': "it is JSON that does not fit the columns id int, name string, amount double",
        b'{"id": 99999999999}': "it is JSON that does not fit the columns id int, name string, amount double",
        b"\xff": "it is not UTF-8",
    }
    rows = [("t", 0, n, None, b"k", value, None) for n, value in enumerate(cases)]
    decoded = tables().decode(spark.createDataFrame(rows, BRONZE)).orderBy("_offset").collect()
    assert {value: row._error for value, row in zip(cases, decoded, strict=True)} == cases
    assert all((row._bytes is None) == (row._error is None) for row in decoded)


def test_avro_by_a_file(spark: Any, tmp_path: Path) -> None:
    schema = {"type": "record", "name": "Seat", "fields": [{"name": "row", "type": "int"}]}
    (tmp_path / "seat.avsc").write_text(json.dumps(schema))
    flow = tables(format="avro", schema="", schema_file=tmp_path / "seat.avsc")
    rows = [
        ("t", 0, n, None, b"%d" % n, value, None) for n, value in enumerate((b"\x0e", b"", None, b"\x10"))
    ]
    decoded = flow.decode(spark.createDataFrame(rows, BRONZE)).orderBy("_offset").collect()
    assert [(row.row, row._op, row._bytes) for row in decoded] == [
        (7, "upsert", None), (None, None, b""), (None, "delete", None), (8, "upsert", None),
    ]  # fmt: skip
