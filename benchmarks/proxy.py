"""What a proxy costs: one broker asked directly and by way of `magnetar proxy`, in turn, round by round.

    python -m benchmarks.proxy [ROUNDS]

It prints medians of the rounds: a record's way out and back (100 B, one at a time), and how fast 1 KB records are
produced and read. Both processes share the machine with the clients: where cores are scarce, what the proxy takes is
missing there.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.latency import one_at_a_time
from benchmarks.librdkafka import read

TIMES, RECORDS, RECORD_BYTES, PARTITIONS = 2000, 200_000, 1000, 6


@contextmanager
def serving(*command: str) -> Iterator[str]:
    """Start one process, and give the address at which it serves Kafka's clients."""
    magnetar = Path(sys.executable).with_name("magnetar")
    process = subprocess.Popen(
        [magnetar, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        words = dict(word.partition("=")[::2] for word in process.stdout.readline().split()[1:])
        yield words["kafka"].partition(",")[0]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def produce(address: str, topic: str) -> float:
    """Return MB a second."""
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(topic, PARTITIONS)]).values():
        made.result(30)
    producer = Producer(
        {"bootstrap.servers": address, "linger.ms": 5, "queue.buffering.max.messages": 50_000}
    )
    value = bytes(RECORD_BYTES)
    began = time.perf_counter()
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("not all was acknowledged")
    return RECORDS * RECORD_BYTES / (time.perf_counter() - began) / 1e6


def consume(address: str, topic: str) -> float:
    """Return MB a second."""
    found = read(address, topic, PARTITIONS, RECORDS, {"group.id": "read"})
    return RECORDS * RECORD_BYTES / found.seconds / 1e6


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory() as data,
        serving("standalone", "--data", data, "--kafka", "127.0.0.1:0", "--set", "flush=os") as broker,
        serving(
            "proxy",
            "--set",
            "listeners=PLAINTEXT://127.0.0.1:0",
            "--set",
            f"proxy.bootstrap.servers={broker}",
        ) as proxy,
    ):
        for number in range(rounds):
            ways = [("direct", broker), ("proxy", proxy)]
            for name, address in ways if number % 2 else reversed(ways):
                topic = f"t-{uuid.uuid4().hex[:8]}"
                found["latency p50, ms", name].append(
                    statistics.median(one_at_a_time(address, TIMES, f"l-{topic}"))
                )
                found["produced, MB/s", name].append(produce(address, topic))
                found["read, MB/s", name].append(consume(address, topic))
    for what in dict.fromkeys(each for each, _ in found):
        direct, through = (statistics.median(found[what, name]) for name in ("direct", "proxy"))
        print(
            f"{what:18} direct {direct:8.3f}   by way of the proxy {through:8.3f}   {through / direct:6.2f}x"
        )


if __name__ == "__main__":
    main()
