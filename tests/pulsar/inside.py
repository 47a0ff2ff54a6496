"""A broker for Pulsar's clients in this very process: sockets are replaced, and everything behind them is as it is.

So that what depends on the order of things can be put in any order, and what must be bounded can be counted.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from magnetar.ledger.memory import MemoryEngine
from magnetar.metadata import MemoryStore
from magnetar.node.broker import Broker
from magnetar.node.duties import Duties
from magnetar.pulsar.handler import PulsarProtocolHandler
from magnetar.pulsar.server import PulsarServer, PulsarSocket
from magnetar.pulsar.services import PulsarServices
from magnetar.records.compression import Buffer
from magnetar.schema_registry.handler import SchemaRegistryHandler
from magnetar.serving.listeners import Endpoint, Listener
from magnetar.settings.settings import Settings
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.pulsar import raw

_ASIDE = (BaseCommand.PING, BaseCommand.CONNECTED)
LISTENER = Listener("PULSAR", "PLAINTEXT", Endpoint("127.0.0.1", 6650), Endpoint("127.0.0.1", 6650))


class Inside:
    """The broker; ``client`` gives who talks to it."""

    def __init__(self, broker: Broker, handler: PulsarProtocolHandler) -> None:
        self.broker = broker
        self.handler = handler
        self.services: PulsarServices = handler.services
        self.server: PulsarServer = handler._server

    def client(self, *, connect: bool = True, host: str = "127.0.0.1") -> Client:
        """Return a client, that has introduced itself unless told otherwise."""
        made = Client(self.server, host)
        if connect:
            made.send(raw.hello())
        return made


@asynccontextmanager
async def inside(engine: MemoryEngine | None = None, **settings: str) -> AsyncIterator[Inside]:
    """Return a broker that keeps everything in memory; settings are named as Pulsar's ``broker.conf`` has them."""
    store = MemoryStore()
    engine = engine or MemoryEngine(store)
    await engine.start()
    given = Settings().with_values(settings)
    broker = Broker(given, store, engine)
    await broker.start()
    registry, handler = SchemaRegistryHandler(), PulsarProtocolHandler()
    for each in (registry, handler):
        each.initialize(given)
        await each.start(broker)
    Duties(broker).start()
    try:
        yield Inside(broker, handler)
    finally:
        await handler.drain()
        await registry.drain()
        await handler.close()
        await broker.background.close()
        await engine.close()


class Client:
    """One connection; it takes what it is sent while ``takes``, and hears it only when a turn of the loop is over."""

    def __init__(self, server: PulsarServer, host: str) -> None:
        self._heard: deque[BaseCommand] = deque()
        self.transport = Transport(host)
        self.socket: PulsarSocket = server.connection(LISTENER)
        self.transport.protocol = self.socket
        self.socket.connection_made(self.transport)

    def send(self, *commands: BaseCommand | tuple[BaseCommand, bytes]) -> None:
        """Send commands, each with an entry or without, in one write."""
        self.feed(
            b"".join(raw.frame(*each) if isinstance(each, tuple) else raw.frame(each) for each in commands)
        )

    def feed(self, data: bytes) -> None:
        """Send bytes; what is not read at once waits, as it would in the kernel."""
        self.transport.coming += data
        self.transport.deliver()

    def heard(self) -> list[BaseCommand]:
        """Take what has been answered since the last time."""
        data, at = bytes(self.transport.taken), 0
        while len(data) - at >= 4:
            (size,) = struct.unpack_from(">I", data, at)
            if len(data) - at - 4 < size:
                break
            (length,) = struct.unpack_from(">I", data, at + 4)
            self._heard.append(BaseCommand.FromString(data[at + 8 : at + 8 + length]))
            at += 4 + size
        del self.transport.taken[:at]
        found = list(self._heard)
        self._heard.clear()
        return found

    async def hears(self, *types: BaseCommand.Type, turns: int = 2000) -> BaseCommand:
        """Return the first answer of these types, or of any (pings do not count); forget what was before it."""
        for turn in range(turns):
            self._heard.extend(self.heard())
            while self._heard:
                each = self._heard.popleft()
                if each.type in types or (not types and each.type not in _ASIDE):
                    return each
            # Some work is done in threads, which other processes may keep waiting.
            await asyncio.sleep(0.02 if turn >= 1000 else 0.001 if turn % 10 == 9 else 0)
        raise AssertionError("no answer")

    async def ask(self, *commands: BaseCommand | tuple[BaseCommand, bytes]) -> BaseCommand:
        """Send commands and give the first answer."""
        self.heard()
        self.send(*commands)
        return await self.hears()

    @property
    def is_open(self) -> bool:
        return not self.transport.closed

    def leave(self) -> None:
        """Hang up."""
        self.transport.abort()


class Transport(asyncio.WriteTransport):
    """What stands for a socket: it counts what nobody has taken, and pauses whoever writes more, as asyncio's do."""

    def __init__(self, host: str) -> None:
        self.protocol: Any = None
        self.host = host
        self.takes = True
        self.taken = bytearray()
        self.unsent = 0
        self.max_unsent = 0
        self.high = 1 << 16
        self.coming = bytearray()
        self.reading = True
        self.paused = False
        self.closed = False
        self.closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.host, 1000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or self.high

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
        asyncio.get_running_loop().call_soon(self.deliver)

    def deliver(self) -> None:
        while self.coming and self.reading and not self.closed and not self.closing:
            buffer = self.protocol.get_buffer(-1)
            count = min(len(buffer), len(self.coming))
            buffer[:count] = self.coming[:count]
            del self.coming[:count]
            self.protocol.buffer_updated(count)

    def write(self, data: Buffer) -> None:
        if self.closed:
            return
        self.taken += data
        if not self.takes:
            self.unsent += len(data)
            self.max_unsent = max(self.max_unsent, self.unsent)
            if self.unsent > self.high and not self.paused:
                self.paused = True
                self.protocol.pause_writing()

    def writelines(self, parts: Sequence[Buffer]) -> None:
        self.write(b"".join(parts))

    def take(self) -> None:
        """The client reads again."""
        self.takes, self.unsent = True, 0
        if self.paused:
            self.paused = False
            self.protocol.resume_writing()

    def is_closing(self) -> bool:
        return self.closed or self.closing

    def close(self) -> None:
        self.closing = True
        if self.unsent == 0:
            self.abort()

    def abort(self) -> None:
        self.closing = True
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


async def settled(turns: int = 50) -> None:
    """Let everything go on that can."""
    for _ in range(turns):
        await asyncio.sleep(0)
