"""The sockets of Pulsar's protocol: each feeds a ``Connection`` with frames and writes what it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from magnetar.broker.listeners import Listener
from magnetar.broker.settings import Settings
from magnetar.broker.writing import write_parts
from magnetar.pulsar.connection import Connection
from magnetar.pulsar.handlers.connect import check_expiry
from magnetar.pulsar.services import Services
from magnetar.pulsar.wire.frames import FRAME_PADDING_BYTES, BadFrame, FrameReader
from magnetar.records.compression import Buffer
from magnetar.records.framing import scratch_buffer

_WRITE_HIGH_BYTES = 1 << 20
_FRAMES_PER_TURN = 200


class PulsarServer:
    """All connections of one broker."""

    def __init__(self, services: Services, settings: Settings) -> None:
        self.services = services
        self.settings = settings
        self.connections: set[PulsarSocket] = set()
        self.scratch = scratch_buffer()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to look for clients that are silent."""
        loop = asyncio.get_running_loop()
        interval_s = self.settings.keep_alive_interval_ms / 1000

        def check() -> None:
            for connection in list(self.connections):
                connection.keep_alive(interval_s)
            self._timer = loop.call_later(interval_s / 2, check)

        self._timer = loop.call_later(interval_s / 2, check)

    def connection(self, listener: Listener) -> PulsarSocket:
        """Give what talks to one client."""
        return PulsarSocket(self, listener)

    def close(self) -> None:
        """Let every client go."""
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self.connections):
            connection.connection.end()


class PulsarSocket(asyncio.BufferedProtocol):
    """One socket."""

    def __init__(self, server: PulsarServer, listener: Listener) -> None:
        settings = server.settings
        self._server = server
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader(settings.pulsar_max_message_size + FRAME_PADDING_BYTES, server.scratch)
        self._most_unsettled = settings.max_pending_publish_requests_per_connection
        self._transport: Any = None
        self._reading = True
        self._alarm: asyncio.TimerHandle | None = None
        self._last_heard = 0.0
        self.connection: Connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        address = f"/{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "local"
        ssl_object = transport.get_extra_info("ssl_object")
        self.connection = Connection(
            self._server.services,
            self._listener,
            address,
            self._write,
            self.close,
            ssl_object.getpeercert() if ssl_object is not None else None,
        )
        self._last_heard = self._loop.time()
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        self._server.connections.add(self)
        if len(self._server.connections) > self._server.settings.max_connections:
            self.connection.refuse("too many connections")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.buffer_updated(nbytes)
        self._last_heard = self._loop.time()
        if self._reading:
            self._go_on()
        self._server.services.broker.idle_poll.heard(nbytes)

    def _go_on(self) -> None:
        """Take up whole frames, as long as not too many messages wait for the disk."""
        connection = self.connection
        try:
            for _ in range(_FRAMES_PER_TURN):
                if connection.unsettled >= self._most_unsettled or connection.throttled_s > 0:
                    break
                frame = self._frames.next_frame()
                if frame is None:
                    self._read(True)
                    return
                connection.receive(frame)
        except BadFrame as error:
            connection.refuse(str(error))
            return
        self._read(False)
        if (wait_s := connection.throttled_s) > 0:
            self._go_on_after(wait_s)
        elif connection.unsettled < self._most_unsettled:
            self._loop.call_soon(self._catch_up)

    def _read(self, wanted: bool) -> None:
        if wanted is not self._reading and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _go_on_after(self, wait_s: float) -> None:
        if self._alarm is None:
            self._alarm = self._loop.call_later(wait_s, self._woken)

    def _woken(self) -> None:
        self._alarm = None
        self._catch_up()

    def _catch_up(self) -> None:
        if not self._reading and not self._transport.is_closing():
            self._go_on()

    def _write(self, parts: Sequence[Buffer]) -> None:
        write_parts(self._transport, parts)
        if not self._reading:  # receipts went out: there is room for more messages
            self._loop.call_soon(self._catch_up)

    def pause_writing(self) -> None:
        self.connection.pause()

    def resume_writing(self) -> None:
        self.connection.resume()

    def keep_alive(self, interval_s: float) -> None:
        """Ask a client that was silent for so long whether it lives, and let it go after twice that."""
        check_expiry(self.connection, time.time())
        silent_s = self._loop.time() - self._last_heard
        if silent_s > 2 * interval_s and self._reading:
            self.connection.refuse("it has been silent for too long")
            self._transport.abort()
        elif silent_s > interval_s:
            self.connection.ping()

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._alarm is not None:
            self._alarm.cancel()
        self.connection.hang_up()

    def close(self) -> None:
        self._transport.close()
