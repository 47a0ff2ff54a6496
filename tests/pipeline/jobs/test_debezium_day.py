"""A day of a real PostgreSQL through Debezium's engine: at its end the tables have what the database has."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer

from magnetar.pipeline.tables.listing import dataset_of
from tests.pipeline.debezium import Engine, Postgres, binaries
from tests.pipeline.jobs.test_json_pipeline import magnetar
from tests.process import BrokerProcess

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(3600),  # three pipelines, and Maven the first time
    pytest.mark.skipif(
        binaries() is None or shutil.which("mvn") is None, reason="needs PostgreSQL and Maven"
    ),
]

COLUMNS = (
    "id int, name string, price decimal(20,4), wide decimal(38,10), free string, day int, at bigint, tz timestamp, "
    "clock bigint, flag boolean, n bigint, single float, half double, doc string, key string, raw binary, "
    "list array<int>, big string, email string"
)
MAKE = """
CREATE TABLE things (id int PRIMARY KEY, name text, price numeric(20,4), wide numeric(38,10), free numeric,
  day date, at timestamp, tz timestamptz, clock time, flag boolean, n int, single real, half double precision,
  doc jsonb, key uuid, raw bytea, list int[], big text);
ALTER TABLE things REPLICA IDENTITY FULL;
ALTER TABLE things ALTER big SET STORAGE EXTERNAL;
CREATE TABLE emptied (id int PRIMARY KEY);
INSERT INTO things (id, name, n) SELECT i, 'thing ' || i, i FROM generate_series(1, 60) i;
INSERT INTO things VALUES
  (100, '', 9999999999999999.9999, 1234567890123456789012345678.0123456789, 1e40, '9999-12-31',
   '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999+00', '23:59:59.999999', true, 2147483647, 'Infinity',
   'NaN', '{"a": [1, null]}', '3e6ba5e1-8b1e-4d4c-9c6f-000000000001', '\\x00ff', '{1,null,-1}', repeat('x', 300000)),
  (101, 'zażółć', -0.0001, -0.0000000001, 'NaN', '0044-03-15 BC', '0044-03-15 12:00:00 BC', '0001-01-01 00:00:00+00',
   '00:00:00', false, -2147483648, '-Infinity', 5e-324, 'null', null, '', '{}', repeat('y', 300000)),
  (102, null, null, null, null, '4713-01-01 BC', '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59.999999+00', null,
   null, null, 1.5, 1.7976931348623157e308, '"x"', null, null, null, null);
INSERT INTO emptied VALUES (1), (2);
"""
BEFORE_THE_KILL = """
UPDATE things SET name = name || '!' WHERE id % 3 = 0;
DELETE FROM things WHERE id % 7 = 0;
BEGIN; UPDATE things SET name = 'never'; ROLLBACK;
BEGIN; INSERT INTO things (id, name) VALUES (200, 'a'); UPDATE things SET name = 'b' WHERE id = 200; COMMIT;
UPDATE things SET name = 'a big one' WHERE id = 100;
-- Of a date before Christ Debezium 3.6.1 takes the year after Christ into its snapshot; its changes are right.
UPDATE things SET name = name || '?' WHERE id = 101;
UPDATE things SET id = 300 WHERE id = 5;
ALTER TABLE things ADD COLUMN email text DEFAULT 'none';
INSERT INTO things (id, name, email) VALUES (201, 'later', 'a@b');
UPDATE things SET email = 'c@d' WHERE id = 102;
"""
AFTER_IT = """
ALTER TABLE things ALTER COLUMN n TYPE bigint;
UPDATE things SET n = 9223372036854775807 WHERE id = 1;
ALTER TABLE things DROP COLUMN flag;
INSERT INTO things (id, name) VALUES (202, 'without a flag');
DELETE FROM things WHERE id = 200;
INSERT INTO things (id, name) VALUES (200, 'again');
TRUNCATE emptied;
INSERT INTO things (id, name) SELECT i, 'many' FROM generate_series(1000, 1999) i;
UPDATE things SET n = id WHERE id >= 1000;
DELETE FROM things WHERE id >= 1000 AND id % 2 = 0;
INSERT INTO things (id, name) VALUES (-1, 'the end');
"""
# Dates are days, timestamps microseconds, as Debezium sends them by default.
ASK = """
SELECT json_build_object('id', id, 'name', name, 'price', price::text, 'wide', wide::text, 'free', free::text,
  'day', day - date '1970-01-01', 'at', (extract(epoch FROM at) * 1000000)::bigint,
  'tz', (extract(epoch FROM tz) * 1000000)::bigint, 'clock', (extract(epoch FROM clock) * 1000000)::bigint, 'n', n,
  'single', single::text, 'half', half::text, 'doc', doc::text, 'key', key, 'raw', encode(raw, 'hex'), 'list', list,
  'big', big, 'email', email) FROM things ORDER BY id;
