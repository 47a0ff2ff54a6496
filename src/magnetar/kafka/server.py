"""The sockets of Kafka's protocol: each connection feeds a ``Conversation`` and writes what it says."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from magnetar.broker.listeners import Listener
from magnetar.broker.settings import Settings
from magnetar.broker.writing import write_parts
from magnetar.kafka.connection import Conversation
from magnetar.kafka.context import Services
from magnetar.kafka.login import login_for
from magnetar.kafka.wire.frames import FrameReader, scratch_buffer
from magnetar.records.compression import Buffer

_MOST_WAITING_FRAMES = 8
_WRITE_HIGH_BYTES = 1 << 20
_log = logging.getLogger("magnetar.kafka")


class KafkaServer:
    """All connections of one broker, and what bounds them together."""

    def __init__(self, services: Services, settings: Settings) -> None:
        self.services = services
        self.settings = settings
        self.connections: set[KafkaConnection] = set()
        self.per_host: Counter[str] = Counter()
        self.scratch = scratch_buffer()
        self.held_bytes = 0
        self._held_back: set[KafkaConnection] = set()
        self._idle_check: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look for connections that nobody uses."""
        every = max(self.settings.connections_max_idle_ms / 1000 / 10, 1.0)
        loop = asyncio.get_running_loop()

        def check() -> None:
            limit = self.settings.connections_max_idle_ms / 1000
            for connection in list(self.connections):
                if (
                    limit > 0
                    and loop.time() - connection.last_heard > limit
                    and not connection.conversation.busy
                ):
                    connection.close()
            self._idle_check = loop.call_later(every, check)

        self._idle_check = loop.call_later(every, check)

    def connection(self, listener: Listener) -> KafkaConnection:
        """Give what talks to one client."""
        return KafkaConnection(self, listener)

    def hold(self, size: int) -> None:
        """Count bytes of requests that are under way; past the budget, clients are slowed by not reading on."""
        self.held_bytes += size
        if size < 0 and self._held_back and self.held_bytes <= self.settings.memory_requests_bytes:
            released, self._held_back = self._held_back, set()
            for connection in released:
                connection.read_on()

    def is_over_budget(self, connection: KafkaConnection) -> bool:
        """Tell whether this connection must wait; it is told to read on later."""
        if self.held_bytes <= self.settings.memory_requests_bytes:
            return False
        self._held_back.add(connection)
        return True

    def close(self) -> None:
        """Let every client go."""
        if self._idle_check is not None:
            self._idle_check.cancel()
        for connection in list(self.connections):
            connection.close()


class KafkaConnection(asyncio.BufferedProtocol):
    """One socket."""

    def __init__(self, server: KafkaServer, listener: Listener) -> None:
        self._server = server
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader(server.settings.socket_request_max_bytes, server.scratch)
        self._transport: Any = None
        self._reading = True
        self._full = False
        self.conversation: Conversation
        self.last_heard = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        host = str(peer[0]) if isinstance(peer, tuple) else "local"
        server = self._server
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert() if tls else None
        services = server.services
        login = login_for(services.broker, self._listener, certificate, services.tenancy)
        if login is not None and not login.is_done:
            self._frames.allow(server.settings.sasl_server_max_receive_size)
        self.conversation = Conversation(
            server.services, self._listener, host, self._frames, self._send, self._end, server.hold, login
        )
        self.last_heard = self._loop.time()
        server.connections.add(self)
        server.per_host[host] += 1
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        settings = server.settings
        if (
            len(server.connections) > settings.max_connections
            or server.per_host[host] > settings.max_connections_per_ip
        ):
            self.conversation.refuse("too many connections")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.buffer_updated(nbytes)
        self.last_heard = self._loop.time()
        self._go_on()
        self._server.services.broker.idle_poll.heard(nbytes)

    def _go_on(self) -> None:
        if not self._full:
            self.conversation.go_on()
        if self._reading and (
            self._frames.waiting > _MOST_WAITING_FRAMES or self._server.is_over_budget(self)
        ):
            self._reading = False
            self._transport.pause_reading()

    def read_on(self) -> None:
        """Read again, if it is this connection's turn."""
        if (
            not self._reading
            and self._frames.waiting <= _MOST_WAITING_FRAMES
            and not self._transport.is_closing()
        ):
            self._reading = True
            self._transport.resume_reading()

    def _send(self, parts: Sequence[Buffer]) -> None:
        # TLS would make a record, with its overhead, of each part.
        write_parts(self._transport, parts, whole=self._listener.tls)
        self.last_heard = self._loop.time()
        if not self._reading:
            self._loop.call_soon(self._catch_up)

    def _catch_up(self) -> None:
        if not self._transport.is_closing():
            self._go_on()
            if self._server.held_bytes <= self._server.settings.memory_requests_bytes:
                self.read_on()

    def pause_writing(self) -> None:
        """The client reads slower than it asks: take up no more of its requests until it has caught up."""
        self._full = True
        self.conversation.pause()

    def resume_writing(self) -> None:
        self._full = False
        self.conversation.resume()
        self._catch_up()

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.conversation.hang_up()
        self._server.connections.discard(self)
        self._server.per_host[self.conversation.peer] -= 1
        if self._server.per_host[self.conversation.peer] <= 0:
            del self._server.per_host[self.conversation.peer]

    def _end(self) -> None:
        self._transport.close()

    def close(self) -> None:
        self.conversation.close()
