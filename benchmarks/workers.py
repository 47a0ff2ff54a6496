"""Several workers against one: the processor time of all processes per record, and the rate, in turn.

    python -m benchmarks.workers [--workers 2] [--clients 4] [--turns 8] [--records 600000] [--bar 1.15]

Both are `magnetar standalone`, ``flush=os``, on directories of their own, and take turns as in `benchmarks.paired`.
The partitions are led by all workers, and several clients work at once. "busy" is what clients send whose requests
were made before, so that the workers have most of the cores. What stock producers send keeps no worker busy while all
share two cores, and then two workers take less from their sockets at a time, and so do more for each record. The rate
tells something only where there are more cores than the clients keep busy. The status is 1 if a record costs more than
``--bar`` times what it costs with one, where they are busy.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar, TypeVarTuple, Unpack

from benchmarks import ready_batches, shapes
from benchmarks.paired import read, told
from benchmarks.peers.magnetar import MagnetarOs
from benchmarks.peers.processes import family
from benchmarks.samples import Samples, in_turn
from benchmarks.thin import ThinClient

_BUSY = "busy: "
_Given = TypeVarTuple("_Given")
_Found = TypeVar("_Found")


class Workers(MagnetarOs):
    """``count`` workers of one directory; processor time and memory are those of all its processes."""

    def __init__(self, data: Path, count: int) -> None:
        self.name = "one" if count == 1 else "several"
        self.settings = (*MagnetarOs.settings, f"workers={count}")
        super().__init__(data)

    def pids(self) -> list[int]:
        return family(self.pid)


def measure(pair: Sequence[Workers], samples: Samples, records: int, turns: int, clients: int) -> None:
    """Produce as fast as workers take it, then by stock clients, several at once; read what those sent of 1000 B."""
    for size, batch in ((100, 500), (1000, 60)):
        each = 8 * records // clients * 100 // size

        def ready(server: Workers, topic: str, count: int, size: int = size, batch: int = batch) -> float:
            return ready_batches.produce(server, topic, size, batch, count)

        _in_turn(pair, samples, f"{_BUSY}produce {size} B", ready, each, turns, clients)
    for size, each in ((100, records // clients), (1000, records // 2 // clients)):

        def stock(server: Workers, topic: str, count: int, size: int = size) -> float:
            return shapes.produce(server, topic, "all alike", size, count)[0]

        topic = _in_turn(pair, samples, f"produce {size} B", stock, each, turns, clients)
    there = (each // 4 + each * turns) * clients
    for number in range(1 + turns):
        for server in in_turn(pair, number):
            before = server.cpu_seconds()
            _together(clients, read, server, topic, there)
            used = server.cpu_seconds() - before
            if number:
                samples.add("consume 1000 B, us/record", server.name, used * 1e6 / (there * clients))
    for server in pair:
        samples.add("memory after it, MB", server.name, server.rss_mb())


def _in_turn(
    pair: Sequence[Workers],
    samples: Samples,
    name: str,
    produce: Callable[[Workers, str, int], float],
    each: int,
    turns: int,
    clients: int,
) -> str:
    """Have each of the clients send so many records, turn by turn; return the topic."""
    topic = name.replace(": ", "-").replace(" ", "-")
    for server in pair:
        with ThinClient.to(server.address) as client:
            client.create_topics([topic], 4)
        _together(clients, produce, server, topic, each // 4)
    for number in range(turns):
        for server in in_turn(pair, number):
            os.sync()  # lest one pays for what the other wrote
            before = server.cpu_seconds()
            rates = _together(clients, produce, server, topic, each)
            used = server.cpu_seconds() - before
            samples.add(f"{name}, us/record", server.name, used * 1e6 / (each * clients))
            samples.add(f"{name}, records/s", server.name, sum(rates))
    return topic


def _together(clients: int, work: Callable[[Unpack[_Given]], _Found], *given: *_Given) -> list[_Found]:
    """Have clients, each a process of its own, do the same at once."""
    with ThreadPoolExecutor(clients) as pool:
        return [each.result() for each in [pool.submit(work, *given) for _ in range(clients)]]


def main() -> int:
    """Print a table of medians and ratios."""
    parser = argparse.ArgumentParser(prog="workers", description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--records", type=int, default=600_000)
    parser.add_argument("--bar", type=float, default=1.15)
    given = parser.parse_args()
    samples = Samples()
    with (
        tempfile.TemporaryDirectory() as scratch,
        Workers(Path(scratch) / "one", 1) as one,
        Workers(Path(scratch) / "several", given.workers) as several,
    ):
        time.sleep(6)  # until all workers have their part
        measure((one, several), samples, given.records, given.turns, given.clients)
    ratios = told(samples, "one", "several")
    costs = [ratio for name, ratio in ratios.items() if name.startswith(_BUSY) and name.endswith("us/record")]
    return int(max(costs) > given.bar)


if __name__ == "__main__":
    sys.exit(main())
