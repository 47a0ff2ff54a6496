"""A broker with tiered storage, with stock clients: what they see is what they saw before it went there."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pulsar
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from magnetar.ledger.tiers.place import TierPlace
from magnetar.ledger.tiers.tiers import TierSettings, open_store
from tests.offload.conftest import BUCKET, KEYS
from tests.process import BrokerProcess

SEGMENT = 1 << 20
RECORDS = 20_000
PARTITIONS = 3
ADMIN = "/admin/v2/persistent/public/default"
SPACE = "/admin/v2/namespaces/public/default"


@pytest.fixture(params=["filesystem", "aws-s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Settings of a broker."""
    if request.param == "filesystem":
        return driver(request.param, f"file.system.uri=file://{tmp_path / 'tiers'}")
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    endpoint = request.getfixturevalue("s3").meta.endpoint_url
    return driver(
        request.param,
        f"managed.ledger.offload.bucket={BUCKET}",
        f"managed.ledger.offload.prefix={tmp_path.name}",
        f"managed.ledger.offload.service.endpoint={endpoint}",
    )


def driver(name: str, *more: str) -> list[str]:
    said = (
        f"managed.ledger.offload.driver={name}",
        "managed.ledger.offload.read.buffer.size.in.bytes=65536",
        "remote.log.manager.task.interval.ms=50",
        "flush=os",
        *more,
    )
    return [
        "--pulsar",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        *(part for each in said for part in ("--set", each)),
    ]


@pytest.fixture
def broker(tmp_path: Path, where: list[str]) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", *where) as broker:
        yield broker


@pytest.fixture
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{broker.served['http'][0]}", timeout=60) as http:
        yield http


def make(broker: BrokerProcess, topic: str, **config: str) -> None:
    said = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, PARTITIONS, config={"segment.bytes": str(SEGMENT), **said})
    admin(broker).create_topics([new])[topic].result(30)


def admin(broker: BrokerProcess) -> AdminClient:
    return _admin(broker.address)


@cache
def _admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address})


def produce(broker: BrokerProcess, topic: str, records: int = RECORDS, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 5, "batch.num.messages": 100})
    for number in range(first, first + records):
        producer.poll(0)
        value = b"%08d" % number + b"v" * 400
        producer.produce(topic, value, b"k%d" % (number % 97), partition=number % PARTITIONS)
        if number % 5000 == 0:
            producer.flush()
    assert producer.flush(60) == 0


