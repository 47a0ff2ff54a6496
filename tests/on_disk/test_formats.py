"""Data directories of every format there ever was: opened, read and raised; and newer ones, refused with no harm."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pulsar
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from magnetar.logs.storage.upgrading import upgrade
from magnetar.metadata import MemoryStore, MetadataCorrupt, NewerFormat, Put, SqliteFile
from magnetar.metadata.formats import FORMAT, FORMAT_PATH, HISTORY, format_of, with_format
from magnetar.metadata.ops import MUST_NOT_EXIST
from tests.on_disk.write import COMPACTED, DONE, HERE, OPEN, OPTIONS, PLAIN, PULSAR
from tests.process import BrokerDidNotStart, BrokerProcess
from tests.waiting import until

# Archives only grow older: nothing in them may expire.
FOR_EVER = (
    "--set", "log.retention.ms=-1", "--set", "offsets.retention.minutes=2147483647",
    "--set", "log.flush.interval.messages=1",
)  # fmt: skip
ARCHIVES = sorted(HERE.glob("format-*.tar.xz"))


def unpacked(archive: Path, to: Path) -> Path:
    with tarfile.open(archive) as file:
        file.extraction_filter = getattr(tarfile, "data_filter", None)  # 3.11.4 and newer
        file.extractall(to)
    return to / "data"


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpacked(request.param, tmp_path)


@pytest.fixture
def broker(data: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(data, *OPTIONS, *FOR_EVER) as process:
        yield process


def values(broker: BrokerProcess, topic: str, partitions: int = 1) -> list[bytes]:
    """Return what a reader of committed records gets, to the end of the topic."""
    consumer = Consumer(
        {"bootstrap.servers": broker.address, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    found: list[bytes] = []
    ended: set[int | None] = set()

    def done() -> bool:
        message = consumer.poll(0.2)
        if message is None:
            return False
        error = message.error()
        if error is None:
            found.append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        return len(ended) == partitions

    until(done, 0)
    consumer.close()
    return found


def test_every_format_has_its_archive() -> None:
    assert [path.name for path in ARCHIVES] == [f"format-{number}.tar.xz" for number in range(FORMAT + 1)]
    assert sorted(HISTORY) == list(range(FORMAT + 1))


@pytest.mark.slow
def test_what_clients_left_is_there(broker: BrokerProcess) -> None:
    assert sorted(values(broker, PLAIN, 3)) == sorted(b"value %d" % number for number in range(300))
    assert values(broker, DONE) == [b"committed", b"committed"]
    assert values(broker, COMPACTED)[-5:] == [b"value %d" % number for number in range(15, 20)]
    until(lambda: values(broker, OPEN) == [])  # its transaction is given up: its time is long over
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
    committed = consumer.committed([TopicPartition(PLAIN, each) for each in range(3)], timeout=60)
    assert [each.offset for each in committed] == [10, 11, 12]
    consumer.close()
    admin = AdminClient({"bootstrap.servers": broker.address})
    wanted = ConfigResource("topic", PLAIN), ConfigResource("topic", DONE)
    found = [future.result(60) for future in admin.describe_configs(list(wanted)).values()]
    assert found[0]["max.message.bytes"].value == "123456"
    assert found[1]["retention.bytes"].value == "1000000"


@pytest.mark.slow
def test_subscriptions_go_on(broker: BrokerProcess) -> None:
    client = pulsar.Client(broker.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(PULSAR, "s", pulsar.ConsumerType.Shared, schema=pulsar.schema.StringSchema())
    received = [consumer.receive(60_000) for _ in range(5)]
    assert [message.value() for message in received] == [f"message {number}" for number in range(0, 10, 2)]
    client.close()
    root = f"http://{broker.served['http'][0].removeprefix('http://')}/admin/v2"
    assert httpx.get(f"{root}/schemas/public/default/{PULSAR}/schema").json()["type"] == "STRING"


@pytest.mark.slow
def test_clients_write_on(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "t-done"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(DONE, b"later")
    producer.commit_transaction(60)
    assert values(broker, DONE) == [b"committed", b"committed", b"later"]


@pytest.mark.slow
def test_it_has_this_releases_format_afterwards(data: Path) -> None:
    with BrokerProcess(data, *OPTIONS, *FOR_EVER) as broker:
        assert json.loads((data / "broker.json").read_text())["format"] == FORMAT
        broker.end()
    store = SqliteFile(data / "metadata.sqlite", read_only=True)
    stored = store.get(FORMAT_PATH)
    store.close()
    assert stored is not None
    assert format_of(stored.value, "") == FORMAT
    with BrokerProcess(data, *OPTIONS, *FOR_EVER) as broker:
        broker.end()
        again = [line for line in broker.log_lines() if "no older release opens it" in line]
    assert len(again) <= FORMAT, "it was raised twice"


def test_a_new_directory_is_not_raised(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.end()
        assert not [line for line in broker.log_lines() if "no older release opens it" in line]
    store = SqliteFile(tmp_path / "data" / "metadata.sqlite", read_only=True)
    stored = store.get(FORMAT_PATH)
    store.close()
    assert stored is not None
    assert [each["format"] for each in json.loads(stored.value)["history"]] == [FORMAT]


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """Return a directory that a release after this one has written."""
    data = unpacked(ARCHIVES[-1], tmp_path)
    store = SqliteFile(data / "metadata.sqlite")
    stored = store.get(FORMAT_PATH)
    assert stored is not None
    store.put(FORMAT_PATH, with_format(stored.value, FORMAT + 1, "9.9.9", "2030-01-01T00:00:00Z"))
    store.close()
    return data


def digests(data: Path) -> dict[str, str]:
    """Return what every file holds, but those that any look at SQLite's file may make."""
    return {
        str(path.relative_to(data)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(data.rglob("*"))
        if path.is_file() and path.name != "lock" and not path.name.endswith(("-wal", "-shm"))
    }


@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["alone", "workers"])
def test_a_newer_format_is_refused_and_nothing_is_changed(newer: Path, workers: tuple[str, ...]) -> None:
    before = digests(newer)
    with pytest.raises(BrokerDidNotStart, match=r"written by Magnetar 9\.9\.9") as refused:
        BrokerProcess(newer, *OPTIONS, *workers)
    assert "Install that release" in str(refused.value)
    assert f"format {FORMAT + 1}" in str(refused.value)
    assert digests(newer) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("ledger", "verify"), ("ledger", "list", f"{PLAIN}-0"), ("explain", f"{PLAIN}-0@1")]
)
def test_commands_on_a_newer_directory_say_so(newer: Path, words: tuple[str, ...]) -> None:
    command = [
        sys.executable,
        "-c",
        "from magnetar.cli.main import main; main()",
        *words,
        "--data",
        str(newer),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "written by Magnetar 9.9.9" in ended.stderr + ended.stdout


def test_spark_refuses_a_newer_directory(newer: Path) -> None:
    from magnetar.pipeline.catalog import LedgerCatalog

    with pytest.raises(Exception, match=r"9\.9\.9"):
        LedgerCatalog(newer)


def test_a_note_that_is_none_is_damage(tmp_path: Path) -> None:
    for value in (b"", b"{", b"[]", b'{"format": "1"}', b'{"format": 0}', b'{"format": true}'):
        with pytest.raises(MetadataCorrupt):
            format_of(value, "here")


async def test_brokers_of_one_cluster_raise_it_once() -> None:
    store = MemoryStore()
    await store.commit([Put("/magnetar/cluster-id", b"x", MUST_NOT_EXIST)])
    assert await upgrade(store, "here") == 0
    assert await upgrade(store, "here") == FORMAT
    stored = await store.get(FORMAT_PATH)
    assert stored is not None
    assert [each["format"] for each in json.loads(stored.value)["history"]] == list(range(1, FORMAT + 1))


async def test_a_step_comes_before_its_note(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    await store.commit([Put("/magnetar/cluster-id", b"x", MUST_NOT_EXIST)])

    async def fails(_: object) -> None:
        assert await store.get(FORMAT_PATH) is None
        raise RuntimeError("as if the process had died")

    monkeypatch.setattr("magnetar.logs.storage.upgrading.STEPS", {1: fails})
    with pytest.raises(RuntimeError):
        await upgrade(store, "here")
    assert await store.get(FORMAT_PATH) is None, "the note is there, and what it says was not done"


def test_a_damaged_file_is_damage_and_not_a_newer_format(newer: Path) -> None:
    database = sqlite3.connect(newer / "metadata.sqlite")
    database.execute("UPDATE node SET value = 'text' WHERE path = ?", (FORMAT_PATH,))
    database.commit()
    database.close()
    with pytest.raises(MetadataCorrupt):
        SqliteFile(newer / "metadata.sqlite")


def test_one_who_reads_refuses_a_newer_file(newer: Path) -> None:
    with pytest.raises(NewerFormat, match=r"9\.9\.9"):
        SqliteFile(newer / "metadata.sqlite", read_only=True)


@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["alone", "workers"])
def test_ledgers_without_metadata_are_refused_with_nothing_changed(
    data: Path, workers: tuple[str, ...]
) -> None:
    for each in data.glob("metadata.sqlite*"):
        each.unlink()
    before = digests(data)
    with pytest.raises(BrokerDidNotStart, match="half a copy"):
        BrokerProcess(data, *OPTIONS, *workers)
    assert digests(data) == before
    assert "magnetar backup restore" in (data.parent / f"{data.name}.log").read_text()
