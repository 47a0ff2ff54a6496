"""A topic moves between files, bookies and an object store by the project's own means, equal by audit wherever it lies.

    python -m tests.cluster.moving_topic [RECORDS]

Starts a ZooKeeper, three bookies, an S3 server of moto's, a Spark, and brokers one after the other, in a directory of
its own; prints a line for each step, and how long it took. Ends with an error where an audit finds a difference.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from moto.server import ThreadedMotoServer

from magnetar.admin.cluster import ClusterAdmin
from magnetar.ledger.tiers.place import TierPlace
from magnetar.ledger.tiers.tiers import TierSettings, open_store
from magnetar.migrate.from_kafka import FromKafkaRun, WantedOfKafka
from magnetar.pipeline.audit import AuditRequest, audit
from tests.cluster.brokers import BrokerProcess
from tests.cluster.rest import ask
from tests.cluster.servers import Cluster
from tests.offload.conftest import BUCKET, KEYS
from tests.process import BrokerProcess as StandaloneProcess

PARTITIONS = 3
TOPIC = "moved"
EVERYTHING = ("partition", "offset", "key", "value", "headers", "timestamp", "timestampType")


class Journey:
    """What is moved, and how long each step took."""

    def __init__(self, records: int, table: Path, spark: Any, endpoint: str) -> None:
        self.records = records
        self._table = str(table)
        self._spark = spark
        self._endpoint = endpoint
        self._began = time.monotonic()

    def step(self, what: str) -> None:
        print(f"{what}: {time.monotonic() - self._began:.1f} s", flush=True)
        self._began = time.monotonic()

    def keep(self, data: Path) -> None:
        """Write down all records, to compare with from now on."""
        source = self._spark.read.format("magnetar").options(subscribe=TOPIC, includeHeaders="true")
        source.option("path", str(data)).load().write.parquet(self._table)

    def check(self, where: str, place: Path | str) -> None:
        """Audit the topic in a data directory, past the brokers of a cluster (zk:), or through a broker."""
        self.step(f"{where}: there")
        options, data = {"kafka.bootstrap.servers": str(place)}, None
        if isinstance(place, Path):
            options, data = {}, place
        elif place.startswith("zk:"):
            options = {"path": place}
        found = audit(self._spark, AuditRequest(TOPIC, self._table, data, options=options))
        assert found.is_equal, (where, found.counts, found.differences)
        assert found.topic_records == found.table_records == self.records, where
        assert set(found.compared) == set(EVERYTHING), where
        self.step(f"{where}: equal")

    def stored(self, prefix: str) -> int:
        """Return how many bytes the object store has below a prefix."""
        place = TierPlace("aws-s3", BUCKET, "", self._endpoint, prefix)
        return sum(each.size for each in open_store(place, TierSettings()).listed())

    def settings(self, prefix: str) -> list[str]:
        """Return settings of a broker that offloads to there."""
        return [
            "managed.ledger.offload.driver=aws-s3",
            f"managed.ledger.offload.bucket={BUCKET}",
            f"managed.ledger.offload.service.endpoint={self._endpoint}",
            f"managed.ledger.offload.prefix={prefix}",
            "remote.log.manager.task.interval.ms=100",
        ]


def travel(journey: Journey, cluster: Cluster, root: Path) -> None:
    house = BrokerProcess(cluster, root, 1, *journey.settings("house"))
    servers, past = f"127.0.0.1:{house.kafka}", f"zk://{cluster.hosts}/house"
    enough = 100 * journey.records
    segment = 1 << 20 if journey.records < 100_000 else 16 << 20
    try:
        with StandaloneProcess(root / "first", "--set", "flush=os") as first:
            admin = AdminClient({"bootstrap.servers": first.address})
            config = {"segment.bytes": str(segment), "retention.ms": "-1"}
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, config=config)])[TOPIC].result(60)
            produce(first.address, journey.records)
            journey.step("produced")
            journey.keep(root / "first")
            journey.check("files", root / "first")
            house.start()
            move(first.address, servers)
        journey.check("bookkeeper, past its broker", past)
        remote(servers, True)
        until(lambda: is_offloaded([ask(house, "GET", path) for path in paths()]))
        assert journey.stored("house") > enough
        journey.check("the object store, through the broker on bookies", servers)
        journey.check("the object store, past the broker on bookies", past)
        remote(servers, False)
        settings = [f"--set={each}" for each in (*journey.settings("last"), "flush=os")]
        with StandaloneProcess(root / "last", "--http", "127.0.0.1:0", *settings) as last:
            move(servers, last.address)
            assert journey.stored("last") == 0
            # Not past it: whoever reads so has a lease for minutes, by which ledgers stay here as well.
            journey.check("files again", last.address)
            files = ledger_files(root / "last")
            remote(last.address, True)
            until(lambda: ledger_files(root / "last") <= PARTITIONS < files)
            assert journey.stored("last") > enough
            journey.check("the object store, through the broker on files", last.address)
            admin = AdminClient({"bootstrap.servers": servers})
            admin.delete_topics([TOPIC])[TOPIC].result(120)
            until(lambda: journey.stored("house") == 0)
            move(last.address, servers)
            journey.check("bookkeeper again", servers)
    finally:
        house.end()


@contextmanager
def object_store() -> Iterator[str]:
    """Run an S3 server; its keys are in the environment from now on."""
    os.environ |= KEYS
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=BUCKET)
    yield endpoint
    server.stop()


def main(records: int) -> None:
    import logging

    from pyspark.sql import SparkSession

    from magnetar.pipeline.worker_python import worker_python

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as made, object_store() as endpoint:
        root = Path(made)
        os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": worker_python()}
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(root / "warehouse"))
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        cluster = Cluster(root / "cluster")
        try:
            cluster.start()
            journey = Journey(records, root / "table", spark, endpoint)
            travel(journey, cluster, root)
        finally:
            cluster.kill()
            spark.stop()


def produce(servers: str, records: int) -> None:
    """Write records, each with a key, a value, a header and a time of its own."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 20,
            "compression.type": "none",
            "queue.buffering.max.messages": 50_000,
        }
    )
    size = 100 if records > 100_000 else 600  # few of them shall be several ledgers of each partition, too
    for number in range(records):
        while True:
            try:
                producer.produce(
                    TOPIC, b"%d:" % number + b"v" * (size + number % 100), b"k%d" % (number % 997),
                    partition=number % PARTITIONS, timestamp=1_700_000_000_000 + number,
                    headers=[("number", b"%d" % number)] if number % 3 else None,
                )  # fmt: skip
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    assert producer.flush(300) == 0


