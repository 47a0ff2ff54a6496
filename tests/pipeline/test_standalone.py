"""Jobs on a cluster of Spark's own with two workers, directly and through a Connect server of the cluster's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import yaml

from magnetar.pipeline import tables
from magnetar.pipeline.worker_python import worker_python
from tests.pipeline.jobs.connect_server import ConnectServer
from tests.pipeline.jobs.test_json_pipeline import magnetar, rows, send
from tests.pipeline.standalone import Standalone
from tests.pipeline.topics import create
from tests.process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

TOPIC, RECORDS = "spread", 400
MAGNETAR = Path(sys.executable).with_name("magnetar")
JOB = """
import json, os, sys
from pyspark.sql import SparkSession
way, url, data, address, place = sys.argv[1:]
builder = SparkSession.builder.config("spark.sql.shuffle.partitions", "2")
builder = builder.remote(url) if way == "connect" else builder.master(url).config("spark.ui.enabled", "false")
spark = builder.getOrCreate()

def where(batches):
    import os, pyarrow as pa, time
    for batch in batches:
        time.sleep(0.5)  # so that each of the cluster's two cores has its share
        yield pa.RecordBatch.from_pydict({"place": [os.getcwd()], "count": [batch.num_rows]})

found = {}
for name, value in (("path", data), ("kafka.bootstrap.servers", address)):
    frame = spark.read.format("magnetar").option(name, value).option("subscribe", "spread").load()
    offsets = sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())
    shares = frame.mapInArrow(where, "place string, count long").groupBy("place").sum("count").collect()
    target = f"{place}/{name}"
    stream = spark.readStream.format("magnetar").option(name, value).option("subscribe", "spread")
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 150).load()
    query = (
        stream.selectExpr("partition", "offset", "cast(value as string) value").writeStream.format("parquet")
        .option("checkpointLocation", f"{target}-checkpoint").trigger(availableNow=True).start(target)
    )
    query.awaitTermination()
    read = spark.read.parquet(target).orderBy("partition", "offset")
    found[name] = {
        "offsets": offsets, "shares": sorted(row[1] for row in shares),
        "stream": [[row.partition, row.offset, row.value] for row in read.collect()],
    }
out = spark.read.format("magnetar").option("path", data).option("subscribe", "spread").load()
written = out.selectExpr("value", "key").write.format("magnetar").mode("append")
written.option("kafka.bootstrap.servers", address).option("topic", f"{place.rsplit('/', 1)[1]}.out").save()
print(json.dumps(found))
spark.stop()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with Standalone(tmp_path_factory.mktemp("standalone")) as made:
        yield made


@pytest.fixture(scope="module")
def topic(broker: BrokerProcess) -> list[list[Any]]:
    """Two partitions with records, and what a reader must find of them."""
    create(broker, TOPIC, 2)
    send(broker.address, TOPIC, *((f"{n}", f'{{"id": {n}}}'.encode()) for n in range(RECORDS)))
    from tests.pipeline.topics import consumed

    return [[m.partition(), m.offset(), m.value().decode()] for m in consumed(broker, TOPIC)]


def job(way: str, url: str, broker: BrokerProcess, place: Path) -> Any:
    place.mkdir()
    environment = {n: v for n, v in os.environ.items() if n not in ("SPARK_REMOTE", "SPARK_CONF_DIR")}
    environment |= {"PYSPARK_PYTHON": worker_python(), "SPARK_LOCAL_IP": "127.0.0.1"}
    if way == "connect":
        environment["SPARK_CONNECT_MODE_ENABLED"] = "1"
    command = [sys.executable, "-c", JOB, way, url, broker.data, broker.address, place]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def see(found: Any, topic: list[list[Any]]) -> None:
    for name in ("path", "kafka.bootstrap.servers"):
        assert found[name]["offsets"] == [each[:2] for each in topic], name
        assert found[name]["stream"] == topic, name
        assert sum(found[name]["shares"]) >= 2


def test_a_job_on_two_workers(
    cluster: Standalone, broker: BrokerProcess, topic: list[list[Any]], tmp_path: Path
) -> None:
    found = job("master", cluster.url, broker, tmp_path / "master")
    see(found, topic)
    from tests.pipeline.topics import consumed

    assert len(found["path"]["shares"]) == 2  # both workers read
    assert sorted(m.value().decode() for m in consumed(broker, "master.out")) == sorted(
        v for _, _, v in topic
    )


def test_a_job_through_connect(
    cluster: Standalone, broker: BrokerProcess, topic: list[list[Any]], tmp_path: Path
) -> None:
    with ConnectServer(tmp_path / "server", master=cluster.url) as server:
        see(job("connect", server.url, broker, tmp_path / "connect"), topic)


def test_tables_and_pipelines_by_command(
    cluster: Standalone, broker: BrokerProcess, topic: list[list[Any]], tmp_path: Path
) -> None:
    table = tmp_path / "lake" / "t"
    command = [
        MAGNETAR,
        "table",
        "sync",
        TOPIC,
        table,
        "--data",
        broker.data,
        "--master",
        cluster.url,
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    there = tables.open(table, create=False).to_arrow().select(["partition", "offset"]).to_pylist()
    assert sorted([row["partition"], row["offset"]] for row in there) == [each[:2] for each in topic]

    project = tmp_path / "project"
    magnetar("init", project, "--topic", TOPIC, "--data", broker.data, "--schema", "id int")
    file = project / "magnetar-pipeline.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"spark": {"master": cluster.url}}))
    run = magnetar("run", project)
    assert (run["records"], run["dead_letters"], run["lag"]) == (RECORDS, 0, 0)
    assert len(rows(project, "spread_bronze")) == RECORDS
    current = ds.dataset(project / "tables" / "spread_current").to_table()
    assert sorted(current["id"].to_pylist()) == list(range(RECORDS))
