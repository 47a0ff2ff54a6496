"""``magnetar doctor`` beside brokers, on directories without one, and on machines that are not as they should be."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from magnetar.admin.broker_state import ClientsOfSoftware
from magnetar.doctor import directory, machine
from magnetar.doctor.bounded import bounded
from magnetar.doctor.client_versions import cut_off, look_at_clients
from magnetar.doctor.findings import Grade, Looked
from magnetar.doctor.ledgers import verify
from magnetar.doctor.reach import covers
from magnetar.settings.settings import Settings
from tests.cli.operator import Operator
from tests.process import BrokerProcess
from tests.security.certificates import Authority

# What depends on the machine that runs the tests.
ITS_OWN = ("clock", "memory", "descriptors", "kernel", "flush", "room", "inodes")
QUIET = tuple(word for check in ITS_OWN for word in ("--ignore", check))


def looked_at(operator: Operator, *arguments: str | Path, status: int | None = None) -> dict[str, Any]:
    ran = operator.run("doctor", "--json", *QUIET, *arguments)
    assert status is None or ran.status == status, (ran.out, ran.err)
    found: dict[str, Any] = json.loads(ran.out)
    return found


def checks(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["level"], each["check"]) for each in found["findings"]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("doctor") / "data"
    with BrokerProcess(data, "--http", "127.0.0.1:0", "--pulsar", "127.0.0.1:0") as process:
        yield process


@pytest.mark.slow
def test_a_well_broker_is_well_beside_it_and_by_its_address(broker: BrokerProcess) -> None:
    operator = Operator(broker.address)
    for way in ((), ("--data", broker.data)):
        found = looked_at(operator, *way, status=0)
        assert found["running"] is True
        assert found["findings"] == []
        assert found["level"] is None
        assert found["measured"]["health"] == "ok"
        assert found["measured"][f"advertised PLAINTEXT kafka {broker.address}"] == "reaches this broker"
        assert {"flush", "clock", "room", "ledgers", "descriptors"} <= found["measured"].keys() | found[
            "not_looked"
        ].keys()
    shown = operator.run("doctor", *QUIET)
    assert "Nothing is wrong." in shown.out
    assert not list(broker.data.glob(".doctor-*")), "the flushed file is still there"


@pytest.mark.slow
def test_clients_are_known_by_their_software_and_by_what_they_ask(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce(f"doctor-{uuid4().hex}", b"x")
    assert producer.flush(60) == 0
    from magnetar.admin.client import ask

    state: Any = ask(broker.data, "state")
    (client,) = [each for each in state.clients if "librdkafka" in each.software or "python" in each.software]
    assert client.lowest["Produce"] >= 7
    assert client.connections >= 1
    del producer


def test_an_unknown_check_is_a_mistake(broker: BrokerProcess) -> None:
    ran = Operator(broker.address).run("doctor", "--ignore", "everything")
    assert ran.status == 2
    assert "advertised" in ran.err


@pytest.mark.slow
def test_what_the_broker_says_of_itself_is_a_warning(tmp_path: Path) -> None:
    with BrokerProcess(
        tmp_path / "data",
        "--set",
        "disk.min.free.bytes=9000000000000000000",
        "--set",
        "num.network.threads=3",
    ) as broker:
        found = looked_at(Operator(broker.address), status=3)
        assert ("warning", "health") in checks(found)
        assert ("warning", "settings") in checks(found)
        assert "num.network.threads" in str(found["findings"])


@pytest.mark.slow
def test_an_address_of_another_broker_is_an_error(broker: BrokerProcess, tmp_path: Path) -> None:
    host, port = broker.host_and_port
    with BrokerProcess(
        tmp_path / "data", "--set", f"advertised.listeners=PLAINTEXT://{host}:{port}"
    ) as other:
        found = looked_at(Operator(broker.address), "--data", other.data, status=1)
        assert checks(found) == [("error", "advertised")]
        assert "something else" in found["findings"][0]["what"]


@pytest.mark.slow
def test_an_address_that_does_not_resolve_or_answer_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    for place, word in (("nowhere.invalid:9092", "resolve"), (f"127.0.0.1:{free}", "cannot be reached")):
        with BrokerProcess(
            tmp_path / uuid4().hex, "--set", f"advertised.listeners=PLAINTEXT://{place}"
        ) as other:
            found = looked_at(Operator(place), "--data", other.data, status=1)
            assert checks(found) == [("error", "advertised")]
            assert word in found["findings"][0]["what"]


@pytest.mark.slow
def test_certificates_near_their_end_and_of_other_names_are_warned_of(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).sign("broker", days=3)
    with BrokerProcess(
        tmp_path / "data",
        "--set", "listeners=SSL://127.0.0.2:0",
        "--set", f"tls.certificate.file.path={certificate}",
        "--set", f"tls.key.file.path={key}",
        kafka=None,
    ) as broker:  # fmt: skip
        found = looked_at(Operator(broker.address), "--data", broker.data, status=3)
        texts = [each["what"] for each in found["findings"] if each["check"] in ("certificates", "health")]
        assert any("ends in" in text for text in texts)
        assert any("not for 127.0.0.2" in text for text in texts)


# -- without a broker


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """Return a directory in which a broker has written some records."""
    with BrokerProcess(tmp_path / "data") as process:
        producer = Producer({"bootstrap.servers": process.address})
        for _ in range(100):
            producer.produce("stopped", b"x" * 1000)
        assert producer.flush(60) == 0
    return tmp_path / "data"


@pytest.mark.slow
def test_without_a_broker_the_directory_is_looked_at(stopped: Path) -> None:
    found = looked_at(Operator("127.0.0.1:1"), "--data", stopped, status=0)
    assert found["running"] is False
    assert "no broker serves" in found["not_looked"]["broker"]
    assert not found["measured"]["ledgers"].startswith("0 bytes")


@pytest.mark.slow
def test_damage_is_an_error(stopped: Path) -> None:
    file = max(stopped.glob("ledgers/*/*"), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    found = looked_at(Operator("127.0.0.1:1"), "--data", stopped, status=1)
    assert ("error", "ledgers") in checks(found)


@pytest.mark.slow
def test_half_a_copy_is_an_error(stopped: Path) -> None:
    (stopped / "metadata.sqlite").unlink()
    found = looked_at(Operator("127.0.0.1:1"), "--data", stopped, status=1)
    assert checks(found) == [("error", "directory")]
    assert "half a copy" in found["findings"][0]["why"]


@pytest.mark.slow
def test_of_more_than_may_be_read_only_sizes_are_looked_at(stopped: Path) -> None:
    whole = verify(stopped)
    assert whole.left_out == 0
    little = verify(stopped, most_bytes=0)
    assert little.bytes == 0
    assert little.left_out >= 1
    assert little.is_whole
    (largest,) = sorted(stopped.glob("ledgers/*/*.ledger"), key=lambda path: path.stat().st_size)[-1:]
    largest.write_bytes(largest.read_bytes()[:100])
    assert not verify(stopped, most_bytes=0).is_whole


def test_a_settings_file_is_looked_at_before_the_start(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(f"log.dirs={tmp_path / 'new'}\nlisteners=PLAINTEXT://127.0.0.1:{port}\nfoo.bar=1\n")
        found = looked_at(Operator("127.0.0.1:1"), "--config", file, status=1)
    assert ("error", "ports") in checks(found)
    assert ("warning", "settings") in checks(found)
    assert "foo.bar" in str(found["findings"])
    file.write_text("log.retention.hours=soon\n")
    assert Operator("127.0.0.1:1").run("doctor", "--config", file).status == 2


# -- parts


def test_a_machine_with_little_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "sys/net/core/somaxconn": "10", "sys/fs/aio-nr": "65000", "sys/fs/aio-max-nr": "65536",
        "sys/vm/dirty_ratio": "80", "sys/vm/overcommit_memory": "2", "7/status": "VmSwap:\t  900 kB\n",
        "meminfo": "MemTotal:  100000 kB\nMemAvailable:  2000 kB\n",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(machine, "clock_state", lambda: (True, 4.0))
    state: Any = SimpleNamespace(pid=7, descriptors=90, descriptor_limit=100, memory_limit_bytes=None)
    looked = Looked()
    machine.look_at_machine(looked, Settings(), state, tmp_path)
    texts = [each.what for each in looked.advice]
    for word in ("100 file descriptors", "somaxconn", "aio-max-nr", "dirty_ratio", "overcommit", "memory are available",
                 "memory.requests.bytes", "swapped out", "off by 4.0 s"):  # fmt: skip
        assert any(word in text for text in texts), word
    assert len(texts) == 9
    monkeypatch.setattr(machine, "clock_state", lambda: (False, 16.0))
    looked = Looked()
    machine.look_at_machine(looked, Settings(), state, tmp_path)
    assert any("not synchronized" in each.what for each in looked.advice)


def test_a_slow_disk_and_a_full_one_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from magnetar.ledger.room import Space

    monkeypatch.setattr(directory, "flush_times", lambda folder: [0.5] * 3)
    monkeypatch.setattr(directory, "space_of", lambda folder: Space(1 << 30, 1 << 20, 1000, 900))
    looked = Looked()
    directory.look_at_directory(looked, tmp_path, Settings(), running=False)
    assert {(each.level, each.check) for each in looked.advice} == {
        (Grade.warning, "flush"),
        (Grade.error, "room"),
    }


def test_a_disk_that_hangs_is_told_of_in_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(directory, "flush_times", lambda folder: hangs.wait() and [])
    monkeypatch.setattr(directory, "_HANGS_S", 0.1)
    looked = Looked()
    directory.look_at_directory(looked, tmp_path, Settings(), running=False)
    hangs.set()
    assert (Grade.error, "flush") in [(each.level, each.check) for each in looked.advice]


def test_bounded_work_gives_its_value_its_error_or_a_timeout() -> None:
    assert bounded(60, lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        bounded(60, lambda: 1 // 0)
    with pytest.raises(TimeoutError):
        bounded(0.01, threading.Event().wait)


def test_clients_that_are_too_old_are_named() -> None:
    old = ClientsOfSoftware(
        "kafka", "apache-kafka-java", "2.0.1", 3, {"Produce": 6, "Fetch": 8, "JoinGroup": 9}
    )
    looked = Looked()
    look_at_clients(looked, [old, ClientsOfSoftware("kafka", "librdkafka", "2.8.0", 1, {"Produce": 9})])
    (found,) = looked.advice
    assert "apache-kafka-java 2.0.1" in found.what
    assert found.what.count("zstd") == 2
    assert "group.instance.id" not in found.what
    assert list(cut_off([old], {"Produce": 3, "Fetch": 9, "JoinGroup": 0})) == [(old, "Fetch", 8, 9)]
    assert list(cut_off([old])) == []


@pytest.mark.parametrize(
    ("host", "is_covered"),
    [
        ("a.example", True), ("A.Example.", True), ("b.wild.example", True), ("wild.example", False),
        ("c.b.wild.example", False), ("10.0.0.1", True), ("10.0.0.2", False), ("example", False),
    ],
)  # fmt: skip
def test_names_of_certificates(host: str, is_covered: bool) -> None:
    assert covers(host, ["a.example", "*.wild.example"], ["10.0.0.1"]) is is_covered
