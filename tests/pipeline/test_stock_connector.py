"""``format("kafka")``, Spark's own connector, reads and writes topics of our broker; ours sees the same rows."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.stock_connector_job import COUNT
from tests.pipeline.topics import create
from tests.process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = Path(__file__).parents[2] / "compat" / "spark-kafka.sh"


@pytest.fixture(scope="module")
def jars() -> str:
    """The connector's jars, from Maven; where they cannot be had, the reason is in the test's report."""
    missing = [tool for tool in ("mvn", "javac", "jar") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"Spark's Kafka connector cannot be resolved: there is no {', '.join(missing)}")
    got = subprocess.run(["bash", str(SCRIPT), sys.executable], capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"Spark's Kafka connector cannot be resolved:\n{got.stderr[-2000:]}")
    return got.stdout.strip()


def test_the_stock_connector_reads_and_writes(jars: str, broker: BrokerProcess, tmp_path: Path) -> None:
    create(broker, "stock", 2)
    create(broker, "copy", 3)
    command = [
        sys.executable,
        "-m",
        "tests.pipeline.stock_connector_job",
        jars,
        broker.address,
        str(tmp_path),
    ]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    rows = [tuple(row) for row in found["rows"]]
    assert [row[:2] for row in rows] == [(p, offset) for p in range(2) for offset in range(COUNT // 2)]
    assert sorted((int(key), value, name, kind) for _, _, key, value, name, kind in rows) == [
        (i, f"v{i}", "h", 0) for i in range(COUNT)
    ]
    assert all(int(key) % 2 == partition for partition, _, key, *_ in rows)
    assert found["through magnetar"] == found["rows"]
    assert found["batches"] >= 3
    assert found["copied"] == sorted(f"v{i}" for i in range(COUNT))
