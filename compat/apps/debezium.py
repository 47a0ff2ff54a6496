"""Debezium's PostgreSQL connector in Kafka Connect, exactly once: rows become records, while things are killed."""

from __future__ import annotations

import json
from pathlib import Path

from waiting import same

from apps import programs, topics
from apps.connect import SETTINGS, Rest
from apps.faults import killed
from apps.flow import Flow
from apps.java import Application, plugins
from apps.postgres import Postgres
from apps.topics import until
from benchmarks.peers.server import Server, free_port

PLUGIN = ("io.debezium:debezium-connector-postgres:3.3.1.Final",)
TOPIC = "shop.public.orders"
ROWS = 20_000
MORE = """exactly.once.source.support=enabled
task.shutdown.graceful.timeout.ms=60000
"""
"""A task that does not end in time stays, with the database's slot, and the one that replaces it waits for that."""
CONNECTOR = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "exactly.once.support": "required",
    "plugin.name": "pgoutput",
    "database.hostname": "127.0.0.1",
    "database.user": "postgres",
    "database.password": "unused",
    "database.dbname": "postgres",
    "topic.prefix": "shop",
    "table.include.list": "public.orders",
    "topic.creation.default.partitions": "1",
    "topic.creation.default.replication.factor": "1",
    "snapshot.mode": "initial",
}


def postgres_rows(broker: Server, folder: Path) -> None:
    """Debezium with PostgreSQL, exactly once: Connect and the broker are killed; each row is one record, in order"""
    port = free_port()
    settings = folder / "worker.properties"
    (folder / "plugins").mkdir()
    (folder / "plugins" / "debezium").symlink_to(programs.jars(PLUGIN))
    where = f"{plugins()},{folder / 'plugins'}"
    text = SETTINGS.format(address=broker.address, port=port, plugins=where)
    settings.write_text(f"{text}{MORE}")

    def worker() -> Application:
        return Application(folder / "worker.log", "connect", settings)

    def there() -> int:
        return len(set(_rows(broker)))

    with Postgres(folder) as database:
        database.do("create table orders (id integer primary key, text varchar not null)")
        database.do(_insert(0, ROWS // 10))
        with worker() as first:
            until("the worker", lambda: Rest(port).ask("/connectors") == [])
            new = CONNECTOR | {"database.port": str(database.port)}
            Rest(port).ask("/connectors", {"name": "orders", "config": new})
            # A snapshot that is broken off is begun anew, exactly once or not: what comes after it is what counts.
            until("the snapshot", lambda: there() == ROWS // 10)
            with Flow(lambda begin, end: _write(database, begin, end), ROWS) as flow:
                until("rows after the snapshot", lambda: there() > ROWS // 8)
                lost = killed(broker, TOPIC)
                until("more rows", lambda: there() > ROWS // 4 - lost)
                first.kill()
                with worker():
                    until("yet more rows", lambda: there() > ROWS // 2 - lost)
                    lost += killed(broker, TOPIC)
                    until("all rows to be written", lambda: flow.written == ROWS)
                    database.settle()
                    until("all of them", lambda: there() >= ROWS - lost)
    found = _rows(broker)
    same(set(range(ROWS)) - set(found), set(), "rows missing")
    same(len(found), ROWS, "rows that are there, each once")
    same(found, sorted(found), "rows in order")


def _insert(begin: int, end: int) -> str:
    rows = f"generate_series({begin}, {end - 1})"
    return f"insert into orders select row, 'an order of ' || row from {rows} row"


def _write(database: Postgres, begin: int, end: int) -> None:
    if begin >= ROWS // 10:  # the first are there before the connector is
        database.send(f"{_insert(begin, end)};")


def _rows(broker: Server) -> list[int]:
    if TOPIC not in topics.names(broker.address):
        return []
    return [json.loads(each.key())["id"] for each in topics.read(broker.address, TOPIC)]
