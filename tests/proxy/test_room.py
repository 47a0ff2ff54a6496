"""Room in the proxy's memory: no client waits for what its own requests hold, or for what has gone out long ago."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
import uvloop

from magnetar.client.security import ClientSecurity
from magnetar.kafka.server import KafkaSocket
from magnetar.proxy.figures import PassingFigures, RelayFigures
from magnetar.proxy.kafka.server import KafkaProxy, ProxiedSocket
from magnetar.proxy.pulsar.broker_side import WRITE_HIGH_BYTES
from magnetar.proxy.pulsar.server import PulsarClient, PulsarProxy
from magnetar.proxy.settings import ProxySettings
from magnetar.pulsar.server import PulsarSocket
from magnetar.pulsar.serving import PulsarServingState
from magnetar.serving.connections import Connections
from magnetar.serving.listeners import Endpoint, Listener
from magnetar.serving.memory import MIN_BYTES, MemoryBudget
from magnetar.serving.reading import ReadingState
from magnetar.settings.connection import ConnectionSettings
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.frames import KafkaFrameReader
from tests.hostile.doors import QUESTIONS, Speech
from tests.waiting import until_so

BUDGET = 16 << 20
FRAME = (192 << 10).to_bytes(4, "big") + bytes(192 << 10)
HERE = Endpoint("127.0.0.1", 0)
LISTENER = Listener("PLAINTEXT", "PLAINTEXT", HERE, HERE)


def settings(broker_url: str = "") -> Settings:
    def of(part: type) -> Any:
        return ProxySettings(broker_service_url=broker_url) if part is ProxySettings else part()

    return cast(Settings, SimpleNamespace(of=of, connections=ConnectionSettings()))


def kafka_socket(memory: MemoryBudget) -> ProxiedSocket:
    given = settings()
    proxy = KafkaProxy(given, ClientSecurity(), memory, Connections(lambda: given), RelayFigures())
    made = proxy.connection(LISTENER)
    transport = Mock()
    transport.is_closing.return_value, transport.get_extra_info.return_value = False, None
    made.connection_made(transport)
    return made


class Answers:
    """A connection to a broker: how much has come of an answer that is not whole, and whether it is read."""

    def __init__(self) -> None:
        self.held_bytes, self.reads, self.closed = 0, True, False
        self.on_change: Callable[[], None]

    def read(self, wanted: bool) -> None:
        self.reads = wanted


@pytest.mark.parametrize("event", ["bytes came", "there is room"])
async def test_the_answer_that_gives_memory_back_is_read_without_room(event: str) -> None:
    memory = MemoryBudget(BUDGET, BUDGET)
    made, answers = kafka_socket(memory), Answers()
    made.client.upstreams._use(cast(Any, answers), ("broker", 9092))
    others = memory.account(lambda: None, known=True)
    others.charge(BUDGET)
    assert others.may_take_more(), "it is the one whose request is to get whole"
    made.account.charge(900_000)  # a request that is with the broker
    assert not made.account.may_take_more()

    def happens(held_bytes: int) -> bool:
        answers.held_bytes = held_bytes
        answers.on_change()
        if event == "there is room":
            made._resumed()
        return answers.reads

    assert happens(4)
    assert happens(MIN_BYTES)
    assert not happens(MIN_BYTES + 1), "more of it waits for room"
    assert happens(0)


class Passing:
    """A Pulsar client, the proxy, and a broker, which takes and says what a test has it."""

    def __init__(self) -> None:
        self.memory = MemoryBudget(BUDGET, BUDGET)
        self.figures = PassingFigures()
        self.loop = asyncio.get_running_loop()

    async def open(self) -> None:
        listening, self.client = socket.create_server(("127.0.0.1", 0)), socket.socket()
        for each in (listening, self.client):
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)  # it does not grow by itself then
        given = settings(f"pulsar://127.0.0.1:{listening.getsockname()[1]}")
        self.proxy = PulsarProxy(
            given, self.memory, Connections(lambda: given), self.figures, ClientSecurity().context
        )
        server = await self.loop.create_server(lambda: self.proxy.connection(LISTENER), "127.0.0.1", 0)
        await self.loop.sock_connect(self.client, server.sockets[0].getsockname()[:2])
        await self.loop.sock_sendall(self.client, QUESTIONS[Speech.PULSAR])
        self.broker, _ = await self.loop.sock_accept(listening)
        self.broker.setblocking(False)
        self.passing: PulsarClient = next(iter(self.proxy.clients))
        await until_so(lambda: self.passing._broker is not None and self.passing._reads)
        await self.loop.sock_recv(self.broker, 1 << 16)  # CONNECT
        for each in (server, listening):
            each.close()

    def close(self) -> None:
        self.proxy.close()
        self.client.close()
        self.broker.close()

    def unsent(self, to_broker: bool) -> int:
        side = cast(Any, self.passing._broker).transport if to_broker else self.passing._transport
        return int(side.get_write_buffer_size())

    def passed(self, to_broker: bool) -> int:
        return self.figures.bytes_in if to_broker else self.figures.bytes_out

    async def fill(self, to_broker: bool) -> None:
        """Send until the proxy holds some, but less than is reported to it."""
        sends, sent = self.client if to_broker else self.broker, 0
        while self.unsent(to_broker) <= MIN_BYTES:
            await self.loop.sock_sendall(sends, FRAME)
            sent += len(FRAME)
            await until_so(lambda sent=sent: self.passed(to_broker) == sent, 0.001)
            seen = [-1]
            await until_so(lambda seen=seen: self._is_settled(to_broker, seen), 0.005)
        assert self.unsent(to_broker) < WRITE_HIGH_BYTES

    def _is_settled(self, to_broker: bool, seen: list[int]) -> bool:
        """True if the system takes no more."""
        seen.append(self.unsent(to_broker))
        return seen[-1] == seen[-2]

    async def take_all(self, to_broker: bool) -> None:
        takes = self.broker if to_broker else self.client
        left = self.passed(to_broker)
        while left > 0:
            left -= len(await self.loop.sock_recv(takes, 1 << 20))


@pytest.mark.parametrize("to_broker", [True, False], ids=["to the broker", "to the client"])
@pytest.mark.parametrize("has_room", [True, False], ids=["others have room", "it waits for room"])
def test_what_has_gone_out_is_counted_no_more(to_broker: bool, has_room: bool) -> None:
    async def run() -> None:
        passing = Passing()
        await passing.open()
        await passing.fill(to_broker)
        others = passing.memory.account(lambda: None, known=True)
        if not has_room:
            others.charge(BUDGET)
            assert others.may_take_more(), "it is the one whose request is to get whole"
        passing.passing.broker_takes(True)
        account = passing.passing.account
        assert account.held_bytes > MIN_BYTES
        assert passing.memory.is_short is not has_room
        if has_room:
            passing.proxy.start()
        await passing.take_all(to_broker)
        await until_so(lambda: account.held_bytes == 0)
        others.close()
        await until_so(lambda: not passing.memory.is_short)
        for side in (passing.passing._transport, cast(Any, passing.passing._broker).transport):
            assert side.get_write_buffer_limits()[1] == WRITE_HIGH_BYTES
        passing.close()

    uvloop.run(run())


async def test_little_is_received_at_a_stretch_without_room() -> None:
    memory = MemoryBudget(BUDGET, BUDGET)
    given = settings("pulsar://127.0.0.1:1")
    proxy = PulsarProxy(given, memory, Connections(lambda: given), PassingFigures(), ClientSecurity().context)
    client = proxy.connection(LISTENER)
    assert len(client.get_buffer(-1)) == 256 << 10
    others = memory.account(lambda: None, known=True)
    others.charge(BUDGET)
    assert len(client.get_buffer(-1)) == 16 << 10
    others.charge(-1)
    assert len(client.get_buffer(-1)) == 256 << 10


@pytest.mark.parametrize(
    ("kind", "short"),
    [
        (KafkaSocket, {"_reading": SimpleNamespace(state=ReadingState.SHORT)}),
        (ProxiedSocket, {"_reading": SimpleNamespace(state=ReadingState.SHORT)}),
        (PulsarSocket, {"_serving": SimpleNamespace(state=PulsarServingState.SHORT)}),
    ],
)
def test_a_client_is_not_waited_for_whose_requests_are_all_under_way(kind: Any, short: Any) -> None:
    frames = KafkaFrameReader()
    client = SimpleNamespace(_frames=frames, frames=frames, _went_on_at=10.0, **short)
    assert not kind.waits_since(client, 20.0)
    frames.feed(bytes(3))
    assert kind.waits_since(client, 20.0)
    assert not kind.waits_since(client, 5.0)
