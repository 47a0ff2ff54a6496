"""Stock clients of Pulsar's protocol through the proxy, by the protocol that Pulsar's own proxy speaks."""

from __future__ import annotations

import http.client
import json
import socket
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pulsar
import pytest

from magnetar.wire.pulsar.encode import frame
from magnetar.wire.pulsar.frames import read_frame
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.proxy.processes import PATIENCE_S, ClusterProcess, ProxyProcess

MESSAGES = 20_000
PARTITIONS = 6


@pytest.fixture(scope="module")
def proxy(home: Path, cluster: ClusterProcess) -> Iterator[ProxyProcess]:
    settings = (
        "pulsar.listeners=pulsar://127.0.0.1:0",
        f"broker.service.url=pulsar://{','.join(cluster.served['pulsar'])}",
        "http.listeners=http://127.0.0.1:0",
        f"broker.web.service.url=http://{','.join(cluster.served['http'])}",
    )
    with ProxyProcess(home, cluster, *settings) as made:
        yield made
        assert "Traceback" not in made.log.read_text()


@pytest.fixture
def client(proxy: ProxyProcess) -> Iterator[pulsar.Client]:
    made = pulsar.Client(proxy.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


def asked(proxy: ProxyProcess, method: str, path: str, body: object = None) -> tuple[int, str]:
    """Ask the admin REST by way of the proxy."""
    connection = http.client.HTTPConnection(
        proxy.served["http"][0], timeout=PATIENCE_S
    )  # it goes where it is told
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


@pytest.fixture
def topic(proxy: ProxyProcess) -> str:
    return made_topic(proxy)


def owners_of(proxy: ProxyProcess, topic: str) -> set[str]:
    """Return the brokers that have its partitions."""
    found = set()
    for partition in range(PARTITIONS):
        place = f"/lookup/v2/topic/persistent/public/default/{topic}-partition-{partition}"
        status, body = asked(proxy, "GET", place)
        assert status == 200, body
        found.add(json.loads(body)["brokerUrl"])
    return found


def made_topic(proxy: ProxyProcess) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    assert asked(proxy, "PUT", f"/admin/v2/persistent/public/default/{name}/partitions", PARTITIONS)[0] == 204
    return name


@pytest.mark.slow
def test_messages_of_all_owners_go_through(
    proxy: ProxyProcess, client: pulsar.Client, cluster: ClusterProcess
) -> None:
    while len(owners_of(proxy, topic := made_topic(proxy))) < len(cluster.served["pulsar"]):
        pass  # the partitions of some names lie with two brokers only
    producer = client.create_producer(
        topic,
        message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
        batching_enabled=True,
        block_if_queue_full=True,
        max_pending_messages=2000,
    )
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    results: list[pulsar.Result] = []
    for number in range(MESSAGES):
        producer.send_async(b"%d" % number, lambda result, _: results.append(result))
    producer.flush()
    found = []
    while len(found) < MESSAGES:
        message = consumer.receive(int(PATIENCE_S * 1000))
        found.append(int(message.data()))
        consumer.acknowledge(message)
    assert sorted(found) == list(range(MESSAGES))
    assert set(results) == {pulsar.Result.Ok}
    figures = urllib.request.urlopen(f"{proxy.http}/metrics", timeout=PATIENCE_S).read().decode()
    told = dict(
        line.split(" ") for line in figures.splitlines() if not line.startswith("#") and "{" not in line
    )
    assert int(told["magnetar_proxy_pulsar_lookups_total"]) >= PARTITIONS
    assert int(told["magnetar_proxy_pulsar_connections_through_total"]) >= len(cluster.served["pulsar"])
    assert int(told["magnetar_proxy_pulsar_in_bytes_total"]) > MESSAGES


def test_both_protocols_meet_behind_one_proxy(proxy: ProxyProcess, client: pulsar.Client, topic: str) -> None:
    import confluent_kafka as ck

    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    sender = ck.Producer({"bootstrap.servers": proxy.kafka})
    for number in range(600):
        sender.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert sender.flush(PATIENCE_S) == 0
    found = [int(reader.read_next(int(PATIENCE_S * 1000)).data()) for _ in range(600)]
    assert sorted(found) == list(range(600))


def said(proxy: ProxyProcess, command: BaseCommand) -> BaseCommand | None:
    """Return what the proxy says to a first command; None if it closes."""
    host, _, port = proxy.pulsar.removeprefix("pulsar://").rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as sock:
        sock.sendall(frame(command))
        came = b""
        while len(came) < 4 or len(came) < 4 + int.from_bytes(came[:4], "big"):
            some = sock.recv(1 << 16)
            if not some:
                return None
            came += some
        return read_frame(memoryview(came)[4 : 4 + int.from_bytes(came[:4], "big")]).command


def connect(target: str = "") -> BaseCommand:
    command = BaseCommand(type=BaseCommand.CONNECT)
    command.connect.client_version = "test"
    command.connect.protocol_version = 21
    if target:
        command.connect.proxy_to_broker_url = target
    return command


def test_only_brokers_of_the_cluster_can_be_reached(proxy: ProxyProcess, cluster: ClusterProcess) -> None:
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        somebody.settimeout(0.5)
        host, port = somebody.getsockname()
        answer = said(proxy, connect(f"{host}:{port}"))
        assert answer is not None
        assert answer.error.message == "Target broker isn't allowed."
        with pytest.raises(TimeoutError):
            somebody.accept()
    for each in cluster.served["pulsar"]:
        answer = said(proxy, connect(each))
        assert answer is not None
        assert answer.type == BaseCommand.CONNECTED


@pytest.mark.parametrize("target", ["nowhere", "host:", ":6650", "host:99999", "host:-1", "pulsar://"])
def test_what_is_no_place_is_refused(proxy: ProxyProcess, target: str) -> None:
    assert said(proxy, connect(target)) is None


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff" * 64,
        (1 << 30).to_bytes(4, "big"),
        b"\0\0\0\x08\0\0\0\x04\x08\x12\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["negative", "huge", "garbage", "http"],
)
def test_what_is_no_connect_ends_its_connection(proxy: ProxyProcess, sent: bytes) -> None:
    host, _, port = proxy.pulsar.removeprefix("pulsar://").rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as sock:
        sock.sendall(sent)
        assert sock.recv(100) == b""
    answer = said(proxy, connect())
    assert answer is not None
    assert answer.type == BaseCommand.CONNECTED


