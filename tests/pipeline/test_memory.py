"""A worker's memory does not grow with what it reads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.records.batch import Record
from tests.pipeline.writer import NOW_MS, Writer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc"),
]
MB = 1 << 20
READ = """
import sys
import magnetar.pipeline.slice_reader
from magnetar.pipeline.options import parse_options
from magnetar.pipeline.plan import Plan, ask_of

def status(name):
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name + ":"))) << 10

options = parse_options({"path": sys.argv[1], "subscribe": "t", "includeHeaders": "true"}, streaming=False)
plan = Plan(options)
pieces = plan.slices(plan.starts(), plan.ends())
before, rows = status("VmRSS"), 0
for piece in pieces:
    for batch in piece.read(ask_of(options)):
        rows += batch.num_rows
print(rows, status("VmHWM") - before, "pandas" in sys.modules)
"""


def test_a_worker_stays_small_whatever_the_topics_size(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    values = [os.urandom(1000) for _ in range(500)]
    for _ in range(3):
        for _ in range(250):
            partition.append([Record(None, value, (), NOW_MS) for value in values])
        partition.expected.clear()
        partition.close_ledger()
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.ledger"))
    assert size > 350 * MB
    told = subprocess.run(
        [sys.executable, "-c", READ, str(writer.finish())], capture_output=True, text=True, check=True
    )
    rows, grown, pandas = told.stdout.split()
    rows, grown = int(rows), int(grown)
    assert rows == 3 * 250 * 500
    assert grown < 150 * MB, f"{grown / MB:.0f} MB for {size / MB:.0f} MB of ledgers"
    assert pandas == "False", "pandas takes a worker 50 MB and a third of a second, for nothing"
