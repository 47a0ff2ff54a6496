"""Two checkouts of Magnetar against each other: the broker's processor time per record, in turn, on the same machine.

    python -m benchmarks.before_after BEFORE AFTER [--rounds 5] [--records 600000] [--bar 1.03]

Each is a checkout with its own ``.venv``. The clients (librdkafka) are this checkout's. Processor time hardly depends
on what else the machine does; still, every second round goes the other way round, and medians are compared. The
status is 1 if something costs more than ``--bar`` times what it did.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks import librdkafka, shapes
from benchmarks.peers.magnetar import MagnetarOs
from benchmarks.samples import Samples
from benchmarks.thin import ThinClient

_READS = 9
_TUNED = {"fetch.message.max.bytes": 8 << 20, "fetch.max.bytes": 64 << 20, "queued.min.messages": 1_000_000}


class Checkout(MagnetarOs):
    """The broker of another checkout."""

    def __init__(self, data: Path, name: str, root: Path) -> None:
        self.name = name
        self._executable = root / ".venv" / "bin" / "magnetar"
        super().__init__(data)

    def command(self) -> list[str]:
        return [str(self._executable), *super().command()[1:]]


def measure(server: Checkout, samples: Samples, records: int) -> None:
    """Produce 100 B and 1 KB, all alike and not, and read the larger ones."""
    for size, name, count in (
        (100, "all alike", records),
        (100, "keys, 3 headers, varied", records),
        (1000, "all alike", records // 2),
    ):
        topic = f"t-{size}-{name.replace(', ', '-').replace(' ', '-')}"
        with ThinClient.to(server.address) as client:
            client.create_topics([topic], 4)
        # The first turns of both compile and fill caches.
        shapes.produce(server, topic, name, size, count // 4)
        _, used = shapes.produce(server, topic, name, size, count)
        samples.add(f"produce {size} B, {name}, us/record", server.name, used)
    there = count + count // 4
    used = [_read(server, topic, there) for _ in range(1 + _READS)]
    # One reading in three costs half as much again, whatever the broker: the client and it share processors and caches.
    samples.add("consume 1000 B, us/record", server.name, statistics.median(used[1:]))
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
    parser.add_argument("--records", type=int, default=600_000)
    parser.add_argument("--bar", type=float, default=1.03)
    given = parser.parse_args()
    samples = Samples()
    sides = [("before", given.before.resolve()), ("after", given.after.resolve())]
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(given.rounds):
            for name, root in sides[::-1] if number % 2 else sides:
                with Checkout(Path(scratch) / name, name, root) as server:
                    measure(server, samples, given.records)
    print(f"\n| {'measure':<48} | before | after | ratio |\n|---|---:|---:|---:|")
    worst = 0.0
    for measure_name, servers in samples.values.items():
        before, after = (statistics.median(servers[name]) for name in ("before", "after"))
        worst = max(worst, after / before if measure_name.endswith("us/record") else 0.0)
        print(f"| {measure_name:<48} | {before:.3f} | {after:.3f} | {after / before:.3f} |")
    return int(worst > given.bar)


if __name__ == "__main__":
    sys.exit(main())
