"""``magnetar migrate packed-offsets`` on what KoP before 2.8 left, read by Kafka's and Pulsar's clients afterwards."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pulsar
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from magnetar.admin.errors import AdminError
from magnetar.doctor.ledgers import verify
from magnetar.doctor.ledgers_repair import repair
from magnetar.ledger.files.swap import kept_path
from magnetar.ledger.formats.layout import ledger_path
from magnetar.ledger.formats.packed import Landing
from magnetar.metadata import DirectoryLock, SqliteFile
from magnetar.migrate.migrate import Migration, drop_old, migrate
from magnetar.migrate.migrate_entries import indexed, open_old
from magnetar.migrate.migrate_ledgers import mapping_path
from tests.migrate.kop import COMMITTED, LOG, OTHER, OldCluster, kafka_entry, old_cluster, values
from tests.process import BrokerProcess

Start = Callable[..., BrokerProcess]


@pytest.fixture
def old(tmp_path: Path) -> OldCluster:
    return old_cluster(tmp_path / "data")


def test_every_record_keeps_its_place_and_every_group_its_next_record(
    old: OldCluster, start_broker: Start
) -> None:
    done = migrate(old.data)
    assert {each.log: each.next_offset for each in done.logs} == {
        log: len(records) for log, records in old.records.items() if "orders" in log
    }
    assert verify(old.data).findings == ()
    _clients_agree(old, start_broker)


def _clients_agree(old: OldCluster, start_broker: Start) -> None:
    broker = start_broker(old.data, "--pulsar", "127.0.0.1:0")
    with _consumer(broker, "scan") as consumer:
        for partition, log in enumerate((LOG, OTHER)):
            due = [(offset, each.value) for offset, each in enumerate(old.records[log])]
            assert _read(consumer, partition, 0, len(due)) == due
        low, high = consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=20)
        assert (low, high) == (0, len(old.records[LOG]))
    due_offsets = {"middle": 400, "first": 0, "next-entry": 5, "end": len(old.records[LOG])}
    for group, offset in due_offsets.items():
        with _consumer(broker, group) as consumer:
            (found,) = consumer.committed([TopicPartition("orders", 0)], timeout=20)
            assert found.offset == offset
            due = [(offset + n, each.value) for n, each in enumerate(old.records[LOG][offset : offset + 9])]
            consumer.assign([TopicPartition("orders", 0, -1000)])  # from what is committed
            assert _polled(consumer, len(due)) == due
    _appended_behind_all(old, broker)
    client = pulsar.Client(broker.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        topic = "persistent://public/default/orders-partition-0"
        message = client.subscribe(topic, "reader").receive(20_000)  # all up to entry 23:2 was acknowledged
        assert message.data() == b"23d-0"
        assert (message.message_id().ledger_id(), message.message_id().entry_id()) == (23, 3)
        with pytest.raises(pulsar.Timeout):
            client.subscribe(topic, "at-the-end").receive(300)
    finally:
        client.close()


def _appended_behind_all(old: OldCluster, broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce("orders", b"new", partition=1)
    assert producer.flush(20) == 0
    end = len(old.records[OTHER])
    with _consumer(broker, "new") as consumer:
        assert _read(consumer, 1, end - 1, 2) == [(end - 1, b"only-2"), (end, b"new")]
    new_ids = {int(path.stem, 16) for path in old.data.glob("ledgers/*/*.ledger")} - {17, 18, 23, 40}
    assert min(new_ids) > COMMITTED  # ids that were in use are never given out again


class _consumer:
    def __init__(self, broker: BrokerProcess, group: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": broker.address, "group.id": group, "auto.offset.reset": "error"}
        )

    def __enter__(self) -> Consumer:
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def _read(consumer: Consumer, partition: int, offset: int, count: int) -> list[tuple[int, bytes]]:
    consumer.assign([TopicPartition("orders", partition, offset)])
    return _polled(consumer, count)


def _polled(consumer: Consumer, count: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while len(found) < count:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None, message.error()
        found.append((message.offset(), message.value()))
    return found


def test_the_payload_stays_byte_for_byte_and_the_old_files_are_kept(old: OldCluster) -> None:
    before = {each: ledger_path(old.data, each).read_bytes() for each in (17, 23, 40, 41, 18, COMMITTED)}
    migrate(old.data)
    for ledger_id, content in before.items():
        assert kept_path(old.data, ledger_id).read_bytes() == content
    pulsar_one = before[17][before[17].index(b"\x0e\x01") :][:200]
    assert pulsar_one[:60] in ledger_path(old.data, 17).read_bytes()
    assert drop_old(old.data) == sum(map(len, before.values()))
    assert not kept_path(old.data, 17).exists()
    assert verify(old.data).findings == ()


def test_the_mapping_tells_every_entry(old: OldCluster) -> None:
    migrate(old.data)
    rows = pq.read_table(mapping_path(old.data, LOG)).to_pylist()
    offsets = {
        row["packed"] + index: row["offset"] + index for row in rows for index in range(row["messages"])
    }
    assert offsets == {each.packed: offset for offset, each in enumerate(old.records[LOG])}


def test_a_dry_run_tells_the_same_and_changes_nothing(old: OldCluster) -> None:
    before = _digest(old.data)
    told = migrate(old.data, dry_run=True)
    assert _digest(old.data) == before
    done = migrate(old.data)
    assert (told.logs, told.committed) == (done.logs, done.committed)
    assert {each.landing for each in done.committed} == {Landing.record, Landing.next_entry, Landing.end}
    again = migrate(old.data)
    assert (again.logs, again.committed) == ((), ())


def _digest(data: Path) -> dict[str, str]:
    return {
        str(path.relative_to(data)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(data.rglob("*"))
        if path.is_file() and path.name not in ("lock", "metadata.sqlite-shm", "metadata.sqlite-wal")
    }


@pytest.mark.parametrize("at", [3, 40, 700])
def test_a_damaged_entry_is_refused_with_its_position(old: OldCluster, at: int) -> None:
    path = ledger_path(old.data, 23)
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    before = _digest(old.data / "ledgers")
    with pytest.raises(AdminError, match=r"bytes 0-31|entry \d+ at byte \d+") as refused:
        migrate(old.data)
    assert str(path) in str(refused.value)
    assert _digest(old.data / "ledgers") == before


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_partition_of_one_ledger_is_not_passed_over_for_its_damage(old: OldCluster, is_gone: bool) -> None:
    migrate(old.data)
    old.topic("payments", 1)
    log = "public/default/persistent/payments-partition-0"
    old.ledger(log, 50, [(kafka_entry(v := values("p", 4)), v)])
    old.ledger(log, 51, [])
    path = ledger_path(old.data, 50)
    if is_gone:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(AdminError, match=r"is gone|entry 0 at byte 32 is damaged"):
        migrate(old.data)


def test_a_batch_that_was_written_damaged_is_refused(old: OldCluster) -> None:
    wrong = bytearray(kafka_entry(values("wrong", 4)))
    wrong[-1] ^= 1
    old.ledger(OTHER, 19, [(bytes(wrong), ())])
    with pytest.raises(AdminError, match=r"entry 0 at byte 32 cannot be migrated: record batch CRC"):
        migrate(old.data)


def test_a_broker_does_not_touch_what_has_no_index(old: OldCluster, start_broker: Start) -> None:
    before = _digest(old.data / "ledgers")
    broker = start_broker(old.data)
    with _consumer(broker, "early") as consumer, pytest.raises(Exception, match="KAFKA_STORAGE_ERROR"):
        consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=3)
    broker.kill()
    assert _digest(old.data / "ledgers") == before
    migrate(old.data)
    _clients_agree(old, start_broker)


def test_verify_names_the_command_and_repair_gives_nothing_up(old: OldCluster) -> None:
    before = _digest(old.data / "ledgers")
    report = verify(old.data)
    assert not report.is_whole
    assert any("migrate packed-offsets" in each.do for each in report.findings)
    with pytest.raises(AdminError, match="has no index"):
        repair(old.data, drop_damaged=True)
    assert _digest(old.data / "ledgers") == before
    migrate(old.data)
    assert verify(old.data).findings == ()


def test_commits_that_magnetar_kept_are_translated_too(tmp_path: Path, start_broker: Start) -> None:
    old = OldCluster(tmp_path / "data")
    old.topic("orders", 2)
    old.ledger(LOG, 17, [(kafka_entry(v := values("a", 50)), v), (kafka_entry(v := values("b", 50)), v)])
    packed = old.records[LOG][70].packed
    broker = start_broker(old.data)
    with _consumer(broker, "kept") as consumer:
        for offset in (old.records[LOG][3].packed, packed):
            consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    broker.kill()  # so that the journal is needed, too
    (told,) = migrate(old.data).committed
    assert (told.group, told.packed, told.offset, told.landing) == ("kept", packed, 70, Landing.record)
    assert verify(old.data).is_whole
    broker = start_broker(old.data)
    with _consumer(broker, "kept") as consumer:
        consumer.assign([TopicPartition("orders", 0, -1000)])
        assert _polled(consumer, 2) == [(70, b"b-20"), (71, b"b-21")]
        consumer.commit(offsets=[TopicPartition("orders", 0, 72)], asynchronous=False)
    broker.kill()
    with _consumer(start_broker(old.data), "kept") as consumer:
        (found,) = consumer.committed([TopicPartition("orders", 0)], timeout=20)
        assert found.offset == 72


def test_a_topic_of_both_kinds_is_refused(old: OldCluster) -> None:
    entry = indexed(open_old(memoryview(kafka_entry(values("new", 2)))), 0).data
    old.ledger(OTHER, 19, [(entry, ())])
    with pytest.raises(AdminError, match="with an index and ledgers without one"):
        migrate(old.data)


def test_a_running_broker_is_left_alone(old: OldCluster) -> None:
    lock = DirectoryLock(old.data)
    try:
        for dry_run in (False, True):
            with pytest.raises(AdminError, match="in use by process"):
                migrate(old.data, dry_run=dry_run)
    finally:
        lock.release()


STEPS = (("replace", os), ("fsync", os), ("put", SqliteFile), ("delete", SqliteFile))


def _killed_at(data: Path, step: int) -> None:
    """Migrate, and be killed before the given one of the steps that reach the disk."""
    left = step

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)

        return counted

    for name, owner in STEPS:
        setattr(owner, name, dying(getattr(owner, name)))
    migrate(data)
    os._exit(0)


@pytest.mark.slow
def test_killed_at_any_step_it_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    due: Migration | None = None
    outcomes: set[str] = set()
    for step in range(200):
        old = old_cluster(tmp_path / str(step) / "data")
        due = due or migrate(old_cluster(tmp_path / "whole" / "data").data, dry_run=True)
        child = multiprocessing.get_context("fork").Process(target=_killed_at, args=(old.data, step))
        child.start()
        child.join()
        resumed = migrate(old.data)
        # either nothing counted, and all was done again; or all counted
        outcomes.add("new" if resumed.logs == () else "old")
        assert resumed.logs in ((), due.logs)
        assert resumed.committed in ((), due.committed)
        assert (resumed.logs == ()) == (resumed.committed == ())
        assert verify(old.data).findings == (), step
        assert kept_path(old.data, 17).exists()
        assert pq.read_table(mapping_path(old.data, LOG)).num_rows == 15
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
    assert child.exitcode == 0
    assert outcomes == {"old", "new"}


@pytest.mark.slow
def test_the_command_reports_and_asks(old: OldCluster) -> None:
    def run(*arguments: str) -> Any:
        command = [sys.executable, "-c", "from magnetar.cli.main import main; main()"]
        command += ["migrate", "packed-offsets", "--data", str(old.data)]
        done = subprocess.run(
            [*command, *arguments, "--json"], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert run("--dry-run")["dry_run"] is True
    told = run()
    assert [each["next_offset"] for each in told["logs"]] == [len(old.records[LOG]), 3]
    assert len(told["committed"]) == 5
    assert run("--drop-old", "--yes")["freed"] > 0
