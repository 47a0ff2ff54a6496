"""The memory of a process that writes a table's files does not grow with the topic, nor hold what it has no use for."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from magnetar.pipeline import tables
from magnetar.pipeline.options import parse_options
from magnetar.pipeline.plan import Plan, ask_of
from magnetar.pipeline.tables.engine import Task
from magnetar.pipeline.tables.files import DataFile
from magnetar.records.batch import PlainRecord
from tests.pipeline.writer import NOW_MS, Writer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc"),
]
MB = 1 << 20
WORK = """
import pickle, sys

written = [task() for task in pickle.load(sys.stdin.buffer)]
lines = open("/proc/self/status").read().splitlines()
peak = int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) << 10
sys.stdout.buffer.write(pickle.dumps((written, peak, "pandas" in sys.modules)))
"""
VALUES = [os.urandom(1000) for _ in range(500)]
BATCHES = 100
LEDGER_BYTES = BATCHES * 500 * 1000


class OneWorker:
    """Runs all tasks in a process of their own, as Spark does."""

    parallelism = 1
    peak = 0

    def run(self, tasks: Sequence[Task]) -> Iterator[list[DataFile]]:
        told = subprocess.run(
            [sys.executable, "-c", WORK], input=pickle.dumps(list(tasks)), capture_output=True, check=True
        )
        written, self.peak, pandas = pickle.loads(told.stdout)
        assert not pandas, "pandas takes a worker 40 MB and a third of a second, for nothing"
        yield from written


def test_the_writers_peak_does_not_grow_with_the_topic(tmp_path: Path) -> None:
    small = _peak_of(tmp_path, ledgers=1)
    large = _peak_of(tmp_path, ledgers=6)
    grown = large - small
    assert grown < LEDGER_BYTES // 2, f"{grown / MB:.0f} MB more for six times the ledgers"


def test_batches_that_wait_for_their_row_group_keep_little_spare_room(tmp_path: Path) -> None:
    options = parse_options(
        {"path": str(_topic(tmp_path, 1)), "subscribe": "t", "includeHeaders": "true"},
        streaming=False,
    )
    plan = Plan(options)
    pieces = plan.slices(plan.starts(), plan.ends())
    before = pa.total_allocated_bytes()
    batches = [batch for piece in pieces for batch in piece.read(ask_of(options))]
    kept = pa.total_allocated_bytes() - before
    assert kept < 2 * sum(batch.nbytes for batch in batches)


def _peak_of(place: Path, *, ledgers: int) -> int:
    """Return the most memory of a worker that writes a topic of so many ledgers, one task after the other."""
    worker = OneWorker()
    table = tables.open(place / f"table-{ledgers}", "parquet", layout=tables.Layout(flush=False))
    report = tables.sync("t", table, options={"path": str(_topic(place, ledgers))}, engine=worker)
    assert report.rows == ledgers * BATCHES * len(VALUES)
    return worker.peak


def _topic(place: Path, ledgers: int) -> Path:
    """Write a topic of so many ledgers; give its data directory."""
    data = place / f"data-{ledgers}"
    data.mkdir()
    writer = Writer(data)
    (partition,) = writer.topic("t")
    for _ in range(ledgers):
        for _ in range(BATCHES):
            partition.append([PlainRecord(None, value, (), NOW_MS) for value in VALUES])
        partition.expected.clear()
        partition.close_ledger()
    return writer.finish()
