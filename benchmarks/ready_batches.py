"""A producer that costs next to nothing: its requests are encoded before the clock runs, and sent again and again.

    python -m benchmarks.ready_batches ADDRESS TOPIC BYTES RECORDS_OF_A_BATCH RECORDS

It has a connection to each leader with five requests on their way, as Kafka's producer has, one batch each, to the
leader's partitions in turn. So the broker is what bounds the rate, where other clients keep the cores for themselves.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import subprocess
import sys
import time
from itertools import cycle
from random import Random

from benchmarks.peers.server import Server
from benchmarks.thin import Refused, ThinClient
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.header import RequestHeader, encode_request_header
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

_VERSION = 9
_ON_THEIR_WAY = 5


def produce(server: Server, topic: str, size: int, batch: int, records: int) -> tuple[float, float]:
    """Return records a second, and the broker's processor time for each in us."""
    command = [sys.executable, "-m", "benchmarks.ready_batches", server.address, topic]
    cpu = server.cpu_seconds()
    done = subprocess.run(
        [*command, str(size), str(batch), str(records)], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)["rate"], (server.cpu_seconds() - cpu) * 1e6 / records


def _request(topic: str, partition: int, batch: bytes) -> bytes:
    data = [PartitionProduceData(index=partition, records=batch)]
    request = ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    head = encode_request_header(RequestHeader(request.API_KEY, _VERSION, 1, "ready"))
    body = request.encode(_VERSION)
    return struct.pack(">i", len(head) + len(body)) + head + body


class _Connection:
    """To one leader."""

    def __init__(self, address: tuple[str, int], requests: list[bytes], error_at: int) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next = cycle(requests)
        self._error_at = error_at
        self._got = bytearray()

    def send(self) -> None:
        self.socket.sendall(next(self._next))

    def answers(self) -> int:
        """Take what has come; return how many answers that ended."""
        self._got += self.socket.recv(1 << 16) or b""
        count = 0
        while len(self._got) >= 4 and len(self._got) >= (end := 4 + int.from_bytes(self._got[:4], "big")):
            error = int.from_bytes(self._got[self._error_at : self._error_at + 2], "big", signed=True)
            if error:
                raise Refused(f"error {error}")
            del self._got[:end]
            count += 1
        return count


def run(address: str, topic: str, size: int, batch: int, records: int) -> float:
    """Send so many records, whole batches; return how many a second."""
    random = Random(42)
    value = random.randbytes(size // 2).hex().encode()
    made = encode_batch([PlainRecord(None, value, timestamp=time.time_ns() // 1_000_000)] * batch)
    with ThinClient.to(address) as client:
        leaders = client.leaders(topic)
    # Size, correlation id, no tags, one topic, its name, one partition, its index: then comes the error.
    error_at = 4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4
    connections = [
        _Connection(where, [_request(topic, each, made) for each in partitions], error_at)
        for where, partitions in leaders.items()
    ]
    left = to_come = -(-records // batch)
    with selectors.DefaultSelector() as selector:
        for each in connections:
            selector.register(each.socket, selectors.EVENT_READ, each)
        started = time.perf_counter()
        for each in connections * _ON_THEIR_WAY:
            if left:
                each.send()
                left -= 1
        while to_come:
            for key, _ in selector.select():
                answered = key.data.answers()
                to_come -= answered
                for _ in range(min(answered, left)):
                    key.data.send()
                    left -= 1
        seconds = time.perf_counter() - started
    for each in connections:
        each.socket.close()
    return records / seconds


if __name__ == "__main__":
    rate = run(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
    print(json.dumps({"rate": rate}))
