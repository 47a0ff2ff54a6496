"""Two checkouts of Magnetar against each other: the broker's processor time per record, in turn, on the same machine.

    python -m benchmarks.before_after BEFORE AFTER [--rounds 5] [--turns 8] [--records 600000] [--bar 1.03]

Each is a checkout with its own ``.venv``. The clients (librdkafka) are this checkout's. Both brokers are there all the
time and do the same work one right after the other, ``--turns`` times in a round: a machine's speed changes from minute
to minute by more than the bar, so what is compared is each turn's ratio, and of those the median is held against the
bar. Every second turn goes the other way round. The status is 1 if something costs more than ``--bar`` times as much.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import librdkafka, shapes
from benchmarks.peers.magnetar import MagnetarOs
from benchmarks.samples import Samples, in_turn
from benchmarks.thin import ThinClient

_TUNED = {"fetch.message.max.bytes": 8 << 20, "fetch.max.bytes": 64 << 20, "queued.min.messages": 1_000_000}


class Checkout(MagnetarOs):
    """The broker of another checkout."""

    def __init__(self, data: Path, name: str, root: Path) -> None:
        self.name = name
        self._executable = root / ".venv" / "bin" / "magnetar"
        super().__init__(data)

    def command(self) -> list[str]:
        return [str(self._executable), *super().command()[1:]]


def measure(pair: Sequence[Checkout], samples: Samples, records: int, turns: int) -> None:
    """Produce 100 B and 1 KB, all alike and not, and read the larger ones."""
    for size, name, count in (
        (100, "all alike", records),
        (100, "keys, 3 headers, varied", records),
        (1000, "all alike", records // 2),
    ):
        topic = f"t-{size}-{name.replace(', ', '-').replace(' ', '-')}"
        for server in pair:
            with ThinClient.to(server.address) as client:
                client.create_topics([topic], 4)
            # The first turns of both compile and fill caches.
            shapes.produce(server, topic, name, size, count // 4)
        for number in range(turns):
            for server in in_turn(pair, number):
                os.sync()  # lest one pays for what the other wrote
                _, used = shapes.produce(server, topic, name, size, count)
                samples.add(f"produce {size} B, {name}, us/record", server.name, used)
    there = count // 4 + count * turns
    for number in range(1 + turns):
        for server in in_turn(pair, number):
            used = _read(server, topic, there)
            if number:
                samples.add("consume 1000 B, us/record", server.name, used)
    for server in pair:
        samples.add("memory after it, MB", server.name, server.rss_mb())


def _read(server: Checkout, topic: str, records: int) -> float:
    """Read all of a topic; give the broker's microseconds for each record."""
    cpu = server.cpu_seconds()
    librdkafka.read(server.address, topic, 4, records, _TUNED)
    return (server.cpu_seconds() - cpu) * 1e6 / records


def main() -> int:
    """Print a table of medians and ratios."""
    parser = argparse.ArgumentParser(prog="before_after", description=__doc__.split("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--records", type=int, default=600_000)
    parser.add_argument("--bar", type=float, default=1.03)
    given = parser.parse_args()
    samples = Samples()
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(given.rounds):
            with (
                Checkout(Path(scratch) / "before", "before", given.before.resolve()) as before,
                Checkout(Path(scratch) / "after", "after", given.after.resolve()) as after,
            ):
                measure(in_turn((before, after), number), samples, given.records, given.turns)
    print(f"\n| {'measure':<48} | before | after | ratio | half of the ratios |\n|---|---:|---:|---:|---:|")
    worst = 0.0
    for name, servers in samples.values.items():
        ratios = [new / old for old, new in zip(servers["before"], servers["after"], strict=True)]
        low, ratio, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        worst = max(worst, ratio if name.endswith("us/record") else 0.0)
        was, now = (statistics.median(servers[side]) for side in ("before", "after"))
        print(f"| {name:<48} | {was:.3f} | {now:.3f} | {ratio:.3f} | {low:.3f} to {high:.3f} |")
    return int(worst > given.bar)


if __name__ == "__main__":
    sys.exit(main())
