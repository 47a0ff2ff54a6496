"""Read a topic with librdkafka itself: the library of the confluent-kafka wheel, called without its Python objects.

confluent-kafka makes a Python object of every message, which takes longer than the library takes to fetch it: the
rate is then that of the client, whatever the server. Here batches of message pointers are taken from librdkafka's
queue, counted and given back in compiled code. Run as a program it prints one line of JSON:

    python -m benchmarks.librdkafka HOST:PORT TOPIC PARTITIONS RECORDS NAME=VALUE...
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np

_CONSUMER, _BEGINNING, _ERROR_BYTES, _TIMEOUT_MS, _AT_ONCE = 1, -2, 512, 60_000, 10_000


class Read(NamedTuple):
    """``seconds`` from the first record to the last, and the client's processor time for them."""

    records: int
    seconds: float
    client_cpu_seconds: float


def read(address: str, topic: str, partitions: int, records: int, properties: dict[str, Any]) -> Read:
    """Read ``topic`` from its beginning in a process of its own."""
    given = [f"{name}={value}" for name, value in properties.items()]
    command = [sys.executable, "-m", "benchmarks.librdkafka", address, topic, str(partitions), str(records)]
    done = subprocess.run([*command, *given], check=True, capture_output=True, text=True)
    return Read(**json.loads(done.stdout))


def main() -> None:
    address, topic, partitions, records, *given = sys.argv[1:]
    properties = {"bootstrap.servers": address, **dict(text.split("=", 1) for text in given)}
    library = _library()
    queue = _started(library, topic, int(partitions), properties)
    found = _count(library, queue, int(records))
    print(json.dumps(found._asdict()), flush=True)
    os._exit(0)  # nothing is committed, and the library's orderly end takes a while


def _library() -> ctypes.CDLL:
    import confluent_kafka

    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(folder.glob("librdkafka*.so*"))))
    for name, result, arguments in (
        ("rd_kafka_conf_new", c_void_p, ()),
        ("rd_kafka_conf_set", c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
        ("rd_kafka_new", c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
        ("rd_kafka_topic_new", c_void_p, (c_void_p, c_char_p, c_void_p)),
        ("rd_kafka_queue_new", c_void_p, (c_void_p,)),
        ("rd_kafka_consume_start_queue", c_int, (c_void_p, c_int32, c_int64, c_void_p)),
        ("rd_kafka_consume_batch_queue", c_ssize_t, (c_void_p, c_int, c_void_p, c_size_t)),
        ("rd_kafka_message_destroy", None, (c_size_t,)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _started(library: ctypes.CDLL, topic: str, partitions: int, properties: dict[str, str]) -> int:
    """Return the queue into which the topic's messages come."""
    said = ctypes.create_string_buffer(_ERROR_BYTES)
    conf = library.rd_kafka_conf_new()
    for name, value in properties.items():
        if library.rd_kafka_conf_set(conf, name.encode(), value.encode(), said, _ERROR_BYTES):
            raise SystemExit(said.value.decode())
    client = library.rd_kafka_new(_CONSUMER, conf, said, _ERROR_BYTES)
    if not client:
        raise SystemExit(said.value.decode())
    queue = library.rd_kafka_queue_new(client)
    handle = library.rd_kafka_topic_new(client, topic.encode(), None)
    for partition in range(partitions):
        if library.rd_kafka_consume_start_queue(handle, partition, _BEGINNING, queue):
            raise SystemExit(f"partition {partition} cannot be read")
    return int(queue)


def _count(library: ctypes.CDLL, queue: int, records: int) -> Read:
    destroy = library.rd_kafka_message_destroy

    @numba.njit  # type: ignore[misc]
    def give_back(messages: np.ndarray, count: int) -> None:
        for index in range(count):
            destroy(messages[index])

    messages = np.zeros(_AT_ONCE, np.uint64)
    give_back(messages, 0)  # compiled before the clock runs
    got, started, used = 0, 0.0, 0.0
    while got < records:
        most = min(_AT_ONCE, records - got) if got else 1
        count = library.rd_kafka_consume_batch_queue(queue, _TIMEOUT_MS, messages.ctypes.data, most)
        if count <= 0:
            raise SystemExit(f"only {got} of {records} records came")
        if not got:
            started, used = time.perf_counter(), time.process_time()
        give_back(messages, count)
        got += count
    return Read(got, time.perf_counter() - started, time.process_time() - used)


if __name__ == "__main__":
    main()