def consume(broker: BrokerProcess, topic: str, records: int = RECORDS) -> list[tuple[int, int, bytes, bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": broker.address, "group.id": f"g{time.time_ns()}", "enable.partition.eof": False}
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    found: list[tuple[int, int, bytes, bytes]] = []
    while len(found) < records:
        some = consumer.consume(1000, 30)
        assert some, f"{len(found)} of {records} came"
        for each in some:
            assert each.error() is None, each.error()
            found.append((each.partition(), each.offset(), each.key(), each.value()))
    consumer.close()
    return sorted(found)


def ledgers(http: httpx.Client, topic: str) -> list[dict[str, Any]]:
    return [
        each
        for index in range(PARTITIONS)
        for each in http.get(f"{ADMIN}/{topic}-partition-{index}/internalStats")
        .raise_for_status()
        .json()["ledgers"]
    ]


def until(is_so: Callable[[], bool], broker: BrokerProcess) -> None:
    for _ in range(1200):
        if is_so():
            return
        time.sleep(0.1)
    raise AssertionError("\n".join(broker.log_lines()[-20:]))


def local_files(broker: BrokerProcess) -> int:
    return len(list(broker.data.glob("ledgers/*/*.ledger")))


@pytest.mark.slow
def test_kafkas_topics_with_remote_storage(
    broker: BrokerProcess, http: httpx.Client, where: list[str]
) -> None:
    make(broker, "remote", remote_storage_enable="true", local_retention_ms="1")
    produce(broker, "remote")
    before = consume(broker, "remote")
    assert len(before) == RECORDS

    def is_gone() -> bool:
        full = [each for each in ledgers(http, "remote") if each["entries"] and each is not None]
        return sum(each["properties"].get("local") == "false" for each in full) == len(full) - PARTITIONS

    until(is_gone, broker)
    there = [each for each in ledgers(http, "remote") if each["offloaded"]]
    assert len(there) >= 2 * PARTITIONS
    until(lambda: local_files(broker) <= PARTITIONS + 1, broker)
    assert consume(broker, "remote") == before
    ends = offsets(broker, "remote", 0)
    mine = [each for each in there if each in ledgers_of(http, "remote", 0)]
    behind = max(int(each["properties"]["lastOffset"]) for each in mine)
    assert ends == (0, behind + 1, behind, ends[3])
    assert ends[3] > behind
    by_time = admin(broker).list_offsets({TopicPartition("remote", 0): OffsetSpec.for_timestamp(1)})
    assert next(iter(by_time.values())).result(30).offset == 0

    shown = subprocess.run(
        [
            Path(sys.executable).with_name("magnetar"),
            "ledger",
            "list",
            "remote-0",
            "--data",
            broker.data,
            "--json",
        ],
        capture_output=True,
        check=True,
        text=True,
    )
    lie = [each["lies"] for each in json.loads(shown.stdout)["ledgers"]]
    assert lie[-1] == "here"
    assert all(each.startswith(("aws-s3 ", "filesystem /")) for each in lie[:-1])
    # Retention and the end of the topic take what lies there, too.
    deleted = admin(broker).delete_records([TopicPartition("remote", 0, behind + 1)])
    next(iter(deleted.values())).result(30)
    until(lambda: not any(each["offloaded"] for each in ledgers_of(http, "remote", 0)), broker)
    admin(broker).delete_topics(["remote"])["remote"].result(30)
    until(lambda: not objects(where), broker)


def objects(where: list[str]) -> list[str]:
    """Return what a broker with these settings has in its tier."""
    said = dict(each.split("=", 1) for each in where if "=" in each)
    uri = said.get("file.system.uri")
    place = TierPlace(
        said["managed.ledger.offload.driver"],
        said.get("managed.ledger.offload.bucket", ""),
        endpoint=said.get("managed.ledger.offload.service.endpoint", ""),
        prefix=said.get("managed.ledger.offload.prefix", ""),
        path=uri.removeprefix("file://") if uri else "",
    )
    return [each.key for each in open_store(place, TierSettings()).listed()]


def ledgers_of(http: httpx.Client, topic: str, index: int) -> list[dict[str, Any]]:
    return list(
        http.get(f"{ADMIN}/{topic}-partition-{index}/internalStats").raise_for_status().json()["ledgers"]
    )


def offsets(broker: BrokerProcess, topic: str, index: int) -> tuple[int, int, int, int]:
    """Return the earliest offset, the earliest here, the latest in tiered storage, and the latest of all."""
    from magnetar.admin.cluster import ClusterAdmin
    from magnetar.admin.offsets import list_offsets

    with ClusterAdmin(broker.address) as cluster:
        low, local, tiered, high = (
            list_offsets(cluster, [(topic, index)], spot)[topic, index] for spot in (-2, -4, -5, -1)
        )
    return low, local, tiered, high


@pytest.mark.slow
def test_offload_as_pulsars_tools_ask_for_it(broker: BrokerProcess, http: httpx.Client) -> None:
    make(broker, "asked")
    produce(broker, "asked")
    before = consume(broker, "asked")
    name = "asked-partition-1"
    client = pulsar.Client(broker.pulsar_url)
    reader = client.create_reader(f"persistent://public/default/{name}", pulsar.MessageId.earliest)
    mine = [row for row in before if row[0] == 1]
    at = [reader.read_next(30_000) for _ in mine][len(mine) // 3].publish_timestamp()
    reader.seek(int(at))
    found_by_time = reader.read_next(30_000).data()
    assert http.get(f"{ADMIN}/{name}/offload").json() == {
        "status": "NOT_RUN",
        "lastError": "",
        "firstUnoffloadedMessage": None,
    }
    last = ledgers_of(http, "asked", 1)[-1]["ledgerId"]
    asked = {"ledgerId": last, "entryId": 0, "partitionIndex": 1}
    assert http.put(f"{ADMIN}/{name}/offload", json=asked).status_code == 204
    until(lambda: http.get(f"{ADMIN}/{name}/offload").json()["status"] == "SUCCESS", broker)
    assert http.get(f"{ADMIN}/{name}/offload").json()["firstUnoffloadedMessage"] == asked
    assert all(each["offloaded"] for each in ledgers_of(http, "asked", 1)[:-1])
    assert not any(each["offloaded"] for each in ledgers_of(http, "asked", 0))
    assert all(each["properties"]["local"] == "true" for each in ledgers_of(http, "asked", 1)[:-1])
    # The lag of Pulsar's: 0 lets what is there leave this disk.
    assert http.put(f"{SPACE}/offloadDeletionLagMs", json=0).status_code == 204
    until(
        lambda: all(each["properties"]["local"] == "false" for each in ledgers_of(http, "asked", 1)[:-1]),
        broker,
    )
    assert consume(broker, "asked") == before
    reader.seek(pulsar.MessageId.earliest)
    read = [reader.read_next(30_000) for _ in mine]
    assert [(each.partition_key().encode(), each.data()) for each in read] == [row[2:] for row in mine]
    reader.seek(int(at))
    assert reader.read_next(30_000).data() == found_by_time
    client.close()


@pytest.mark.slow
def test_policies_of_namespaces_and_topics(broker: BrokerProcess, http: httpx.Client) -> None:
    make(broker, "ruled")
    path = f"{ADMIN}/ruled/offloadPolicies"
    shown = http.get(path, params={"applied": "true"}).json()
    assert shown["managedLedgerOffloadThresholdInBytes"] == -1
    assert http.get(f"{SPACE}/offloadThreshold").json() == -1
    assert http.put(f"{SPACE}/offloadThreshold", json=SEGMENT).status_code == 204
    assert http.put(f"{SPACE}/offloadThresholdInSeconds", json=7200).status_code == 204
    shown = http.get(path, params={"applied": "true"}).json()
    assert shown["managedLedgerOffloadThresholdInBytes"] == SEGMENT
    assert shown["managedLedgerOffloadThresholdInSeconds"] == 7200
    own = {"managedLedgerOffloadThresholdInBytes": 0, "managedLedgerOffloadDeletionLagInMillis": -1}
    assert http.post(path, json={**own, "managedLedgerOffloadDriver": None}).status_code == 204
    assert http.get(path).json() == own
    produce(broker, "ruled")
    until(lambda: all(ledgers_of(http, "ruled", each)[0]["offloaded"] for each in range(PARTITIONS)), broker)
    assert all(each["properties"]["local"] == "true" for each in ledgers(http, "ruled") if each["offloaded"])
    assert http.delete(path).status_code == 204
    assert http.get(path).text == "" or http.get(path).json() is None
    for wrong, why in (
        ({"managedLedgerOffloadDriver": "azureblob"}, "aws-s3, S3, filesystem"),
        ({"managedLedgerOffloadDriver": "aws-s3"}, "The bucket must be specified"),
        ({"s3ManagedLedgerOffloadCredentialId": "x"}, "keys belong into the broker's settings"),
        ({"managedLedgerOffloadThresholdInBytes": "much"}, "must be a whole number"),
        ({"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": "hdfs://x/y"}, "file:///DIRECTORY"),
    ):
        for target in (path, f"{SPACE}/offloadPolicies"):
            refused = http.post(target, json=wrong)
            assert refused.status_code == 412, (wrong, refused.text)
            assert why in refused.json()["reason"]
    elsewhere = {"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": f"file://{quote('/srv/a b')}"}
    assert http.post(f"{SPACE}/offloadPolicies", json=elsewhere).status_code == 204
    assert http.get(f"{SPACE}/offloadPolicies").json() == elsewhere
    assert http.get(path, params={"applied": "true"}).json()["fileSystemURI"] == "file:///srv/a b"
    assert http.put(f"{SPACE}/offloadThreshold", json=7).status_code == 204
    assert http.get(f"{SPACE}/offloadThreshold").json() == 7
    assert http.delete(f"{SPACE}/removeOffloadPolicies").status_code == 204
    assert http.get(f"{SPACE}/offloadThreshold").json() == 7


@pytest.mark.slow
def test_kafkas_configurations_are_held_against_each_other(broker: BrokerProcess) -> None:
    for config, why in (
        (
            {"remote_storage_enable": "true", "cleanup_policy": "compact"},
            "unsupported for the compacted topics",
        ),
        (
            {"remote_storage_enable": "true", "retention_ms": "5", "local_retention_ms": "6"},
            "must not be more than",
        ),
        (
            {"remote_storage_enable": "true", "retention_bytes": "5", "local_retention_bytes": "6"},
            "must not be more",
        ),
        ({"remote_log_delete_on_disable": "true"}, "must be false"),
    ):
        with pytest.raises(Exception, match=why):
            make(broker, "wrong", **config)
    make(broker, "right", remote_storage_enable="true", retention_ms="-1", local_retention_ms="1000")
    entry = ConfigEntry("remote.log.copy.disable", "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "right", incremental_configs=[entry])
    admin(broker).incremental_alter_configs([resource])[resource].result(30)
