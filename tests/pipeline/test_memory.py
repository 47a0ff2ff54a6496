"""A worker's memory does not grow with what it reads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.pipeline.mapped import STEP_BYTES
from magnetar.pipeline.options import parse_options
from magnetar.pipeline.plan import Plan
from magnetar.records.batch import PlainRecord
from tests.pipeline.writer import NOW_MS, Writer

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
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


@pytest.mark.slow
def test_a_worker_stays_small_whatever_the_topics_size(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    values = [os.urandom(1000) for _ in range(500)]
    for _ in range(3):
        for _ in range(250):
            partition.append([PlainRecord(None, value, (), NOW_MS) for value in values])
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


def test_looking_for_the_end_of_an_open_ledger_keeps_little_of_it_in_memory(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    (partition,) = writer.topic("t")
    values = [os.urandom(1000) for _ in range(500)]
    for _ in range(3 * STEP_BYTES // 500_000):
        partition.append([PlainRecord(None, value, (), NOW_MS) for value in values])
    path = partition.close_ledger(sealed=False)
    plan = Plan(parse_options({"path": str(writer.finish()), "subscribe": "t"}, streaming=False))
    assert list(plan.ends().values()) == [partition.next_offset]
    kept = mapped_bytes(path)
    assert kept, "the plan no longer maps it: then this tells nothing"
    assert sum(kept) < STEP_BYTES // 4


def mapped_bytes(path: Path) -> list[int]:
    """Return how much of each mapping of a file lies in this process's memory."""
    found, here = [], False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            here = line.endswith(str(path))
        elif here and line.startswith("Rss:"):
            found.append(int(line.split()[1]) << 10)
    return found
