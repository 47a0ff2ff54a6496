"""Spark Connect servers of somebody else: the source and whole pipelines run there, by configuration only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest
import yaml

from tests.pipeline.jobs.connect_server import ConnectServer
from tests.pipeline.jobs.test_json_pipeline import magnetar, rows, send
from tests.process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Apart from this process: one that has used Spark in the classic way refuses Connect.
READ = """
import json, sys
from pyspark.sql import SparkSession
url, path, address = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
found = []
for name, value in (("path", path), ("kafka.bootstrap.servers", address)):
    rows = spark.read.format("magnetar").option(name, value).option("subscribe", "far").load()
    first = bytes(rows.orderBy("offset").first().value).decode()
    found.append([rows.count(), rows.where("offset >= 2").count(), first])
print(json.dumps(found))
spark.stop()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with ConnectServer(tmp_path_factory.mktemp("connect")) as made:
        yield made


def test_reading(server: ConnectServer, broker: BrokerProcess) -> None:
    send(broker.address, "far", ("a", b"0"), ("b", b"1"), ("c", b"2"))
    done = subprocess.run(
        [sys.executable, "-c", READ, server.url, str(broker.data), broker.address],
        capture_output=True, text=True, check=False, env=os.environ | {"SPARK_CONNECT_MODE_ENABLED": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [[3, 1, "0"]] * 2


def test_a_pipeline(server: ConnectServer, broker: BrokerProcess, tmp_path: Path) -> None:
    send(
        broker.address,
        "teas",
        ("1", b'{"id": 1, "cups": 2}'),
        ("2", b'{"id": 2}'),
        ("3", b"{not json"),
        ("2", None),
    )
    project = tmp_path / "teas"
    magnetar("init", project, "--topic", "teas", "--data", broker.data, "--schema", "id int, cups int")
    file = project / "magnetar-pipeline.yaml"
    spec = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(spec | {"spark": {"remote": server.url}}))
    run = magnetar("run", project)
    assert (run["records"], run["dead_letters"], run["lag"]) == (4, 1, 0)
    assert sorted(row["offset"] for row in rows(project, "teas_bronze")) == list(range(4))
    current = ds.dataset(server.warehouse / "teas_current").to_table().to_pylist()
    assert [(row["id"], row["cups"]) for row in current] == [(1, 2)]
