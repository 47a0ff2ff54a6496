"""Backups beside a running broker hold all that was acknowledged, and a maker that dies harms none of the others."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from magnetar.admin.errors import AdminError, Declined, NotThere
from magnetar.doctor import backups
from magnetar.doctor.backup_place import snapshots
from magnetar.doctor.ledgers import verify
from magnetar.ledger.formats.layout import ledger_path
from tests.crash.busy import SETTINGS, Busy, judged
from tests.process import BrokerProcess
from tests.transactions.clients import make_topic
from tests.workers.house import PARTITIONS
from tests.workers.test_transactions import committed

BACKUPS = int(os.environ.get("MAGNETAR_BACKUPS", "3"))
KILLED = 8
MAGNETAR = (str(Path(sys.executable).with_name("magnetar")),)
SMALL = ("--set", "log.segment.bytes=1048576")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with closed ledgers and an open one, whose broker is gone."""
    with BrokerProcess(tmp_path / "data", *SETTINGS, *SMALL) as broker:
        produced(broker, 1500)
    return tmp_path / "data"


def produced(broker: BrokerProcess, records: int) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 1})
    for number in range(records):
        producer.produce("t", b"%d" % number + b"x" * 3000)
        if number % 100 == 0:
            assert producer.flush(60) == 0  # in many entries, or no ledger is ever full
    assert producer.flush(60) == 0


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MAGNETAR, "backup", *map(str, words)], capture_output=True, text=True)


@pytest.mark.slow
def test_what_was_acknowledged_before_a_backup_is_in_it(tmp_path: Path) -> None:
    """Under appends, roll-over, retention, compaction, commits of a group, and topics that come and go."""
    place, acknowledged = tmp_path / "place", []
    with BrokerProcess(tmp_path / "data", *SETTINGS) as broker, Busy(broker) as busy:
        for number in range(BACKUPS):
            before = len(busy.acknowledged()), sum(busy.acknowledged().values())
            while sum(busy.acknowledged().values()) < before[1] + 3000:
                time.sleep(0.05)
            acknowledged.append(busy.acknowledged())
            backups.create(tmp_path / "data", place, f"n{number}")
    for number, ends in enumerate(acknowledged):
        assert backups.verify(place, f"n{number}").is_whole
        copy = tmp_path / f"copy-{number}"
        backups.restore(place, copy, f"n{number}")
        assert verify(copy).is_whole
        judged(copy, ends)


@pytest.mark.slow
def test_open_ledgers_are_looked_at_again_if_transactions_were_decided_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, place = tmp_path / "data", tmp_path / "place"
    with BrokerProcess(data, *SETTINGS) as broker:
        producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "t"})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("t", b"v")
        producer.commit_transaction(60)
    look_at, passes, decisions = backups._Making._look_at, [0], [3]

    def while_it_decides(self: backups._Making, ledger_id: int) -> tuple[int, bytes | None, int]:
        named = backups._named_by(data)
        if ledger_id == named.open[-1]:
            passes[0] += 1
            if passes[0] <= decisions[0]:
                with ledger_path(data, named.transactions[0]).open("ab") as file:
                    file.write(b"decided")
        return look_at(self, ledger_id)

    monkeypatch.setattr(backups._Making, "_look_at", while_it_decides)
    backups.create(data, place, "first")
    assert passes == [4]
    backups.restore(place, tmp_path / "copy", "first")
    (of_transactions,) = backups._named_by(data).transactions
    both = [ledger_path(each, of_transactions).read_bytes() for each in (data, tmp_path / "copy")]
    assert both[0] == both[1]
    decisions[0] = 1 << 30
    monkeypatch.setattr(backups, "_LOOKS", 5)
    with pytest.raises(AdminError, match="without a pause"):
        backups.create(data, place, "second")
    assert [each.name for each in snapshots(place)] == ["first"]


@pytest.mark.slow
def test_a_transaction_is_whole_in_a_backup_or_not_there(tmp_path: Path) -> None:
    place, acknowledged = tmp_path / "place", []
    with BrokerProcess(tmp_path / "data", *SETTINGS) as broker:
        make_topic(broker.address, "spread", PARTITIONS)
        with Transactions(broker) as transactions:
            for number in range(BACKUPS):
                transactions.until_more(50)
                acknowledged.append(transactions.count)
                backups.create(tmp_path / "data", place, f"n{number}")
    for number, count in enumerate(acknowledged):
        copy = tmp_path / f"copy-{number}"
        backups.restore(place, copy, f"n{number}")
        with BrokerProcess(copy, *SETTINGS) as broker:
            transactional(broker).init_transactions(60)  # ends what the copy has open
            found = committed(broker.address, "spread")
        assert all(values == found[0] for values in found), "a transaction is in some partitions alone"
        assert len(found[0]) >= count
        assert [int(value) for value in found[0]] == list(range(len(found[0])))


def transactional(broker: BrokerProcess) -> Producer:
    return Producer({"bootstrap.servers": broker.address, "transactional.id": "spread", "linger.ms": 0})


