"""Records of other shapes than producer-perf-test's, which all are alike: keys, headers, sizes that vary, codecs.

That tool knows neither keys nor headers, so librdkafka sends these (by confluent-kafka, in a process of its own). The
client bounds the rate on two cores; "broker us/record" is what tells brokers apart.

    python -m benchmarks.shapes ADDRESS TOPIC SHAPE BYTES RECORDS
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import cycle, islice
from random import Random
from typing import Any, NamedTuple

from benchmarks.peers.server import Server
from benchmarks.samples import Samples
from benchmarks.thin import ThinClient

_POOL = 20_000  # records that are made before the clock runs, and sent again and again
_PARTITIONS = 4
_WARM_UP, _PAUSE_S = 400_000, 10.0
_PROPERTIES = {"acks": "all", "linger.ms": 5, "batch.size": 65536, "queue.buffering.max.messages": 1_000_000}


class Shape(NamedTuple):
    """What records have besides a value."""

    spread: float = 0.0
    """By which part of its size a value may be smaller or larger."""
    keys: bool = False
    """Numbers of one to six digits."""
    headers: int = 0
    """Each of 16 bytes."""
    codec: str = "none"


_MAX_VARIED = "keys, 3 headers, varied"
SHAPES = {
    "all alike": Shape(),
    "varied sizes": Shape(spread=0.2),
    "keys": Shape(keys=True),
    "a header": Shape(headers=1),
    _MAX_VARIED: Shape(0.2, True, 3),
    "keys, 3 headers, varied, lz4": Shape(0.2, True, 3, "lz4"),
    "keys, 3 headers, varied, zstd": Shape(0.2, True, 3, "zstd"),
}


def measure(server: Server, samples: Samples, size: int, records: int) -> None:
    """Produce ``records`` of every shape, each after a quarter as many that are not counted.

    Before them all come many that are not counted either, and a pause: both brokers compile in the background what they
    have met often, Kafka's JVM its methods and ours the check of batches.
    """
    with ThinClient.to(server.address) as client:
        client.create_topics(["warm-up"], _PARTITIONS)
    produce(server, "warm-up", _MAX_VARIED, size, _WARM_UP)
    time.sleep(_PAUSE_S)
    for name in SHAPES:
        topic = f"shape-{size}-{name.replace(', ', '-').replace(' ', '-')}"
        with ThinClient.to(server.address) as client:
            client.create_topics([topic], _PARTITIONS)
        produce(server, topic, name, size, records // 4)
        os.sync()
        rate, used = produce(server, topic, name, size, records)
        samples.add(f"produce {size} B, {name}, records/s", server.name, rate)
        samples.add(f"produce {size} B, {name}, broker us/record", server.name, used)


def produce(server: Server, topic: str, shape: str, size: int, records: int) -> tuple[float, float]:
    """Return records a second, and the broker's processor time for each in us."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.shapes",
        server.address,
        topic,
        shape,
        str(size),
        str(records),
    ]
    cpu = server.cpu_seconds()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["rate"], (server.cpu_seconds() - cpu) * 1e6 / records


def made(shape: Shape, size: int, count: int) -> list[dict[str, Any]]:
    """Return what `Producer.produce` takes, the same in every run."""
    random = Random(42)
    low, high = round(size * (1 - shape.spread)), round(size * (1 + shape.spread))
    rows = []
    for number in range(count):
        row: dict[str, Any] = {"value": random.randbytes(random.randint(low, high) // 2).hex().encode()}
        if shape.keys:
            row["key"] = str(random.randrange(10 ** random.randint(1, 6))).encode()
        else:
            row["partition"] = number // 500 % _PARTITIONS
        if shape.headers:
            row["headers"] = [(f"h{n}", random.randbytes(16)) for n in range(shape.headers)]
        rows.append(row)
    return rows


def main() -> None:
    """Send, and print the rate from the first record to the last acknowledgement."""
    from confluent_kafka import Producer

    address, topic, name, size, records = sys.argv[1:]
    shape = SHAPES[name]
    rows = made(shape, int(size), _POOL)
    producer = Producer({"bootstrap.servers": address, "compression.type": shape.codec, **_PROPERTIES})
    failed: list[object] = []
    producer.list_topics(topic, timeout=60)
    started = time.perf_counter()
    for row in _first(rows, int(records)):
        while True:
            try:
                producer.produce(topic, on_delivery=_noting(failed), **row)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush()
    seconds = time.perf_counter() - started
    if failed:
        raise SystemExit(f"{len(failed)} records failed: {failed[0]}")
    print(json.dumps({"rate": int(records) / seconds}))


def _first(rows: list[dict[str, Any]], count: int) -> Iterator[dict[str, Any]]:
    return islice(cycle(rows), count)


def _noting(failed: list[object]) -> Any:
    def note(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    return note


if __name__ == "__main__":
    main()