def move(source: str, target: str) -> None:
    """Move the topic as ``magnetar migrate from-kafka --cut-over`` does."""
    with (
        ClusterAdmin(source, timeout_s=120) as there,
        ClusterAdmin(target, timeout_s=120) as here,
        FromKafkaRun(there, here, WantedOfKafka((TOPIC,))) as migration,
    ):
        migration.begin()
        migration.catch_up()
        migration.wait_until_quiet(0)
        migration.cut_over(migration.groups(), migration.acls())


def remote(servers: str, is_so: bool) -> None:
    """Have all full ledgers be offloaded, and lie there alone; or none from now on."""
    wanted = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in (("remote.storage.enable", str(is_so).lower()), ("local.retention.ms", "1"))
    ]
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=wanted)
    admin = AdminClient({"bootstrap.servers": servers})
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(60)


def paths() -> list[str]:
    return [
        f"persistent/public/default/{TOPIC}-partition-{index}/internalStats" for index in range(PARTITIONS)
    ]


def is_offloaded(stats: list[dict[str, Any]]) -> bool:
    found = [[each for each in one["ledgers"] if each["entries"]] for one in stats]
    return all(
        len(one) > 1 and all(each["properties"].get("local") == "false" for each in one[:-1]) for one in found
    )


def ledger_files(data: Path) -> int:
    return len(list(data.glob("ledgers/*/*.ledger")))


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 600
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.2)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