class Transactions:
    """One transaction after the other, each with its number in all partitions, without a pause."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.count = 0
        self._ends = False
        self._producer = transactional(broker)
        self._thread = threading.Thread(target=self._go)

    def _go(self) -> None:
        self._producer.init_transactions(60)
        while not self._ends:
            self._producer.begin_transaction()
            for partition in range(PARTITIONS):
                self._producer.produce("spread", b"%d" % self.count, partition=partition)
            self._producer.commit_transaction(60)
            self.count += 1

    def until_more(self, more: int) -> None:
        wanted = self.count + more
        while self.count < wanted:
            assert self._thread.is_alive()
            time.sleep(0.01)

    def __enter__(self) -> Transactions:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends = True
        self._thread.join()


@pytest.mark.slow
def test_a_closed_ledger_is_copied_once(data: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    first = backups.create(data, place, "first")
    assert first.copied_bytes <= first.bytes
    second = backups.create(data, place, "second")
    assert second.bytes == first.bytes
    assert second.copied_bytes < first.bytes / 2  # the open ledger alone
    assert [each.name for each in snapshots(place)] == ["first", "second"]
    backups.restore(place, tmp_path / "again", "first")
    with BrokerProcess(tmp_path / "again", *SETTINGS) as broker:
        reader = Consumer(
            {"bootstrap.servers": broker.address, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        reader.subscribe(["t"])
        values: list[bytes] = []
        while len(values) < 1500:
            values += [each.value() or b"" for each in reader.consume(500, 0.2) if each.error() is None]
        reader.close()
    assert [int(value.rstrip(b"x")) for value in values] == list(range(1500))


@pytest.mark.slow
def test_a_maker_that_is_killed_leaves_the_last_one_whole(data: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    began = time.monotonic()
    assert command("create", place, "--data", data, "--name", "first").returncode == 0
    took_s = time.monotonic() - began
    seed = random.randrange(1 << 30)
    moments = random.Random(seed)
    for number in range(KILLED):
        for path in (place / "sealed").iterdir():
            if moments.random() < 0.5 and number % 2 and f"sealed/{path.name}" not in manifest(place):
                path.unlink()
        maker = subprocess.Popen(
            [*MAGNETAR, "backup", "create", str(place), "--data", str(data), "--name", f"n{number}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(moments.random() * took_s)
        maker.kill()
        maker.wait()
        assert backups.verify(place, "first").is_whole, seed
        for each in snapshots(place):
            assert backups.verify(place, each.name).is_whole, (seed, each.name)
    assert command("create", place, "--data", data, "--name", "last").returncode == 0
    assert backups.verify(place, "last").is_whole
    assert not list((place / "snapshots").glob(".*"))


def manifest(place: Path, name: str = "first") -> str:
    return (place / "snapshots" / name / "manifest.json").read_text()


@pytest.mark.slow
def test_damage_is_found_and_not_restored(data: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    backups.create(data, place, "first")
    stored = next((place / "sealed").glob("*.ledger"))
    whole = stored.read_bytes()
    stored.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    found = backups.verify(place)
    assert [each for each in found.damage if stored.name in each and "digest" in each]
    said = command("verify", place)
    assert (said.returncode, "is damaged" in said.stderr) == (1, True)
    with pytest.raises(AdminError, match="not what was written"):
        backups.restore(place, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    stored.unlink()
    assert [each for each in backups.verify(place).damage if "missing" in each]
    stored.write_bytes(whole)
    assert backups.verify(place).is_whole
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(Declined, match="not empty"):
        backups.restore(place, tmp_path / "taken")


@pytest.mark.slow
def test_places_that_are_foreign_newer_half_or_full_are_refused_in_words(data: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "file").touch()
    with pytest.raises(Declined, match="no place of backups"):
        backups.create(data, foreign)
    assert [each.name for each in foreign.iterdir()] == ["file"]
    with pytest.raises(NotThere, match="no place of backups"):
        snapshots(foreign)
    with pytest.raises(NotThere, match="no data directory"):
        backups.create(foreign, tmp_path / "place")
    place = tmp_path / "place"
    backups.create(data, place, "first")
    with pytest.raises(Declined, match="has a snapshot first"):
        backups.create(data, place, "first")
    for name in ("../up", ".hidden", "a/b"):
        with pytest.raises(Declined, match="cannot be called"):
            backups.create(data, place, name)
    half = place / "snapshots" / "half"
    half.mkdir()
    with pytest.raises(AdminError, match="missing or damaged"):
        snapshots(place)
    half.rmdir()
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({64 << 10}, {64 << 10})); "
    limited += "from magnetar.cli.main import main; main()"
    words = ["backup", "create", str(tmp_path / "full"), "--data", str(data)]
    full = subprocess.run([sys.executable, "-c", limited, *words], capture_output=True, text=True)
    assert full.returncode == 1
    assert "File too large" in full.stderr or "cannot be copied" in full.stderr, full.stderr
    assert snapshots(tmp_path / "full") == []
    mark = place / "magnetar-backup.json"
    mark.write_text(json.dumps({"magnetar": "backup", "format": backups.FORMAT + 1}))
    before = sorted(str(each) for each in place.rglob("*"))
    for refused in (
        lambda: backups.create(data, place, "second"),
        lambda: backups.verify(place),
        lambda: backups.restore(place, tmp_path / "again"),
    ):
        with pytest.raises(Declined, match="reads formats up to"):
            refused()
    assert sorted(str(each) for each in place.rglob("*")) == before
