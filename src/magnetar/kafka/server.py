"""The sockets of Kafka's protocol: each connection feeds a ``KafkaConnection`` and writes what it says."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from magnetar.base.slices import PacedTurns
from magnetar.kafka.connection import KafkaConnection
from magnetar.kafka.services import KafkaServices
from magnetar.kafka.settings import KafkaSettings
from magnetar.records.compression import Buffer
from magnetar.serving.listeners import Listener
from magnetar.serving.memory import MIN_BYTES, Account
from magnetar.serving.pace import paced
from magnetar.serving.reading import Reading, ReadingState
from magnetar.serving.unread import LOOK_S, LOOK_SHORT_S, Unread, end_if_stuck, look_at_unread
from magnetar.serving.writing import write_parts
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.frames import KafkaFrameReader, scratch_buffer

if TYPE_CHECKING:
    from magnetar.kafka.tenancy import Tenancy

_WRITE_HIGH_BYTES = 64 << 10
"""Of answers that the system has not taken; beyond, nothing more of the client is taken up."""
_log = logging.getLogger("magnetar.kafka")


class Writing(Enum):
    """Whether a socket takes what is written."""

    FREE = auto()
    FULL = auto()
    """What the system has not taken is more than may be."""
    LOST = auto()


class KafkaServer:
    """All connections of one broker, and what bounds them together."""

    def __init__(self, services: KafkaServices, settings: Settings, tenancy: Tenancy | None = None) -> None:
        self.services = services
        self.tenancy = tenancy
        self.settings = settings
        self.memory = services.broker.serving.memory
        self.connections: set[KafkaSocket] = set()
        self.scratch = scratch_buffer()
        self.leaving = PacedTurns()
        """What is done for connections that are gone."""
        self._looks_at = 0.0
        """When all connections are looked at, and not only those that wait for memory."""

    def start(self) -> None:
        """Begin to look for connections that nobody uses, or that hold up others."""
        self.services.broker.background.repeat(
            "looking after Kafka's connections",
            lambda: LOOK_SHORT_S if self.memory.is_short else LOOK_S,
            self._look_around,
        )

    async def _look_around(self) -> None:
        now = asyncio.get_running_loop().time()
        look_at_unread(self.memory, list(self.connections), now)
        if now < self._looks_at:
            return
        self._looks_at = now + LOOK_S
        longest = self.settings.connections.connections_max_idle_ms / 1000
        async for connection in paced(list(self.connections)):
            if longest > 0 and now - connection.last_heard > longest:
                connection.give_up("it was idle for too long")
            else:
                end_if_stuck(self.memory, connection, now)

    def serves(self, listeners: Iterable[Listener]) -> None:
        """Load what asks clients who they are now, and not while others wait, if any listener does."""
        if any(map(self.asks_at, listeners)):
            for each in ("magnetar.kafka.login", "magnetar.kafka.authorization"):
                import_module(each)

    def asks_at(self, listener: Listener) -> bool:
        """Return whether those who come to a listener without a certificate are asked who they are."""
        return listener.sasl or self.services.broker.security.authentication.enabled

    def connection(self, listener: Listener) -> KafkaSocket:
        """Return what talks to one client."""
        return KafkaSocket(self, listener)

    def close(self) -> None:
        """Let every client go."""
        for connection in list(self.connections):
            connection.close()


class KafkaSocket(asyncio.BufferedProtocol):
    """One socket."""

    _lingers_s = 0.0
    """How long it stays open, unheard, once its conversation has ended."""

    def __init__(self, server: KafkaServer, listener: Listener) -> None:
        self._server = server
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._frames = KafkaFrameReader(
            server.settings.of(KafkaSettings).socket_request_max_bytes, server.scratch, server.memory.lending
        )
        self.get_buffer = self._frames.get_buffer  # type: ignore[method-assign,assignment]  # before each read
        self._writes_whole = listener.tls  # TLS would make a record, with its overhead, of each part
        self._transport: Any = None
        self._writing = Writing.FREE
        self._unsent = 0  # of answers that the client does not take
        self._went_on_at = 0.0
        self._reading: Reading
        self.descriptor = -1
        self.account: Account
        self.conversation: KafkaConnection
        self.last_heard = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        host = str(peer[0]) if isinstance(peer, tuple) else "local"
        server, settings = self._server, self._server.settings
        self.descriptor = size_buffers(transport.get_extra_info("socket"), settings)
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert() if tls else None
        services = server.services
        login = None
        if certificate or server.asks_at(self._listener):
            from magnetar.kafka.login import login_for  # most brokers ask nobody

            login = login_for(services.broker, self._listener, certificate, server.tenancy, host)
        is_known = login is None or login.is_done
        if not is_known:
            own = settings.at(self._listener.name).of(KafkaSettings)
            self._frames.allow(own.sasl_server_max_receive_size)
        self.account = server.memory.account(
            self._resumed, known=is_known, missing=lambda: self._frames.missing_bytes
        )
        self._reading = Reading(
            settings.of(KafkaSettings).queued_max_requests, self.account.may_take_more, self._switch
        )
        self.conversation = KafkaConnection(
            server.services,
            self._listener,
            host,
            self._frames,
            self._send,
            self._end,
            self.account,
            login,
            self._reading.look,
            self._reading.mute,
        )
        self.last_heard = self._went_on_at = self._loop.time()
        server.connections.add(self)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        if not services.broker.serving.connections.came(host):
            self.conversation.refuse("too many connections")
        elif (wait_ms := services.quotas.connected(host)) > 0:
            self._wait_and_end(wait_ms)

    def _wait_and_end(self, wait_ms: int) -> None:
        """Hear nothing of a client whose address has made too many connections, and close its own after a while.

        As in Kafka: it would come back at once otherwise.
        """
        self._lingers_s = wait_ms / 1000
        self.conversation.close()

    def _pause(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.buffer_updated(nbytes)
        self.last_heard = self._loop.time()
        if self._frames.waiting:
            self._went_on_at = self.last_heard
        self.conversation.go_on()
        self._server.services.broker.serving.idle_poll.heard(nbytes)

    def _resumed(self) -> None:
        """There is room again; what a client that is gone had sent whole may wait for it, too."""
        self.conversation.go_on()

    def _switch(self, on: bool) -> None:
        if self._transport.is_closing():
            return
        if on:
            self._transport.resume_reading()
        else:
            self._went_on_at = self._loop.time()
            self._transport.pause_reading()

    def _send(self, parts: Sequence[Buffer]) -> None:
        if self._writing is Writing.LOST:
            return
        write_parts(self._transport, parts, whole=self._writes_whole)
        self.last_heard = self._loop.time()
        if self._writing is Writing.FULL:
            self._count_unsent()

    def _count_unsent(self) -> None:
        unsent = self._transport.get_write_buffer_size() if self._writing is Writing.FULL else 0
        counted, self._unsent = self._unsent, unsent
        self.account.charge(unsent - counted)

    def pause_writing(self) -> None:
        """The client reads slower than it asks: take up no more of its requests until it has caught up."""
        self._writing = Writing.FULL
        self._went_on_at = self._loop.time()
        self._count_unsent()
        self.conversation.pause()

    def resume_writing(self) -> None:
        self._writing = Writing.FREE
        self._count_unsent()
        self.conversation.resume()

    @property
    def listener_name(self) -> str:
        """The name of the listener that it came by."""
        return self._listener.name

    @property
    def is_read(self) -> bool:
        """Whether its socket is read, so that the client's end would be noticed."""
        return self._reading.state is ReadingState.READING

    @property
    def unread_descriptor(self) -> int:
        return -1 if self.is_read else self.descriptor

    def left(self, socket: Unread) -> None:
        """The client has gone; what it had sent whole is still to be read, unless its end took that along."""
        self._server.leaving.add(partial(self._left, socket))

    def _left(self, socket: Unread) -> None:
        if self._writing is Writing.LOST:
            return
        self.conversation.leave()
        if socket.ends_amid(self._frames.missing_bytes, tls=self._listener.tls):
            self._transport.abort()

    def is_stuck(self, since: float) -> bool:
        """Whether it holds much, and for so long it is the client that does not go on, or may not."""
        waits_for_client = (
            self._writing is Writing.FULL
            or self._reading.state is ReadingState.MUTED
            or (self.is_read and self._frames.is_amid_frame)
        )
        return waits_for_client and self._went_on_at < since and self.account.held_bytes > MIN_BYTES

    def waits_since(self, since: float) -> bool:
        """Whether what has come and was not begun has waited for room for so long."""
        is_short = self._reading.state is ReadingState.SHORT and self._went_on_at < since
        return is_short and self._frames.held_bytes > 0

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._writing = Writing.LOST
        self.descriptor = -1
        self._reading.end()
        self._server.services.broker.serving.connections.left(self.conversation.peer)
        self._server.leaving.add(self._take_leave)

    def _take_leave(self) -> None:
        self.conversation.hang_up()
        self._close_account()
        self._server.connections.discard(self)

    def _end(self) -> None:
        self._reading.end()
        if self._lingers_s:
            # The transport begins to read after `connection_made`, whatever was said there.
            self._loop.call_soon(self._pause)
            self._loop.call_later(self._lingers_s, self._transport.abort)
        else:
            self._transport.close()
        self._close_account()

    def _close_account(self) -> None:
        """Let go of all, once nothing is sent and nothing is carried out any more."""
        if self._writing is Writing.LOST and self.conversation.has_ended:
            self._frames.close()
            self.account.close()

    def give_up(self, why: str) -> None:
        """End it whether or not the client takes what it was to be sent."""
        self.conversation.refuse(why)
        self._transport.abort()

    def close(self) -> None:
        self.conversation.close()


def size_buffers(sock: Any, settings: Settings) -> int:
    """Set the buffers of a socket as asked for; return its descriptor, -1 if there is none."""
    if sock is None:
        return -1
    sizes = (
        (socket.SO_SNDBUF, settings.of(KafkaSettings).socket_send_buffer_bytes),
        (socket.SO_RCVBUF, settings.of(KafkaSettings).socket_receive_buffer_bytes),
    )
    for option, size in sizes:
        if size > 0:
            sock.setsockopt(socket.SOL_SOCKET, option, size)
    return int(sock.fileno())
