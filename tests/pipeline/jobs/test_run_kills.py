"""``magnetar pipeline run``, killed at any moment, is run again: each table has each record once.

``MAGNETAR_KILLS`` says how often it is killed (default a few); ``MAGNETAR_SEED`` chooses the moments.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from random import Random

import pytest

from magnetar.pipeline.tables.listing import dataset_of
from tests.pipeline.jobs.test_json_pipeline import MAGNETAR, magnetar, rows, send
from tests.pipeline.test_restarts import members, signal_one
from tests.process import BrokerProcess

KILLS = int(os.environ.get("MAGNETAR_KILLS", "2"))
SEED = int(os.environ.get("MAGNETAR_SEED", "0")) or Random().randrange(1, 1 << 30)
KEYS = 11
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300 + 60 * KILLS)]


def test_a_run_killed_at_random_moments_leaves_nothing_twice(broker: BrokerProcess, tmp_path: Path) -> None:
    random = Random(SEED)
    print(f"MAGNETAR_SEED={SEED} MAGNETAR_KILLS={KILLS}")
    project, topic = tmp_path / "shop", Topic(broker.address)
    topic.grow(random)
    magnetar("init", project, "--topic", "kills", "--data", broker.data, "--schema", "id int, n int")
    took = 0.0
    for number in range(KILLS):
        # The first one meets the first batch of every flow; a whole run in between leaves others to later ones.
        moment = random.uniform(0.3, 1.1) * (took or 25)
        ended = run_until(project, moment, tmp_path / f"run{number}.log")
        took = ended or took
        if number % 3 == 2:
            took = whole_run(project, topic)
        topic.grow(random)
    whole_run(project, topic)


class Topic:
    """What was sent, and so what each table must have."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.count = 0
        self.dead: set[int] = set()
        self.current: dict[bytes, int] = {}

    def grow(self, random: Random) -> None:
        """Send some hundred records more: values, the last of each key counts; tombstones; what cannot be read."""
        records: list[tuple[str | None, bytes | None]] = []
        for offset in range(self.count, self.count + random.randrange(100, 400)):
            key = str(random.randrange(KEYS))
            kind = random.randrange(10)
            if kind == 0:
                records.append((key, b"no json"))
                self.dead.add(offset)
            elif kind == 1:
                records.append((key, None))
                self.current.pop(key.encode(), None)
            else:
                records.append((key, b'{"id": %d, "n": %d}' % (offset, offset)))
                self.current[key.encode()] = offset
        send(self._address, "kills", *records)
        self.count += len(records)


def run_until(project: Path, moment: float, log: Path) -> float:
    """Begin a run and kill all of it after so many seconds; give the seconds it took if it was done before."""
    began = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            [MAGNETAR, "pipeline", "run", project, "--json"], stdout=file, stderr=file, start_new_session=True
        )
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            for pid in members(process.pid):
                signal_one(pid)
            process.wait()
            return 0.0
    assert process.returncode == 0, log.read_text()
    return time.monotonic() - began


def whole_run(project: Path, topic: Topic) -> float:
    """Run to the end, compare every table, and give the seconds."""
    began = time.monotonic()
    report = magnetar("run", project)
    took = time.monotonic() - began
    assert report["lag"] == 0, json.dumps(report)
    every = list(range(topic.count))
    bronze = dataset_of(project / "tables" / "kills_bronze")  # it keeps files that were joined for a while
    assert sorted(bronze.to_table(["offset"])["offset"].to_pylist()) == every
    assert sorted(row["_offset"] for row in rows(project, "kills_decoded")) == every
    assert sorted(row["offset"] for row in rows(project, "kills_dead_letters")) == sorted(topic.dead)
    assert {row["_key"]: row["n"] for row in rows(project, "kills_current")} == topic.current
    return took
