"""Which broker the proxy passes a request of the admin REST to, and what clients may cost it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing

import pytest

from magnetar.proxy.figures import ProxyFigures
from magnetar.proxy.settings import ProxySettings
from magnetar.proxy.web import WebProxy, _Request
from magnetar.serving.connections import Connections
from magnetar.serving.memory import MemoryBudget
from magnetar.settings.settings import Settings
from magnetar.web import http as web
from tests.broker.test_web_limits import CHUNKED, HOST, TINY, connect, sent_to, turns
from tests.waiting import PATIENCE_S

_ASKED = _Request(b"GET", b"/admin/v2/clusters", [], b"")
_HOSTS = [f"127.0.0.{number}" for number in range(1, 40)]


BUDGET = 16 << 20


def web_proxy(urls: str, memory: MemoryBudget | None = None) -> WebProxy:
    own = ProxySettings(broker_web_service_url=urls, proxy_request_timeout_ms=3_600_000)
    settings = Settings(own)
    memory = memory or MemoryBudget(BUDGET, BUDGET // 8)
    return WebProxy(lambda: settings, memory, Connections(lambda: settings), ProxyFigures())


class Brokers:
    """Each answers every request with its number."""

    def __init__(self, servers: list[asyncio.Server]) -> None:
        self.servers = servers
        urls = [f"http://127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in servers]
        self.proxy = web_proxy(",".join(urls))

    async def of(self, host: str) -> int:
        """Return which broker answers a client at this address."""
        _, broker = await self.proxy.answered(_ASKED, host)
        with closing(broker):
            return int(b"".join([part async for part in broker.body()]))


@pytest.fixture
async def brokers() -> AsyncIterator[Brokers]:
    servers = []
    for number in range(3):

        async def serve(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int = number
        ) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number)
            await writer.drain()
            writer.close()

        servers.append(await asyncio.start_server(serve, "127.0.0.1", 0))
    yield Brokers(servers)
    for each in servers:
        each.close()


async def test_a_client_stays_with_one_broker_and_many_are_shared_out(brokers: Brokers) -> None:
    """Another broker would hear a moment later of what the client has just made."""
    first = {host: await brokers.of(host) for host in _HOSTS}
    assert set(first.values()) == {0, 1, 2}
    for host in _HOSTS:
        assert {await brokers.of(host) for _ in range(5)} == {first[host]}


async def test_whose_broker_is_gone_has_another(brokers: Brokers) -> None:
    before = {host: await brokers.of(host) for host in _HOSTS}
    brokers.servers[1].close()
    after = {host: await brokers.of(host) for host in _HOSTS}
    for host, number in before.items():
        assert after[host] == number if number != 1 else after[host] in (0, 2)


_HEAD = b"POST /admin/v2/x HTTP/1.1\r\n" + HOST
_LARGE = b"content-length: 8000000\r\n\r\n"


class Behind:
    """A broker that hears all that a request has and says what it was made to say; ``open`` are its connections."""

    def __init__(self, said: bytes) -> None:
        self._said = said
        self.memory = MemoryBudget(BUDGET, BUDGET // 8)
        self.open = 0
        self.heard: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self._said)
        while data := await reader.read(1 << 16):
            self.heard[-1] += data
        self.open -= 1
        writer.close()


@asynccontextmanager
async def behind(said: bytes) -> AsyncIterator[tuple[Behind, WebProxy]]:
    broker = Behind(said)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    proxy = web_proxy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", broker.memory)
    yield broker, proxy
    proxy.close()
    server.close()


async def until(is_so: Callable[[], bool]) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE_S
    while not is_so():
        assert loop.time() < end, "it did not come about"
        await asyncio.sleep(0.01)


async def test_bodies_that_do_not_end_keep_no_more_than_strangers_may() -> None:
    async with behind(b"") as (broker, proxy):
        clients = [connect(proxy.port.connection()) for _ in range(100)]
        for protocol, _ in clients:
            protocol.data_received(_HEAD + _LARGE)
        most, piece = 0, bytes(64 << 10)
        for _ in range(100):
            await turns(1)
            for protocol, transport in clients:
                sent_to(protocol, transport, piece)
            most = max(most, broker.memory.held_bytes)
        assert most < BUDGET + len(clients) * (128 << 10)
        sent_to(*connect(proxy.port.connection()), b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
        assert broker.heard == []
        for _, transport in clients:
            transport.close()
        await until(lambda: broker.memory.held_bytes == 0)


@pytest.mark.parametrize(
    ("sent", "goes_s"),
    [
        (b"", web.HEAD_S),
        (_HEAD, web.HEAD_S),
        (_HEAD + b"content-length: 10\r\n\r\nabc", web.BODY_S),
    ],
    ids=["silent", "half a head", "half a body"],
)
async def test_a_byte_now_and_then_does_not_count_as_going_on(sent: bytes, goes_s: float) -> None:
    async with behind(b"") as (_, proxy):
        protocol, transport = connect(proxy.port.connection())
        begun = asyncio.get_running_loop().time()
        for byte in sent:
            protocol.data_received(bytes([byte]))
        await turns()
        proxy.port.look(begun + goes_s - 1)
        assert not transport.closed
        proxy.port.look(begun + goes_s + 2)
        assert transport.closed


async def test_what_comes_in_a_million_chunks_is_refused() -> None:
    async with behind(b"") as (broker, proxy):
        protocol, transport = connect(proxy.port.connection())
        sent_to(protocol, transport, CHUNKED)
        while not transport.closed:
            sent_to(protocol, transport, TINY * 100)
            await turns()
        assert transport.said.startswith(b"HTTP/1.1 400")
        assert broker.heard == []


_TWO_LENGTHS = b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n"


async def test_a_body_of_two_lengths_is_refused_and_what_follows_is_no_request() -> None:
    async with behind(b"") as (broker, proxy):
        protocol, transport = connect(proxy.port.connection())
        sent_to(
            protocol, transport, _HEAD + _TWO_LENGTHS + b"0\r\n\r\nGET /health HTTP/1.1\r\n" + HOST + b"\r\n"
        )
        await turns()
        assert transport.closed
        assert transport.said.count(b"HTTP/1.1") == 1
        assert transport.said.startswith(b"HTTP/1.1 400")
        assert broker.heard == []


async def test_a_body_in_chunks_has_a_length_behind_the_proxy() -> None:
    async with behind(b"HTTP/1.1 200 As I like\r\nContent-Length: 2\r\n\r\nok") as (broker, proxy):
        protocol, transport = connect(proxy.port.connection())
        sent_to(
            protocol,
            transport,
            _HEAD + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n",
        )
        await until(lambda: transport.said.endswith(b"ok"))
        assert transport.said.startswith(b"HTTP/1.1 200 As I like\r\n")
        (heard,) = broker.heard
        assert b"content-length: 7\r\n" in heard
        assert b"transfer-encoding" not in heard
        assert heard.endswith(b"\r\n\r\nabcdefg")
        await until(lambda: broker.open == 0 and broker.memory.held_bytes == 0)
        sent_to(protocol, transport, b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n")
        await until(lambda: transport.said.endswith(b"ok\n"))


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"nonsense\r\n\r\n", b"HTTP/1.1 502"),
        (b"HTTP/1.1 307 x\r\nLocation: nowhere\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 502"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabcHTTP/1.1 nonsense", b"HTTP/1.1 200"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", b"HTTP/1.1 200"),
    ],
    ids=["no HTTP", "sent nowhere", "more than was said", "no chunk"],
)
async def test_a_broker_that_errs_is_not_kept(said: bytes, status: bytes) -> None:
    async with behind(said) as (broker, proxy):
        protocol, transport = connect(proxy.port.connection())
        sent_to(protocol, transport, b"GET /admin/v2/x HTTP/1.1\r\n" + HOST + b"\r\n")
        await until(lambda: len(broker.heard) == 1 and broker.open == 0)
        await until(lambda: transport.said.startswith(status))


async def test_a_client_that_leaves_takes_its_brokers_connection_along() -> None:
    async with behind(b"") as (broker, proxy):
        protocol, transport = connect(proxy.port.connection())
        sent_to(protocol, transport, b"GET /admin/v2/x HTTP/1.1\r\n" + HOST + b"\r\n")
        await until(lambda: broker.open == 1)
        transport.close()
        await until(lambda: broker.open == 0)
