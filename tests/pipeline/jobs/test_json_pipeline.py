"""A topic of JSON becomes its tables, run after run, through the command as users type it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from tests.pipeline.test_checkpoints import unfinished
from tests.process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MAGNETAR = Path(sys.executable).with_name("magnetar")


def magnetar(*arguments: str | Path, status: int = 0) -> Any:
    """Run ``magnetar pipeline ... --json`` and give its value, or its error where it must fail."""
    done = subprocess.run(
        [MAGNETAR, "pipeline", *arguments, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout if status == 0 else done.stderr)


def rows(project: Path, table: str) -> list[dict[str, Any]]:
    """Return a Parquet table's rows, as one who knows nothing of Spark sees them."""
    paths = sorted((project / "tables" / table).glob("*.parquet"))
    return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def send(address: str, topic: str, *records: tuple[str | None, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
    for key, value in records:
        producer.produce(topic, key=key, value=value, headers={"from": b"\x00\xff"})
    assert producer.flush(20) == 0


def test_json_to_tables_in_two_runs(broker: BrokerProcess, tmp_path: Path) -> None:
    send(
        broker.address, "orders",
        ("1", b'{"id": 1, "what": "tea", "cups": 2}'),
        ("2", b'{"id": 2, "what": "coffee"}'),
        ("1", b'{"id": 1, "what": "more tea", "cups": 3}'),
        ("3", b"[1, 2]"),
        ("4", b"{not json"),
        ("5", b'{"id": "five"}'),
        ("6", b"\xff\xfe"),
        (None, b'{"id": 7}'),
        ("8", b'{"id": 8} and more'),
    )  # fmt: skip
    project = tmp_path / "shop"
    magnetar(
        "init",
        project,
        "--topic",
        "orders",
        "--data",
        broker.data,
        "--schema",
        "id int, what string, cups int",
    )
    flow = project / "storage" / "_checkpoints" / "orders_bronze" / "orders_bronze" / "0"
    begun = unfinished(flow, 0)  # as by a kill of an earlier run
    first = magnetar("run", project)
    assert first["records"] == 9
    assert first["lag"] == 0
    assert (flow / "offsets" / "0").exists()
    assert not begun.exists()
    assert first["dead_letters"] == 6
    bronze = rows(project, "orders_bronze")
    assert sorted(row["offset"] for row in bronze) == list(range(9))
    assert bronze[0]["headers"] == [{"key": "from", "value": b"\x00\xff"}]
    dead = {row["offset"]: (row["value"], row["error"]) for row in rows(project, "orders_dead_letters")}
    assert dead[3] == (b"[1, 2]", "it is JSON, but not an object")
    assert dead[4] == (b"{not json", "it is not JSON")
    assert dead[5][0] == b'{"id": "five"}'
    assert dead[6] == (b"\xff\xfe", "it is not UTF-8")
    assert "no key" in dead[7][1]
    assert sorted(dead) == [3, 4, 5, 6, 7, 8]
    assert {row["_key"]: row["what"] for row in rows(project, "orders_current")} == {
        b"1": "more tea",
        b"2": "coffee",
    }

    send(broker.address, "orders", ("2", None), ("9", b'{"id": 9, "what": "cake"}'))
    assert magnetar("status", project)["topics"][0]["partitions"][0]["next_offset"] == 9
    second = magnetar("run", project)
    assert (second["records"], second["dead_letters"], second["lag"]) == (2, 0, 0)
    decoded = rows(project, "orders_decoded")
    assert sorted(row["_offset"] for row in decoded) == list(range(11))
    assert {row["_key"]: row["what"] for row in rows(project, "orders_current")} == {
        b"1": "more tea",
        b"9": "cake",
    }
    report = project / "runs"
    assert (sorted(report.iterdir())[-1] / "report.html").read_text().count("orders_current") == 1
    assert (sorted(report.iterdir())[-1] / "report.png").read_bytes().startswith(b"\x89PNG")
