"""A migration by Spark's tasks comes out as that of one process, and a killed one does no harm."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from magnetar.admin.errors import AdminError
from magnetar.doctor.ledgers import verify
from magnetar.ledger.formats.layout import HEADER_BYTES, ledger_path
from magnetar.migrate.migrate import migrate
from magnetar.migrate.migrate_ledgers import mapping_path
from tests.migrate.kop import LOG, OTHER, old_cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DIES = """
import os, signal, sys
from pathlib import Path
from pyspark.sql import SparkSession
from magnetar.migrate import migrate as module

run, left = module.run, int(sys.argv[2])

def dying(spark, tasks):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    answers = run(spark, tasks)
    if left == 0 and len(sys.argv) > 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return answers

module.run = dying
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
module.migrate(Path(sys.argv[1]), spark=spark)
"""


def twins(place: Path) -> tuple[Path, Path]:
    """Return the same data twice: its publish times are of now."""
    one = old_cluster(place / "one" / "data")
    shutil.copytree(place / "one", place / "two")
    return one.data, place / "two" / "data"


def state(data: Path) -> dict[str, Any]:
    """Return what a migration leaves: the ledgers' frames (a header may tell the time), and the mapping."""
    ledgers = {
        path.name: hashlib.sha256(path.read_bytes()[HEADER_BYTES:]).hexdigest()
        for path in sorted(data.glob("ledgers/*/*"))
        if path.stem in {ledger_path(data, each).stem for each in (17, 18, 23, 40)}
    }
    return ledgers | {log: pq.read_table(mapping_path(data, log)).to_pylist() for log in (LOG, OTHER)}


def test_by_spark_it_comes_out_as_by_one_process(spark: Any, tmp_path: Path) -> None:
    one, by_spark = twins(tmp_path)
    due = migrate(one)
    dry = migrate(by_spark, dry_run=True, spark=spark)
    assert (dry.logs, dry.committed) == (due.logs, due.committed)
    done = migrate(by_spark, spark=spark)
    assert (done.logs, done.committed, done.bytes) == (due.logs, due.committed, due.bytes)
    assert state(by_spark) == state(one)
    assert verify(by_spark).findings == ()
    assert not (by_spark / "packed-offsets" / "tasks").exists()
    assert migrate(by_spark, spark=spark).logs == ()


def test_damage_is_told_as_by_one_process(spark: Any, tmp_path: Path) -> None:
    old = old_cluster(tmp_path / "data")
    path = ledger_path(old.data, 23)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(AdminError) as alone:
        migrate(old.data)
    with pytest.raises(AdminError) as by_spark:
        migrate(old.data, spark=spark)
    assert str(by_spark.value) == str(alone.value)
    assert str(path) in str(by_spark.value)


def test_killed_in_the_middle_it_is_done_again(tmp_path: Path) -> None:
    one, old = twins(tmp_path)
    migrate(one)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    moment = random.Random(seed).choice((["1"], ["1", "after"], ["2", "after"]))
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    died = subprocess.run([sys.executable, "-c", DIES, old, *moment], env=environment, check=False)
    assert died.returncode == -signal.SIGKILL
    assert migrate(old).logs != ()
    assert state(old) == state(one)
