"""Delta tables that Spark itself writes: appended to by a stream, and merged into in ``foreachBatch``."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.pipeline.topics import create
from tests.process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]  # all that Spark compiles, twice


def run(broker: BrokerProcess, directory: Path) -> Any:
    command = [sys.executable, "-m", "tests.pipeline.delta_job", str(broker.data), str(directory)]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode and "unresolved dependency" in done.stdout + done.stderr:
        pytest.skip(f"Delta's jars cannot be resolved:\n{done.stderr[-2000:]}")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_table_and_its_current_state_over_two_runs(broker: BrokerProcess, tmp_path: Path) -> None:
    create(broker, "changes", 1)
    chance, state, sent = random.Random(7), dict[str, str](), 0
    producer = Producer({"bootstrap.servers": broker.address})
    for _ in range(2):
        for _ in range(400):
            key = str(chance.randrange(60))
            value = f"v{sent}" if chance.random() < 0.7 else None
            producer.produce("changes", key=key, value=value)
            sent += 1
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
        assert producer.flush(20) == 0
        found = run(broker, tmp_path)
        assert found["offsets"] == list(range(sent))
        assert found["state"] == state
        assert found["batches"] == 2
