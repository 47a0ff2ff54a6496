"""HTTP's connections are the broker's as any other: counted with all others, held in its budget, let go in time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from magnetar.admin.handler import AdminHandler
from magnetar.admin.listeners import parse_web_listeners
from magnetar.auth import Access
from magnetar.figures import exposition
from magnetar.kafka.handler import KafkaProtocolHandler
from magnetar.kafka.listeners import parse_listeners
from magnetar.ledger.memory import MemoryEngine
from magnetar.metadata import MemoryStore
from magnetar.node.broker import Broker
from magnetar.pulsar.handler import PulsarProtocolHandler
from magnetar.pulsar.listeners import parse_pulsar_listeners
from magnetar.schema_registry.handler import SchemaRegistryHandler
from magnetar.settings.settings import Settings
from magnetar.web import http as web
from magnetar.web.server import WebServer
from tests.security.matrix.house import Transport
from tests.security.signing import SECRET_URL, token

HOST = b"host: here\r\n"
MEGABYTE = bytes(1 << 20)


class Seen:
    """An application that reads what it is sent, and notes how much that was."""

    def __init__(self) -> None:
        self.bodies: list[int] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.requests import Request
        from starlette.responses import Response

        try:
            self.bodies.append(len(await web.body_of(Request(scope, receive))))
            status = 200
        except web.BodyTooLarge:
            status = 413
        await Response(b"x" * 100, status)(scope, receive, send)


class House:
    """A broker with an HTTP server, without sockets."""

    def __init__(self, app: Any, **texts: str) -> None:
        self.settings = Settings().with_values({name.replace("_", "."): text for name, text in texts.items()})
        store = MemoryStore()
        self.broker = Broker(self.settings, store, MemoryEngine(store))
        self.server = WebServer(app, self.broker)

    def connect(self) -> tuple[Any, Transport]:
        return connect(self.server.connection())


def connect(protocol: Any) -> tuple[Any, Transport]:
    transport = Transport(protocol)
    protocol.connection_made(transport)
    return getattr(protocol, "connection", protocol), transport


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
def seen() -> Seen:
    return Seen()


async def test_all_protocols_share_the_number_of_connections(seen: Seen) -> None:
    house = House(seen, max_connections="5", pulsar_listeners="pulsar://127.0.0.1:6650")
    await house.broker.engine.start()
    await house.broker.start()
    kafka, registry, pulsar = KafkaProtocolHandler(), SchemaRegistryHandler(), PulsarProtocolHandler()
    (listener,), (pulsars,) = parse_listeners(house.settings), parse_pulsar_listeners(house.settings)
    for handler in (kafka, registry, pulsar):
        handler.initialize(house.settings)
        await handler.start(house.broker)

    def each() -> Iterator[Any]:
        yield house.server.connection()
        yield kafka.new_connection(listener)
        yield registry.new_connection(listener)
        yield pulsar.new_connection(pulsars)

    kept = [connect(protocol)[1] for protocol in each()] + [connect(house.server.connection())[1]]
    assert not any(transport.closed for transport in kept)
    for protocol in each():
        assert connect(protocol)[1].closed
    await turns()
    kept[1].close()
    await turns()
    assert not connect(house.server.connection())[1].closed, "one has left, so one may come"
    for handler in (registry, kafka, pulsar):
        await handler.close()


async def test_nobody_has_all_connections_from_one_address(seen: Seen) -> None:
    house = House(seen, max_connections_per_ip="2")
    found = [house.connect()[1].closed for _ in range(4)]
    assert found == [False, False, True, True]


async def test_a_client_is_where_its_connection_comes_from() -> None:
    """ACLs name hosts: what a client on this machine says of where it is must not count."""
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["client"][0])
        await Seen()(scope, receive, send)

    protocol, _ = House(app).connect()
    protocol.data_received(b"GET / HTTP/1.1\r\n" + HOST + b"x-forwarded-for: 10.1.1.1\r\n\r\n")
    await turns()
    assert seen == ["127.0.0.1"]


@pytest.mark.parametrize("leaves", [False, True])
async def test_figures_are_made_while_whoever_asks_is_there(
    seen: Seen, leaves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposition, "SLICE_S", -1.0)
    made = 0

    def source(access: Access | None) -> Iterator[None]:
        nonlocal made
        for number in range(1, 1001):
            made = number
            yield None

    house = House(seen)
    house.broker.figures.sources.append(source)
    protocol, transport = house.connect()
    protocol.data_received(b"GET /metrics HTTP/1.1\r\n" + HOST + b"\r\n")
    await turns(200)
    assert 0 < made < 1000
    if leaves:
        transport.close()
    await turns(2000)
    assert (made < 300) is leaves
    assert (b"magnetar" in transport.said) is not leaves


@pytest.mark.parametrize(
    ("sent", "stays_s", "goes_s"),
    [
        (b"", web.HEAD_S - 1, web.HEAD_S + 1),
        (b"GET / HTT", web.HEAD_S - 1, web.HEAD_S + 1),
        (b"GET / HTTP/1.1\r\n" + HOST, web.HEAD_S - 1, web.HEAD_S + 1),
        (b"POST / HTTP/1.1\r\n" + HOST + b"content-length: 10\r\n\r\nabc", web.BODY_S - 1, web.BODY_S + 1),
        (b"GET / HTTP/1.1\r\n" + HOST + b"\r\n", 599, 601),  # connections.max.idle.ms
    ],
    ids=["silent", "half a line", "half a head", "half a body", "idle after an answer"],
)
async def test_who_says_no_more_is_let_go(seen: Seen, sent: bytes, stays_s: float, goes_s: float) -> None:
    house = House(seen)
    protocol, transport = house.connect()
    if sent:
        protocol.data_received(sent)
    await turns()
    now = asyncio.get_running_loop().time()
    house.server.look(now + stays_s)
    assert not transport.closed
    house.server.look(now + goes_s)
    assert transport.closed
    await turns()
    assert house.broker.serving.connections.count == 0
    assert house.broker.serving.memory.held_bytes == 0


async def test_a_trickle_does_not_count_as_going_on(seen: Seen) -> None:
    house = House(seen)
    protocol, transport = house.connect()
    protocol.data_received(b"GET / HTTP/1.1\r\n" + HOST)
    begun = asyncio.get_running_loop().time()
    protocol.data_received(b"a: b\r\n")
    house.server.look(begun + web.HEAD_S + 1)
    assert transport.closed


async def test_a_long_body_has_the_time_that_its_bytes_take(seen: Seen) -> None:
    house = House(seen)
    protocol, transport = house.connect()
    protocol.data_received(b"POST / HTTP/1.1\r\n" + HOST + b"content-length: 8000000\r\n\r\n" + MEGABYTE)
    await turns()
    now = asyncio.get_running_loop().time()
    house.server.look(now + web.BODY_S + len(MEGABYTE) / web.MIN_BYTES_PER_S - 1)
    assert not transport.closed
    house.server.look(now + web.BODY_S + len(MEGABYTE) / web.MIN_BYTES_PER_S + 5)
    assert transport.closed


async def test_work_under_way_is_waited_for() -> None:
    done = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await done.wait()
        await Seen()(scope, receive, send)

    house = House(app)
    protocol, transport = house.connect()
    protocol.data_received(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
    await turns()
    house.server.look(asyncio.get_running_loop().time() + 100_000)
    assert not transport.closed
    done.set()
    await turns()
    assert transport.said.startswith(b"HTTP/1.1 200")


async def test_bodies_are_counted_and_wait_for_room(seen: Seen) -> None:
    house = House(seen, memory_requests_bytes=str(1 << 20))
    head = b"POST / HTTP/1.1\r\n" + HOST + b"content-length: 4194304\r\n\r\n"
    clients = [house.connect() for _ in range(40)]
    for protocol, _ in clients:
        protocol.data_received(head)
    most = 0
    left = {protocol: 16 for protocol, _ in clients}
    for _ in range(20_000):
        await turns(1)
        for protocol, transport in clients:
            # As a socket does: a client that is not read from keeps its bytes.
            if left[protocol] and not transport.paused:
                protocol.data_received(MEGABYTE[: 256 << 10])
                left[protocol] -= 1
        most = max(most, house.broker.serving.memory.held_bytes)
        if len(seen.bodies) == len(clients):
            break
    assert seen.bodies == [4 << 20] * len(clients), "each gets its turn"
    assert most < 20 << 20  # one that is finished past the limit, and what was read of the others
    await turns()
    assert house.broker.serving.memory.held_bytes == 0


CHUNKED = b"POST / HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n"
TINY, LARGE = b"1\r\nx\r\n", b"400\r\n" + bytes(1024) + b"\r\n"


def sent_to(protocol: Any, transport: Transport, data: bytes) -> None:
    """Do as a socket does: what a client sends that is not read from stays with it."""
    if not transport.paused and not transport.closed:
        protocol.data_received(data)


async def test_chunks_are_taken_in_some_at_a_time_and_nothing_is_read_meanwhile(seen: Seen) -> None:
    house = House(seen)
    crowd = [house.connect() for _ in range(20)]
    for protocol, _ in crowd:
        protocol.data_received(CHUNKED + LARGE * 300 + b"0\r\n\r\n")
    begun = [protocol.cycle for protocol, _ in crowd if protocol.cycle is not None]
    assert begun, "not all of them have had their turn"
    assert {len(cycle.body) // 1024 for cycle in begun} == {31}  # and the head is one of 32
    assert all(transport.paused for _, transport in crowd)
    turn = 0
    while len(seen.bodies) < len(crowd):
        await turns(1)
        turn += 1
        assert turn < 10_000
    assert turn > 20, "the others had turns between them"
    assert seen.bodies == [300 << 10] * len(crowd)
    await turns()
    assert not any(transport.paused or transport.closed for _, transport in crowd)
    assert {bytes(transport.said[:12]) for _, transport in crowd} == {b"HTTP/1.1 200"}
    assert house.broker.serving.memory.held_bytes == 0


async def test_a_body_of_a_few_tiny_chunks_is_one(seen: Seen) -> None:
    protocol, transport = House(seen).connect()
    protocol.data_received(CHUNKED + TINY * 1000 + LARGE * 10 + b"0\r\n\r\n")
    await turns(500)
    assert seen.bodies == [1000 + 10 * 1024]
    assert transport.said.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("is_refused", [False, True])
async def test_a_body_of_many_tiny_chunks_is_not_read_on(seen: Seen, is_refused: bool) -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        from starlette.responses import Response

        await Response(status_code=401)(scope, receive, send)

    house = House(refuse if is_refused else seen)
    protocol, transport = house.connect()
    sent_to(protocol, transport, CHUNKED)
    await turns()
    reads = 0
    while not transport.closed and reads < 1000:
        sent_to(protocol, transport, TINY * 100)
        reads += 1
        await turns()
    assert transport.closed
    assert 10 <= reads <= 12, "a thousand chunks are as many as anybody may send that small"
    assert transport.said.startswith(b"HTTP/1.1 401" if is_refused else b"HTTP/1.1 400")
    await turns()
    assert seen.bodies == []
    assert house.broker.serving.memory.held_bytes == 0


@pytest.mark.parametrize("shown", [b"", b"authorization: Bearer nonsense\r\n"])
async def test_of_strangers_no_body_is_read(
    shown: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "authentication_enabled": "true",
        "token_secret_key": SECRET_URL,
        "connection_failed_authentication_delay_ms": "4321",
        "pulsar_listeners": "pulsar://127.0.0.1:6650",
        "http_listeners": "http://127.0.0.1:8080",
    }
    house = House(None, **texts)
    await house.broker.engine.start()
    await house.broker.start()
    house.settings = house.settings.with_fields({"data_dir": str(tmp_path)})
    admin = AdminHandler()
    for handler in (SchemaRegistryHandler(), PulsarProtocolHandler(), admin):
        handler.initialize(house.settings)
        await handler.start(house.broker)
    (listener,) = parse_web_listeners(house.settings)
    path = b"/admin/v2/namespaces/public/default/retention"
    slept: list[float] = []
    sleep = asyncio.sleep

    async def dream(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", dream)
    head = b"POST " + path + b" HTTP/1.1\r\n" + HOST + shown + b"content-length: 8000000\r\n\r\n"
    for _ in range(30):
        protocol, transport = connect(admin.new_connection(listener))
        protocol.data_received(head)
        await turns(40)
        assert transport.said.startswith(b"HTTP/1.1 401")
        assert 4.321 in slept, "guessing must not be quick"
        slept.clear()
        for _ in range(6):
            protocol.data_received(MEGABYTE)
            await turns(40)
        assert house.broker.serving.memory.held_bytes == 0
    known = head.replace(shown, b"") if shown else head
    known = known.replace(HOST, HOST + b"authorization: Bearer " + token("root").encode() + b"\r\n")
    protocol, transport = connect(admin.new_connection(listener))
    protocol.data_received(known)
    for _ in range(3):
        protocol.data_received(MEGABYTE)
        await turns(40)
    assert house.broker.serving.memory.held_bytes == 3 * len(MEGABYTE)
    assert not re.match(rb"HTTP/1.1 \d", bytes(transport.said)), "its own is read to its end"
    transport.close()
    await admin.drain()