"""


def until_the_end(address: str, topic: str) -> None:
    """Wait until the topic has the row that is inserted last."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "waiting", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    while (found := consumer.poll(1.0)) is None or b"the end" not in (found.value() or b""):
        assert found is None or not found.error() or found.error().retriable(), found.error()
    consumer.close()


def until_snapshot(address: str, topic: str, rows: int) -> None:
    """Wait until the topic has as many records."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "snapshot", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    while rows:
        found = consumer.poll(1.0)
        rows -= found is not None and found.error() is None
    consumer.close()


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with Postgres() as made:
        yield made


@pytest.fixture(scope="module")
def day(database: Postgres, broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Run the day, and return what the database says at its end."""
    directory = tmp_path_factory.mktemp("debezium")
    database.run(MAKE)
    engine = Engine(directory, database, broker.address, "shop")
    until_snapshot(broker.address, "shop.public.things", 63)
    database.run(BEFORE_THE_KILL)
    engine.kill()
    database.run(AFTER_IT)
    engine = Engine(directory, database, broker.address, "shop")
    until_the_end(broker.address, "shop.public.things")
    engine.close()
    return [json.loads(line) for line in database.run(ASK).splitlines()]


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a table as the database gives it."""
    found = {name: value for name, value in row.items() if not name.startswith("_")}
    found |= {name: None if found[name] is None else f"{found[name]:f}" for name in ("price", "wide")}
    found["raw"] = None if found["raw"] is None else found["raw"].hex()
    del found["flag"]
    return found


def same_number(one: str | None, other: float | None) -> bool:
    """Return whether PostgreSQL's text is this number."""
    return (
        one == other if one is None or other is None else str(float(one)) == str(other) or float(one) == other
    )


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_the_tables_have_what_the_database_has(
    day: list[Any], broker: BrokerProcess, tmp_path: Path, kind: str
) -> None:
    project = tmp_path / "project"
    magnetar(
        "init", project, "--topic", "shop.public.things", "--data", broker.data, "--schema", COLUMNS,
        "--envelope", "debezium", "--table-format", kind,
    )  # fmt: skip
    run = magnetar("run", project)
    assert run["dead_letters"] == 0
    table = dataset_of(project / "tables/shop_public_things_current").to_table()
    at = table.schema.get_field_index("tz")
    table = table.set_column(at, "tz", table["tz"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()))
    found = {row["id"]: plain(row) for row in table.to_pylist()}
    assert sorted(found) == [row["id"] for row in day]
    # PostgreSQL says nothing of the rows that a new column's default is for, until they change.
    untold = {row["id"] for row in day if row["email"] == "none" and found[row["id"]]["email"] is None}
    assert 2 in untold
    assert untold.isdisjoint((1, 200, 202))
    for wanted in ({**row, "email": None} if row["id"] in untold else {**row} for row in day):
        row = found[wanted["id"]]
        for name in ("single", "half"):
            assert same_number(wanted.pop(name), row.pop(name)), (wanted["id"], name)
        text, given = wanted.pop("free"), row.pop("free")
        # Debezium writes NAN, and 1E+40.
        assert str(text).lower() == str(given).lower() or float(text) == float(given)
        doc, had = wanted.pop("doc"), row.pop("doc")
        assert (doc and json.loads(doc)) == (had and json.loads(had))
        assert row == wanted


def test_what_empties_a_table_is_a_dead_letter(day: list[Any], broker: BrokerProcess, tmp_path: Path) -> None:
    project = tmp_path / "project"
    magnetar(
        "init", project, "--topic", "shop.public.emptied", "--data", broker.data, "--schema", "id int",
        "--envelope", "debezium",
    )  # fmt: skip
    assert magnetar("run", project)["dead_letters"] == 1
    dead = (
        dataset_of(project / "tables/shop_public_emptied_dead_letters")
        .to_table(columns=["error"])
        .to_pylist()
    )
    assert dead[0]["error"] == "Debezium's op 't' changes no row that has a key"
