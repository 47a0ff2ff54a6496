"""What a client, or a broker, that does not go on may cost: memory is bounded, others are served, and it ends."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from magnetar.proxy.kafka.request import framed
from magnetar.wire.kafka.header import RequestHeader
from magnetar.wire.kafka.messages import ApiKey
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from tests.proxy.processes import PATIENCE_S, ClusterProcess, ProxyProcess
from tests.proxy.test_kafka import make

BUDGET = 16 << 20
MARGIN = 64 << 20
CLIENTS = 40


@pytest.fixture(scope="module")
def proxy(home: Path, cluster: ClusterProcess) -> Iterator[ProxyProcess]:
    with ProxyProcess(home, cluster, f"memory.requests.bytes={BUDGET}") as made:
        yield made
        assert "Traceback" not in made.log.read_text()


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def connected(proxy: ProxyProcess) -> socket.socket:
    host, _, port = proxy.kafka.rpartition(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


def sent(sock: socket.socket, request: object, key: ApiKey, version: int, number: int = 1) -> None:
    frame = framed(RequestHeader(key, version, number, "slow"), request)
    sock.sendall(len(frame).to_bytes(4, "big") + frame)


def test_clients_that_take_nothing_cost_no_more_than_the_budget(
    proxy: ProxyProcess, cluster: ClusterProcess
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.kafka})
    topic = f"big-{uuid.uuid4().hex[:8]}"
    make(admin, topic)
    sender = ck.Producer({"bootstrap.servers": cluster.kafka, "linger.ms": 20})
    for number in range(12 * 40):
        sender.produce(topic, bytes(200_000), partition=number % 12)
        sender.poll(0)
    assert sender.flush(PATIENCE_S) == 0
    before = resident(proxy.pid)
    rows = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=4 << 20) for n in range(12)]
    fetch = FetchRequest(
        max_wait_ms=100, min_bytes=1, max_bytes=50 << 20, topics=[FetchTopic(topic=topic, partitions=rows)]
    )
    slow = [connected(proxy) for _ in range(CLIENTS)]
    for each in slow:
        for number in range(5):
            sent(each, fetch, ApiKey.FETCH, 11, number)
    most = 0
    ends = time.monotonic() + 5
    while time.monotonic() < ends:
        most = max(most, resident(proxy.pid))
        time.sleep(0.05)
    assert most - before < BUDGET + MARGIN, f"{(most - before) >> 20} MB more"
    assert AdminClient({"bootstrap.servers": proxy.kafka}).list_topics(topic, PATIENCE_S).topics
    for each in slow:
        each.close()


class Deaf:
    """A broker that takes connections and requests, and answers what it must to begin with, once."""

    def __init__(self, behind: str) -> None:
        self._behind = behind
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.deaf = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                came, _ = self._server.accept()
            except OSError:
                return
            host, _, port = self._behind.rpartition(":")
            broker = socket.create_connection((host, int(port)))
            threading.Thread(target=self._pass, args=(came, broker), daemon=True).start()
            threading.Thread(target=self._pass, args=(broker, came), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(1 << 16):
                while self.deaf:
                    time.sleep(0.05)
                other.sendall(data)
        except OSError:
            pass
        other.close()

    def close(self) -> None:
        self._server.close()


def test_a_broker_that_hangs_is_given_up(tmp_path: Path) -> None:
    """Requests end in ``proxy.request.timeout.ms``, each as it may be: what asks by an end, a batch by not knowing."""
    with ClusterProcess(tmp_path, 1) as cluster:
        deaf = Deaf(cluster.kafka)
        advertised = f"advertised.listeners=PLAINTEXT://{deaf.address}"
        cluster.kill()
        with ClusterProcess(tmp_path, 1, advertised) as behind:
            deaf._behind = behind.kafka
            settings = ("proxy.request.timeout.ms=1000", f"proxy.bootstrap.servers={deaf.address}")
            with ProxyProcess(tmp_path, behind, *settings) as proxy:
                admin = AdminClient({"bootstrap.servers": proxy.kafka})
                make(admin, "t")
                failed: list[int] = []
                sender = ck.Producer({"bootstrap.servers": proxy.kafka, "retries": 0, "acks": "all"})
                sender.produce(
                    "t", b"x", on_delivery=lambda error, _: failed.append(error.code() if error else 0)
                )
                assert sender.flush(PATIENCE_S) == 0
                assert failed == [0]
                deaf.deaf = True
                sender.produce(
                    "t", b"y", on_delivery=lambda error, _: failed.append(error.code() if error else 0)
                )
                assert sender.flush(PATIENCE_S) == 0
                assert failed[1] == ck.KafkaError.REQUEST_TIMED_OUT
                deaf.deaf = False
                sender.produce(
                    "t", b"z", on_delivery=lambda error, _: failed.append(error.code() if error else 0)
                )
                assert sender.flush(PATIENCE_S) == 0
                assert failed[2] == 0
        deaf.close()
