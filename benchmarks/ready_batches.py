"""A producer that costs next to nothing: its requests are encoded before the clock runs, and sent again and again.

    python -m benchmarks.ready_batches ADDRESS TOPIC BYTES RECORDS_OF_A_BATCH RECORDS

It has a connection to each leader with five requests on their way, as Kafka's producer has, one batch each, to the
leader's partitions in turn. So the broker is what bounds the rate, where other clients keep the cores for themselves.
"""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import time
from itertools import cycle
from random import Random

from benchmarks.peers.server import Server
from benchmarks.thin import PRODUCE, Refused, ThinClient, batch_request, framed
from magnetar.records.batch import PlainRecord, encode_batch

_ON_THEIR_WAY = 5


def produce(server: Server, topic: str, size: int, batch: int, records: int) -> float:
    """Have a process of its own send them; return records a second."""
    given = [server.address, topic, *map(str, (size, batch, records))]
    command = [sys.executable, "-m", "benchmarks.ready_batches", *given]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["rate"])


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
        came = self.socket.recv(1 << 16)
        if not came:
            raise Refused("the broker hung up")
        self._got += came
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
        _Connection(
            where, [framed(batch_request(topic, [each], made), PRODUCE, 1) for each in partitions], error_at
        )
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
