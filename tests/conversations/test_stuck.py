"""Clients that leave others without room and do not go on are let go of after half a minute, and nobody before."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from magnetar.node.service import BrokerService
from magnetar.serving import memory
from magnetar.settings.settings import Settings
from magnetar.topics.new_topic import NewTopic
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from tests.conversations.test_gone import fetch, produce
from tests.hostile.client import frame, request_bytes
from tests.hostile.test_fuzz import kafka

LIMIT = 1 << 20
LATE_S, LATER_S = 28.0, 4.0
"""Not yet half a minute, and more than that together."""


class Clock:
    """The loop's time, which may be moved on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        self._moved = 0.0
        real = loop.time
        monkeypatch.setattr(loop, "time", lambda: real() + self._moved)

    async def pass_by(self, seconds: float) -> None:
        """Let so much time go by, and the broker look around after it."""
        self._moved += seconds
        for _ in range(3):
            self._moved += 1.1  # it looks every second
            await turns()


class Client:
    """One socket of a client that reads only when it is told to."""

    def __init__(self, service: BrokerService) -> None:
        bind = service.listeners["kafka"][0].bind
        self.socket = socket.create_connection((bind.host, bind.port))
        self.socket.setblocking(False)
        self._loop = asyncio.get_running_loop()

    async def say(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.socket, data)

    async def is_answered(self) -> bool:
        """Wait for bytes, and tell whether there are; False where the broker has hung up."""
        try:
            return bool(await self._loop.sock_recv(self.socket, 1 << 16))
        except ConnectionError:
            return False

    def is_let_go(self) -> bool:
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True


async def turns(count: int = 200) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def until(met: Callable[[], bool]) -> None:
    while not met():  # noqa: ASYNC110 - what it looks at tells nobody
        await asyncio.sleep(0)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[BrokerService]:
    texts = {
        "data.dir": str(tmp_path / "data"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "flush": "os",
        "memory.requests.bytes": str(LIMIT),
        "socket.send.buffer.bytes": "65536",
    }
    service = BrokerService(Settings().with_values(texts))
    await service.start()
    (topic,) = await service.broker.create_topics([NewTopic(service.broker.naming.parse("t"), 1)])
    await kafka(service).services.partitions.get(topic, 0)  # type: ignore[arg-type]
    yield service
    await service.close()


@pytest.fixture
async def clock(service: BrokerService, monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(asyncio.get_running_loop(), monkeypatch)


METADATA = frame(request_bytes(MetadataRequest(), 12))
LARGE = produce(bytes(700_000), acks=1)
HUGE = produce(bytes(4 << 20), acks=1)
"""Its missing part is so large that it waits for the one being finished; with LARGE it would pass."""


async def test_who_sends_half_of_a_frame_and_no_more_is_let_go(service: BrokerService, clock: Clock) -> None:
    held = service.broker.serving.memory
    stuck, small, waiting = Client(service), Client(service), Client(service)
    await stuck.say(HUGE[:600_000])
    await until(lambda: held.held_bytes >= 590_000)
    await small.say(METADATA[:20])
    sending = asyncio.ensure_future(waiting.say(HUGE))
    await until(lambda: held.is_short)
    await clock.pass_by(LATE_S - 10)
    assert not stuck.is_let_go()
    await stuck.say(HUGE[600_000:600_001])  # which does not make it go on
    await clock.pass_by(LATER_S)
    assert held.is_short
    assert not stuck.is_let_go()
    await clock.pass_by(10)
    assert stuck.is_let_go()
    assert await waiting.is_answered()
    await sending
    assert not small.is_let_go(), "it holds next to nothing"
    await small.say(METADATA[20:])
    assert await small.is_answered()
    await until(lambda: held.held_bytes == 0)


async def test_who_does_not_take_its_answers_is_let_go(service: BrokerService, clock: Clock) -> None:
    held = service.broker.serving.memory
    stuck, waiting = Client(service), Client(service)
    stuck.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for _ in range(4):
        await stuck.say(LARGE)
        assert await stuck.is_answered()
    for _ in range(12):
        await stuck.say(fetch())
    await until(lambda: held.held_bytes > 300_000)
    await turns()
    sending = asyncio.ensure_future(waiting.say(HUGE))
    await until(lambda: held.is_short)
    await clock.pass_by(LATE_S - 5)
    assert held.is_short
    await clock.pass_by(LATER_S + 5)
    assert await waiting.is_answered()
    await sending
    await until(lambda: held.held_bytes == 0)
    with pytest.raises(ConnectionError):
        while await stuck.is_answered():  # what the system had taken before
            pass
        raise ConnectionError


async def test_while_nobody_waits_a_slow_client_has_its_time(service: BrokerService, clock: Clock) -> None:
    slow = Client(service)
    await slow.say(LARGE[:600_000])
    await until(lambda: service.broker.serving.memory.held_bytes >= 590_000)
    await clock.pass_by(LATE_S + LATER_S)
    assert not slow.is_let_go()
    await slow.say(LARGE[600_000:])
    assert await slow.is_answered()


async def test_where_all_wait_for_all_who_holds_most_is_let_go(
    service: BrokerService, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "SPARE_BYTES", 1 << 20)
    held = service.broker.serving.memory
    connections = kafka(service)._server.connections
    most = Client(service)
    await most.say(HUGE[:600_000])
    await until(lambda: held.held_bytes >= 590_000)
    others: list[Client] = []
    while held.held_bytes < 1_700_000:
        others.append(Client(service))
        await others[-1].say(LARGE[:150_000])
        await turns()
    sending = [asyncio.ensure_future(most.say(HUGE[600_000:]))]
    await until(lambda: held.is_full)
    sending += [asyncio.ensure_future(each.say(LARGE[150_000:])) for each in others]
    await turns()
    assert all(not each.is_read for each in connections)
    await clock.pass_by(LATE_S - 5)
    assert len(connections) == len(others) + 1
    await clock.pass_by(LATER_S + 5)
    for each in others:
        assert await each.is_answered()
    assert not await most.is_answered()
    await asyncio.wait(sending)


async def test_half_a_frame_of_a_client_that_left_is_given_up_at_once(
    service: BrokerService, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "SPARE_BYTES", 1 << 20)
    held = service.broker.serving.memory
    connections = kafka(service)._server.connections
    gone = Client(service)
    await gone.say(HUGE[:600_000])
    await until(lambda: held.held_bytes >= 590_000)
    others: list[Client] = []
    while held.held_bytes < 1_700_000:
        others.append(Client(service))
        await others[-1].say(LARGE[:150_000])
        await turns()
    sending = asyncio.ensure_future(gone.say(HUGE[600_000:2_000_000]))
    await until(lambda: held.is_full)
    sendings = [asyncio.ensure_future(each.say(LARGE[150_000:])) for each in others]
    await turns()
    assert all(not each.is_read for each in connections)
    sending.cancel()
    await turns()
    gone.socket.close()
    await clock.pass_by(0.0)
    assert len(connections) == len(others), "what it had sent can never become a whole frame"
    for each in others:
        assert await each.is_answered()
    await asyncio.wait(sendings)
