"""A process that applies changes to a table and kills itself at one step.

    upsert_victim.py TABLE FORMAT SEED STEP COUNT

Goes on where the table is, in batches, until `BATCHES` are in. ``STEP`` ``-`` is none: then somebody else does it.
"""

from __future__ import annotations

import os
import random
import signal
import sys

import pyarrow as pa

from magnetar.pipeline import tables
from magnetar.pipeline.options import TopicPartition
from magnetar.pipeline.tables import OffsetRange
from magnetar.pipeline.tables.engine import LocalEngine
from magnetar.pipeline.tables.maintenance import compact

KEYS, BATCHES, ROWS = 3000, 12, 40
LAYOUT = tables.Layout(keep_from_bytes=1)
SCHEMA = pa.schema([("id", pa.binary()), ("name", pa.string()), ("offset", pa.int64())])
CHANGES = pa.schema([*SCHEMA, ("deleted", pa.bool_())])


def batch(seed: int, number: int) -> pa.Table:
    """Return one batch of changes: the first has all keys, the others some of them, some as deletes."""
    chance = random.Random(seed * 1000 + number)
    count = KEYS if number == 0 else ROWS
    low = 0 if number == 0 else KEYS + (number - 1) * ROWS
    rows = [
        {
            "id": b"k%06d" % (at if number == 0 else chance.randrange(KEYS)),
            "name": f"n{number}-{at}",
            "offset": low + at,
            "deleted": number > 0 and chance.random() < 0.3,
        }
        for at in range(count)
    ]
    return pa.Table.from_pylist(rows, CHANGES)


def state_after(seed: int, batches: int) -> dict[bytes, tuple[str, int]]:
    """Return what a table must hold after so many batches."""
    found: dict[bytes, tuple[str, int]] = {}
    for number in range(batches):
        for row in batch(seed, number).to_pylist():
            found.pop(row["id"], None)
            if not row["deleted"]:
                found[row["id"]] = row["name"], row["offset"]
    return found


def batches_in(table: tables.Table) -> int:
    """Return how many batches a table has, by its offsets."""
    at = table.position().get(TopicPartition("t", 0), 0)
    return 0 if at == 0 else 1 + (at - KEYS) // ROWS


def go_on(table: tables.Table, seed: int) -> None:
    """Apply the batches that a table lacks."""
    while True:
        with table.writing():
            number = batches_in(table)
            if number == BATCHES:
                return
            rows = batch(seed, number)
            low = rows["offset"][0].as_py()
            ranges = [OffsetRange("t", 0, low, low + len(rows))]
            tables.apply_changes(table, rows, ["id"], ranges=ranges, topics={"t": "x"})
            if number % 4 == 3:
                compact(table, LocalEngine(1), fewest=2)


def main(where: str, kind: str, seed: str, step: str, count: str) -> None:
    table = tables.open(where, kind, schema=SCHEMA, layout=LAYOUT)
    seen = 0

    def at(name: str) -> None:
        nonlocal seen
        seen += name == step
        if name == step and seen == int(count):
            os.kill(os.getpid(), signal.SIGKILL)

    table.steps.append(at)
    print("ready", flush=True)
    go_on(table, int(seed))


if __name__ == "__main__":
    main(*sys.argv[1:])
