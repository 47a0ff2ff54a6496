"""``magnetar testing``: a broker for test suites that are not written in Python."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

RUN = [sys.executable, "-c", "from magnetar.cli.main import main; main()", "testing"]


def test_it_says_where_it_is_and_ends_with_its_input(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [*RUN, "--ready-fd", str(writing), "--set", "num.partitions=2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[writing],
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    os.close(writing)
    with open(reading) as file:
        told = json.loads(file.read())  # to its end: the descriptor is closed once the line is written
    assert told["pid"] == process.pid
    producer = Producer({"bootstrap.servers": told["bootstrap_servers"]})
    producer.produce("t", b"v")
    assert producer.flush(30) == 0
    topics = AdminClient({"bootstrap.servers": told["bootstrap_servers"]}).list_topics(timeout=30).topics
    assert len(topics["t"].partitions) == 2
    assert list(tmp_path.iterdir())
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0
    assert not list(tmp_path.iterdir()), "its directory outlived it"
    assert process.stdout is not None
    assert process.stdout.read() == b""


@pytest.mark.slow
def test_without_a_descriptor_it_says_so_on_standard_output() -> None:
    process = subprocess.Popen(RUN, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    assert told["pulsar_url"].startswith("pulsar://127.0.0.1:")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_a_wrong_setting_is_refused() -> None:
    ended = subprocess.run(
        [*RUN, "--set", "no.such=1"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert "no.such" in ended.stderr
