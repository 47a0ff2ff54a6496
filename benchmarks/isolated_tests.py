"""What a broker of its own costs a test: started, a record written and read, ended; ours and Kafka's in turn.

Ours is `magnetar.testing.Broker` in this process. Kafka's is its release in a process of its own on fresh data, as a
container has it, without the container. Prints a line of JSON each, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.peers.kafka import Kafka
from magnetar.testing import Broker
from magnetar.testing.records import produce, read

TIMEOUT_S = 60.0


@contextmanager
def ours() -> Iterator[str]:
    """Yield the address of a broker in this process."""
    with Broker() as broker:
        yield broker.bootstrap_servers


@contextmanager
def kafkas() -> Iterator[str]:
    """Yield the address of a Kafka that is started for it."""
    with tempfile.TemporaryDirectory() as directory:
        broker = Kafka(Path(directory) / "kafka")
        broker.start()
        try:
            yield broker.address
        finally:
            broker.stop()


def seconds_of(start: Callable[[], AbstractContextManager[str]]) -> float:
    """Return how long one isolated test takes, its broker's start and end included."""
    began = time.perf_counter()
    with start() as bootstrap:
        produce(bootstrap, "t", ["v"], TIMEOUT_S)
        (record,) = read(bootstrap, "t", TIMEOUT_S, isolation="read_uncommitted")
        assert record.value == b"v"
    return time.perf_counter() - began


def main() -> None:
    """Run the rounds and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tests", type=int, default=20, help="isolated tests of ours in each round")
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds; Kafka is started once in each, 0 for ours alone"
    )
    options = parser.parse_args()
    times: dict[str, list[float]] = {"magnetar": [], "kafka": []}
    for _ in range(max(options.rounds, 1)):
        times["magnetar"] += [seconds_of(ours) for _ in range(options.tests)]
        if options.rounds:
            times["kafka"].append(seconds_of(kafkas))
    medians = {name: statistics.median(each) for name, each in times.items() if each}
    for name, each in times.items():
        if each:
            figures = {
                "tests": len(each),
                "median_s": round(medians[name], 3),
                "1000_tests_s": round(medians[name] * 1000),
            }
            print(json.dumps({"broker": name, **figures}))
    if "kafka" in medians:
        print(json.dumps({"ratio": round(medians["kafka"] / medians["magnetar"], 1)}))


if __name__ == "__main__":
    main()
