"""What `magnetar table sync` costs where nothing is new: processor time of two checkouts, in turn.

    python -m benchmarks.table_costs BEFORE AFTER [--turns 7]

Each is a checkout with its own ``.venv``. This one writes a topic of 1,000 records, and each checkout its own table
of every format; a turn is one command of each, and every turn another begins. Printed are the least and the median of
user and system seconds, which other work on the machine changes less than the time on the wall.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from magnetar.testing import Broker

FORMATS = ("parquet", "delta", "iceberg")
_RECORDS = 1000


def main() -> None:
    """Print a line for each format and checkout."""
    parser = argparse.ArgumentParser(prog="table_costs", description=__doc__.split("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--turns", type=int, default=7)
    given = parser.parse_args()
    sides = {"before": given.before.absolute(), "after": given.after.absolute()}
    with tempfile.TemporaryDirectory() as place, Broker(data=Path(place) / "data") as broker:
        broker.produce("t", *(f"v{number}" for number in range(_RECORDS)))
        for kind in FORMATS:
            used = _turns(sides, Path(place), kind, given.turns)
            for side, seconds in used.items():
                least, median = min(seconds), statistics.median(seconds)
                print(f"{kind:8} {side:7} least {least:.2f} s, median {median:.2f} s")


def _turns(sides: dict[str, Path], place: Path, kind: str, turns: int) -> dict[str, list[float]]:
    """Return the processor seconds of each turn, by side."""
    commands = {
        side: [
            str(root / ".venv/bin/magnetar"), "table", "sync", "t", str(place / side / kind), "--data",
            str(place / "data"), "--format", kind,
        ]
        for side, root in sides.items()
    }  # fmt: skip
    for command in commands.values():
        processor_seconds(command)
        processor_seconds(command)  # what compiles, compiles by now
    used: dict[str, list[float]] = {side: [] for side in sides}
    order = list(sides)
    for number in range(turns):
        for side in order[number % 2 :] + order[: number % 2]:
            used[side].append(processor_seconds(commands[side]))
    return used


def processor_seconds(command: Sequence[str]) -> float:
    """Run a command, and return the user and system time that it and its children took."""
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(running.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, command
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
