"""What a compaction costs per entry of one record: two checkouts against each other, in turn, in processor time.

    python -m benchmarks.compaction_entries BEFORE AFTER [--turns 9] [--entries 20000] [--bar 1.03]

Each is a checkout. A process of each does both passes over the same entries, in plain Python and in machine code,
of format ``kafka`` and single messages of Pulsar; a turn counts the quickest of three. The median of the ratios is
held against the bar: the status is 1 if something costs more than ``--bar`` times what it did.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

_ONE = "import sys; from benchmarks.compaction_entries import one; one(int(sys.argv[1]))"


def entries(count: int, *, pulsar: bool) -> list[object]:
    """Return entries of one record each, a third of them deletions, of a hundred keys."""
    from magnetar.ledger.port import StoredEntry
    from magnetar.records.batch import PlainRecord, encode_batch
    from magnetar.records.entry import broker_entry_head, kafka_message_head
    from magnetar.records.pulsar_metadata import MessageMetadata, encode_metadata
    from magnetar.records.pulsar_plain import framed_message

    made: list[object] = []
    for number in range(count):
        key, value = b"key %d" % (number % 100), None if number % 3 == 0 else b"v" * 100
        if pulsar:
            metadata = MessageMetadata(
                b"p", number, 1_790_000_000_000, partition_key=key, null_value=value is None
            )
            message = bytes(framed_message(encode_metadata(metadata), value or b"", 1).framed)
        else:
            batch = encode_batch([PlainRecord(key, value, (), 1_790_000_000_000)], base_offset=number)
            message = kafka_message_head(1_790_000_000_000, 1) + batch
        data = broker_entry_head(1_790_000_000_000, number) + message
        made.append(StoredEntry(1, number, number, memoryview(data)))
    return made


def one(count: int) -> None:
    """Print, as JSON, microseconds per entry by name."""
    from magnetar.ledger.compaction.job import Job
    from magnetar.ledger.compaction.passes import Passes
    from magnetar.ledger.port import CompactionRules
    from magnetar.records import compaction

    told = {}
    for name, machine in (("plain", None), ("machine code", compaction.machine_code())):
        for pulsar in (False, True):
            some, best = entries(count, pulsar=pulsar), float("inf")
            for _ in range(3):
                job = Job(CompactionRules(replaces=True, tombstones_ms=1), count, 0, 1_790_000_000_000)
                began = time.process_time()
                passes = Passes(job, machine)
                passes.note(some)
                passes.copy(some, are_copies=False)
                best = min(best, time.process_time() - began)
            told[f"{'pulsar' if pulsar else 'kafka'}, {name}"] = best / count * 1e6
    print(json.dumps(told))


def measured(root: Path, count: int) -> dict[str, float]:
    """Return what `one` says of a checkout."""
    here = Path(__file__).resolve().parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root / "src"), str(here)))}
    done = subprocess.run(
        [sys.executable, "-c", _ONE, str(count)], env=environment, check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> int:
    """Print a table of medians and ratios."""
    parser = argparse.ArgumentParser(prog="compaction_entries", description=__doc__.split("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--bar", type=float, default=1.03)
    given = parser.parse_args()
    turns = []
    for number in range(given.turns):
        order = (given.before, given.after) if number % 2 else (given.after, given.before)
        by_root = {root: measured(root, given.entries) for root in order}
        turns.append((by_root[given.before], by_root[given.after]))
    late = False
    for name in turns[0][0]:
        before, after = (median(turn[at][name] for turn in turns) for at in (0, 1))
        ratio = median(turn[1][name] / turn[0][name] for turn in turns)
        late |= ratio > given.bar
        print(f"{name:24} {before:7.2f} us {after:7.2f} us   {ratio:.3f}")
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
