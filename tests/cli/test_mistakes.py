"""Beginners' mistakes end in words that name what was typed, and what to do about it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process import BrokerProcess
from tests.waiting import until

MAGNETAR = str(Path(sys.executable).with_name("magnetar"))


def standalone(*words: str | Path) -> tuple[int, str]:
    done = subprocess.run([MAGNETAR, "standalone", *map(str, words)], capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("--kafka", "127.0.0.1:99999"), 2, "--kafka 127.0.0.1:99999: expected HOST:PORT"),
        (("--kafka", "localhost"), 2, "--kafka localhost: expected HOST:PORT"),
        (("--pulsar", "localhost:x"), 2, "--pulsar localhost:x: expected HOST:PORT"),
        (
            ("--set", "log.retention.hours=soon"),
            2,
            "configuration log.retention.ms: Not a number of type LONG (from --set as log.retention.hours)",
        ),
        (("--set", "log.retention.ms=soon"), 2, "Not a number of type LONG (from --set)"),
    ],
)
def test_what_was_typed_is_named(tmp_path: Path, words: tuple[str, ...], status: int, says: str) -> None:
    ended, told = standalone("--data", tmp_path / "data", *words)
    assert (ended, says in told) == (status, True), told


@pytest.mark.slow
@pytest.mark.parametrize("beneath", ["", "data"])
def test_a_file_where_the_directory_should_be_is_called_one(tmp_path: Path, beneath: str) -> None:
    (tmp_path / "file").touch()
    ended, told = standalone("--data", tmp_path / "file" / beneath, "--kafka", "127.0.0.1:0")
    assert ended == 1
    assert "is a file" in told
    assert "-> Choose a directory with --data" in told


@pytest.mark.slow
def test_another_protocol_is_named_and_what_is_not_there_ends_with_1(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--pulsar", "127.0.0.1:0") as broker:
        pulsar = broker.pulsar_url.removeprefix("pulsar://")
        for address in (broker.address, pulsar):
            for first in (bytes.fromhex("16030100f1010000"), b"GET / HTTP/1.1\r\n\r\n"):
                host, _, port = address.rpartition(":")
                with socket.create_connection((host, int(port))) as client:
                    client.sendall(first)
                    assert client.recv(1) == b""
        until(lambda: "speaks Pulsar's protocol" in broker.log.read_text())
        log = broker.log.read_text()
        assert log.count("it begins as TLS does, and this listener is plaintext") == 2
        assert log.count("it begins as HTTP does, and this listener speaks Kafka's protocol") == 1
        for words in (("group", "nosuch"), ("nosuch-0",)):
            asked = [MAGNETAR, "why", *words, "--bootstrap-server", broker.address]
            done = subprocess.run(asked, capture_output=True, text=True)
            assert (done.returncode, "nosuch" in done.stdout) == (1, True), done
