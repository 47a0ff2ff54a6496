"""Killed at any moment, a job that is started again has written every row once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.sink_driver import values
from tests.pipeline.topics import consumed, create
from tests.process import BrokerProcess

pytestmark = pytest.mark.slow

KILLS, BATCHES = 8, 50


def start(address: str, directory: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.pipeline.sink_driver", address, str(directory), str(BATCHES)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def progress(directory: Path) -> int:
    committed = directory / "committed"
    return int(committed.read_text()) if committed.exists() else -1


def test_the_driver_killed_again_and_again(broker: BrokerProcess, tmp_path: Path) -> None:
    create(broker, "t", 3)
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    moments = random.Random(seed)
    kills = 0
    while kills < KILLS and progress(tmp_path) < BATCHES - 1:
        kills += 1
        driver = start(broker.address, tmp_path)
        # Wait until it works, not for the interpreter; then any moment will do.
        before = progress(tmp_path)
        while progress(tmp_path) == before and driver.poll() is None:
            time.sleep(0.001)
        time.sleep(moments.random() * 0.15)
        driver.kill()
        driver.communicate()
    assert kills >= 5, "it was too quick to be killed"
    driver = start(broker.address, tmp_path)
    _, complaint = driver.communicate()
    assert driver.returncode == 0, complaint.decode()
    found = Counter(message.value().decode() for message in consumed(broker, "t"))
    expected = Counter(value for batch_id in range(BATCHES) for value in values(batch_id))
    assert found == expected
    assert {path.name for path in (tmp_path / "staging" / "query").iterdir()} == {f"{BATCHES - 1}.done"}


def test_broker_and_driver_killed(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    broker = start_broker(tmp_path / "data")
    create(broker, "t", 2)
    for _ in range(3):
        driver = start(broker.address, tmp_path)
        before = progress(tmp_path)
        while progress(tmp_path) == before and driver.poll() is None:
            time.sleep(0.001)
        time.sleep(random.random() * 0.1)
        broker.kill()
        if random.random() < 0.5:
            driver.kill()
        broker = start_broker(tmp_path / "data", kafka=broker.address)
        time.sleep(0.3)
        driver.kill()
        driver.communicate()
    driver = start(broker.address, tmp_path)
    _, complaint = driver.communicate()
    assert driver.returncode == 0, complaint.decode()
    found = Counter(message.value().decode() for message in consumed(broker, "t"))
    assert found == Counter(value for batch_id in range(BATCHES) for value in values(batch_id))
