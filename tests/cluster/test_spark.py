"""Spark reads a cluster's topics past its brokers, on a Spark cluster of two workers: rows are those of Fetch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

pytest.importorskip("pyspark")

from magnetar.pipeline.options import TopicPartition, parse_options
from magnetar.pipeline.plan import Plan
from magnetar.pipeline.port import Slice
from tests.cluster.brokers import BrokerProcess
from tests.cluster.servers import Cluster, Server, class_path, free_port, java
from tests.migrate.moving import PARTITIONS, produce, transactions

class_path()  # skips the module where BookKeeper cannot be run
pytestmark = [pytest.mark.slow, pytest.mark.spark]

RECORDS = 30_000


@pytest.fixture(scope="module")
def broker(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(cluster, tmp_path_factory.mktemp("broker"), 1, "ledger.max.entries=200")
    broker.start()
    yield broker
    broker.end()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session on a standalone Spark cluster: a master and two workers, each a process, as the executors are."""
    import pyspark
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    directory = tmp_path_factory.mktemp("spark")
    port = free_port()
    jars = [java(), "-Xmx256m", "-cp", f"{Path(pyspark.__file__).parent}/jars/*"]
    jars += ["--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_SCALA_VERSION": "2.13"}
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())]
    command = [*jars, "org.apache.spark.deploy.master.Master", *arguments]
    master = Server("Spark's master", command, port, directory / "master.log")
    workers = []
    for number in range(2):
        own, web = free_port(), free_port()
        arguments = ["--host", "127.0.0.1", "--port", str(own), "--webui-port", str(web), "--cores", "1"]
        arguments += ["--memory", "1g", "--work-dir", str(directory / f"work-{number}")]
        command = [*jars, "org.apache.spark.deploy.worker.Worker", *arguments, f"spark://127.0.0.1:{port}"]
        workers.append(Server("a worker", command, own, directory / f"worker-{number}.log"))
    for each in (master, *workers):
        each.start()
    with suppress(PySparkRuntimeError):  # no other module's tests left one in this process
        SparkSession.active().stop()
    session = (
        SparkSession.builder.master(f"spark://127.0.0.1:{port}")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.cores", "1")
        .config("spark.cores.max", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    assert session.sparkContext.master == f"spark://127.0.0.1:{port}"
    yield session
    session.stop()
    for each in (*workers, master):
        each.kill()


def slices(options: dict[str, str]) -> list[Slice]:
    plan = Plan(parse_options(options, streaming=False))
    try:
        return plan.slices(plan.starts(), plan.ends())
    finally:
        plan.close()


def test_rows_are_those_that_fetch_gives(cluster: Cluster, broker: BrokerProcess, spark: Any) -> None:
    from magnetar.pipeline.on_bookies import BookieSlice
    from magnetar.pipeline.through_fetch import FetchSlice

    address = f"127.0.0.1:{broker.kafka}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("flights", PARTITIONS)])["flights"].result(60)
    produce(address, "flights", range(RECORDS), **{"batch.num.messages": 20, "compression.type": "lz4"})
    transactions(address, "flights", 9)
    past = {"path": f"zk://{cluster.hosts}/house", "subscribe": "flights", "maxRecordsPerPartition": "1500"}
    fetched = {"kafka.bootstrap.servers": address, "subscribe": "flights"}
    planned = slices(past)
    on_bookies = [each for each in planned if isinstance(each, BookieSlice)]
    assert len(on_bookies) > 6
    assert [each for each in planned if isinstance(each, FetchSlice)], "the open ledgers are fetched"
    assert sum(each.high - each.low for each in on_bookies) > RECORDS // 2
    for which in {TopicPartition(each.topic, each.partition) for each in planned}:
        mine = [each for each in planned if each.partition == which.partition]
        assert all(one.high == other.low for one, other in pairwise(mine))
    columns = {"includeHeaders": "true"}
    hosts = spark.sparkContext.parallelize(range(8), 8).map(lambda _: os.getppid()).distinct().count()
    assert hosts == 2, "both workers have an executor"

    def rows(options: dict[str, str]) -> list[Any]:
        frame = spark.read.format("magnetar").options(**options, **columns).load()
        return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))

    expected = rows(fetched)
    assert len(expected) == RECORDS + 900
    assert rows(past) == expected
    assert rows({**past, "isolation": "read_committed"}) == rows({**fetched, "isolation": "read_committed"})
    middle = '{"flights": {"0": 1234, "1": 77, "2": 4000}}'
    part = {"startingOffsets": middle, "endingOffsets": '{"flights": {"0": 5678, "1": 78, "2": 9001}}'}
    assert rows({**past, **part}) == rows({**fetched, **part})
    # What one bookie had is read from others.
    cluster.bookies[0].kill()
    assert rows(past) == expected


def test_a_cluster_that_is_not_there_is_said(cluster: Cluster) -> None:
    for path, words in ((f"zk://{cluster.hosts}/nowhere", "knows no broker below /nowhere"),):
        with pytest.raises(Exception, match=words):
            slices({"path": path, "subscribe": "flights"})
    with pytest.raises(ValueError, match="names no ZooKeeper"):
        parse_options({"path": "zk:///house", "subscribe": "flights"}, streaming=False)
