"""What a few changed rows cost a table of many keys: processor time and bytes of two checkouts, in turn.

    python -m benchmarks.upsert_costs BEFORE AFTER [--keys 2000000] [--turns 3]

Each is a checkout with its own ``.venv``. A process of each fills a table of its own in every format, and then waits;
a turn is one batch of 1 changed row, and one of 1,000, in each, and every turn another begins. Printed are the least
milliseconds of user and system time, in all threads, and the most bytes that a turn wrote.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

FORMATS = ("parquet", "delta", "iceberg")
SIZES = (1, 1000)

_SIDE = """
import json, random, sys, time
from pathlib import Path
import pyarrow as pa
from magnetar.pipeline import tables
kind, place, keys = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
columns = pa.schema([("id", pa.binary()), ("name", pa.string()), ("offset", pa.int64())])
table = tables.open(place, kind, schema=columns)
chance, at = random.Random(1), 0
def change(ids):
    global at
    rows = {"id": [b"key-%09d" % i for i in ids], "name": [f"name of {i} at {at}" for i in ids]}
    rows["offset"] = list(range(at, at + len(ids)))
    at += len(ids)
    batch = pa.Table.from_pydict(rows, columns)
    before, began = sizes(), time.process_time()
    with table.writing():
        tables.apply_changes(table, batch, ["id"])
    took = time.process_time() - began
    return took * 1000, sum(size for name, size in sizes().items() if name not in before)
def sizes():
    return {str(each): each.stat().st_size for each in place.rglob("*") if each.is_file()}
order = list(range(keys))
chance.shuffle(order)
print(json.dumps(change(order)), flush=True)
for line in sys.stdin:
    print(json.dumps(change(chance.sample(range(keys), int(line)))), flush=True)
"""


class Side:
    """One checkout's process."""

    def __init__(self, checkout: Path, kind: str, place: Path, keys: int) -> None:
        command = [str(checkout / ".venv/bin/python"), "-c", _SIDE, kind, str(place), str(keys)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def ask(self, rows: int) -> tuple[float, int]:
        """Have rows changed; return the milliseconds and bytes that it took."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{rows}\n")
        self._process.stdin.flush()
        return self.answer()

    def answer(self) -> tuple[float, int]:
        """Return what the process says next."""
        assert self._process.stdout is not None
        took, size = json.loads(self._process.stdout.readline())
        return took, size

    def end(self) -> None:
        """Have the process end."""
        self._process.communicate()


def main() -> None:
    """Print a line for each format, size of a batch, and checkout."""
    parser = argparse.ArgumentParser(prog="upsert_costs", description=__doc__.split("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    for kind in FORMATS:
        with tempfile.TemporaryDirectory() as place:
            sides = {
                name: Side(checkout.absolute(), kind, Path(place) / name / "t", given.keys)
                for name, checkout in (("before", given.before), ("after", given.after))
            }
            found: dict[tuple[int, str], list[tuple[float, int]]] = {}
            for turn in range(given.turns):
                for rows in SIZES:
                    order = list(sides)
                    for name in order[turn % 2 :] + order[: turn % 2]:
                        found.setdefault((rows, name), []).append(sides[name].ask(rows))
            for side in sides.values():
                side.end()
        for (rows, name), turns in found.items():
            least, most = min(took for took, _ in turns), max(size for _, size in turns)
            print(
                f"{kind:8} {rows:5} rows {name:7} {least:7.1f} ms {most:11,} bytes",
                file=sys.stdout,
                flush=True,
            )


if __name__ == "__main__":
    main()
