"""Transactions of 100 records, each ended before the next begins, by one stock producer and by four at once.

The producers are librdkafka's, threads of this process; what they cost is the same for every broker, so that the
broker's processor time for a transaction tells brokers apart where the client bounds the rate.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from confluent_kafka import Producer

from benchmarks.peers.server import Server
from benchmarks.samples import Samples
from benchmarks.thin import ThinClient

RECORDS = 100
PRODUCERS = (1, 4)
_TOPIC, _PARTITIONS = "in-transactions", 4
_VALUE = b"v" * 100


def measure(server: Server, samples: Samples, count: int) -> None:
    """End ``count`` transactions, after a quarter as many that are not counted."""
    with ThinClient.to(server.address) as client:
        client.create_topics([_TOPIC], _PARTITIONS)
    for producers in PRODUCERS:
        each = count // producers
        with ThreadPoolExecutor(producers) as pool:
            ready = list(pool.map(partial(_ready, server.address), range(producers)))
            list(pool.map(partial(_end, count=each // 4), ready))
            cpu, began = server.cpu_seconds(), time.perf_counter()
            list(pool.map(partial(_end, count=each), ready))
            seconds, used = time.perf_counter() - began, server.cpu_seconds() - cpu
        name = "transactions of 100 records, " + (
            "a producer" if producers == 1 else f"{producers} producers"
        )
        samples.add(f"{name}, transactions/s", server.name, each * producers / seconds)
        samples.add(f"{name}, broker ms/transaction", server.name, used * 1e3 / (each * producers))


def _ready(address: str, number: int) -> Producer:
    producer = Producer({"bootstrap.servers": address, "transactional.id": f"t-{number}"})
    producer.init_transactions(60)
    return producer


def _end(producer: Producer, count: int) -> None:
    failed: list[object] = []

    def note(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    for _ in range(count):
        producer.begin_transaction()
        for number in range(RECORDS):
            producer.produce(_TOPIC, _VALUE, partition=number % _PARTITIONS, on_delivery=note)
        producer.commit_transaction()
    if failed:
        raise RuntimeError(f"{len(failed)} records failed: {failed[0]}")