def test_the_admin_rest_is_that_of_all_brokers(
    proxy: ProxyProcess, topic: str, client: pulsar.Client
) -> None:
    """What one broker does not have it sends elsewhere; who asks the proxy does not notice."""
    client.create_producer(topic).close()
    for partition in range(PARTITIONS):
        path = f"/admin/v2/persistent/public/default/{topic}-partition-{partition}/stats"
        for _ in range(3):  # each time another broker is asked first
            status, body = asked(proxy, "GET", path)
            assert status == 200, body
            assert "msgInCounter" in json.loads(body)
    assert asked(proxy, "GET", "/admin/v2/persistent/public/default/none/stats")[0] == 404
    with pytest.raises(HTTPError, match="404: Topic persistent://public/default/none not found"):
        urllib.request.urlopen(
            f"{proxy.http}/admin/v2/persistent/public/default/none/stats", timeout=PATIENCE_S
        )
    assert asked(proxy, "GET", "/health") == (200, "ok\n")


def test_http_that_is_none_ends_its_connection(proxy: ProxyProcess) -> None:
    host, _, port = proxy.http.removeprefix("http://").rpartition(":")
    for sent in (b"\0\0\0\1" * 20 + b"\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 30_000):
        with socket.create_connection((host, int(port)), PATIENCE_S) as sock:
            try:
                sock.sendall(sent)
                assert sock.recv(100)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 431", b"")
            except ConnectionError:
                pass
    big = f"POST /admin/v2/x HTTP/1.1\r\nHost: a\r\nContent-Length: {64 << 20}\r\n\r\n".encode() + bytes(
        6 << 20
    )
    with socket.create_connection((host, int(port)), PATIENCE_S) as sock:
        try:
            sock.sendall(big)
            assert sock.recv(100).startswith(b"HTTP/1.1 413")
        except ConnectionError:
            pass
    assert asked(proxy, "GET", "/health")[0] == 200


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_moves_and_a_killed_proxy(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path) as cluster:
        settings = (
            "pulsar.listeners=pulsar://127.0.0.1:0",
            f"broker.service.url=pulsar://{','.join(cluster.served['pulsar'])}",
        )
        with ProxyProcess(tmp_path, cluster, *settings) as proxy:
            client = pulsar.Client(proxy.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
            topics = [f"persistent://public/default/m-{number}" for number in range(4)]
            consumers = [client.subscribe(each, "s", receiver_queue_size=100) for each in topics]
            producers = [client.create_producer(each, send_timeout_millis=0) for each in topics]
            kept = [0] * len(topics)
            ends = time.monotonic() + 12
            steps = iter(["move 10", "end 2", "kill", "start 2", "move 10", "end 3"])
            then = 0.0
            while time.monotonic() < ends:
                for number, producer in enumerate(producers):
                    producer.send(b"%d" % kept[number])
                    kept[number] += 1
                if time.monotonic() > then and (step := next(steps, None)):
                    then = time.monotonic() + 1
                    if step == "kill":
                        proxy.again()
                    else:
                        cluster.do(step)
            for number, consumer in enumerate(consumers):
                missing = set(range(kept[number]))
                while missing:
                    message = consumer.receive(int(PATIENCE_S * 1000))
                    missing.discard(int(message.data()))
                    consumer.acknowledge(message)
            client.close()
            assert "Traceback" not in proxy.log.read_text()
