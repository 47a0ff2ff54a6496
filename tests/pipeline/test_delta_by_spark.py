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

from magnetar.pipeline import tables
from tests.pipeline.tables.test_deleted_rows import apply, change, made, state_of
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


def test_spark_and_we_heed_the_rows_that_either_deleted(tmp_path: Path) -> None:
    where = tmp_path / "state"
    table = made(where, "delta", 3000)
    assert apply(table, [change(key, 3000 + key, deleted=key % 2 == 0) for key in range(100)]).files_marked
    command = [sys.executable, "-m", "tests.pipeline.delta_rows_job", str(where)]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=Path.cwd()
    ) as job:
        assert job.stdin is not None
        assert job.stdout is not None

        def ask(sql: str = "") -> list[tuple[bytes, str, int]]:
            assert job.stdin is not None
            assert job.stdout is not None
            job.stdin.write(f"{sql}\n")
            job.stdin.flush()
            lines = iter(job.stdout.readline, "")
            answer = next((line for line in lines if line.startswith("[")), None)
            if answer is None:
                pytest.skip("Delta's jars cannot be resolved, or Spark does not start")
            return [(key.encode(), name, at) for key, name, at in json.loads(answer)]

        before = ask()
        assert before == state_of(table.to_arrow())
        found = ask("DELETE FROM TABLE WHERE offset % 50 = 7 AND offset < 3000")
        table = tables.open(where, "delta", layout=table.layout)
        assert [each.deletes for each in table.files()] == [False] * len(table.files())
        assert state_of(table.to_arrow()) == found
        assert found == [row for row in before if row[2] % 50 != 7 or row[2] >= 3000] != before
        assert apply(table, [change(key, 4000 + key) for key in range(2000, 2060)]).files_marked
        assert ask() == state_of(table.to_arrow())
        job.stdin.close()
