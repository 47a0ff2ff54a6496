"""The sockets of Pulsar's protocol: each feeds a ``PulsarConnection`` with frames and writes what it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from magnetar.pulsar.connection import PulsarConnection
from magnetar.pulsar.handlers import ROUTES
from magnetar.pulsar.handlers.connect import check_expiry
from magnetar.pulsar.phase import Phase
from magnetar.pulsar.services import PulsarServices
from magnetar.pulsar.serving import PulsarServing, PulsarServingState
from magnetar.pulsar.settings import PulsarSettings
from magnetar.records.compression import Buffer
from magnetar.records.framing import scratch_buffer
from magnetar.serving.listeners import Listener
from magnetar.serving.memory import MIN_BYTES, Account
from magnetar.serving.unread import Unread, UnreadWatch, descriptor_of
from magnetar.serving.writing import write_parts
from magnetar.settings.settings import Settings
from magnetar.wire.pulsar.frames import FRAME_PADDING_BYTES, BadFrame, PulsarFrameReader

_WRITE_HIGH_BYTES = 1 << 20
_MAX_UNDER_WAY = 16
"""Commands of one connection that go on at the same time; more wait until one of them is done."""
MAX_UNSETTLED_BYTES = 16 << 20
"""Of one client's messages on their way to where they are stored: bookies that stand still fill no memory."""
_STRANGERS_FRAME_BYTES = MIN_BYTES
"""The largest CONNECT: nothing else comes before it, and it holds a token at most. So much is never waited with."""
_LAST_WORDS_S = 5.0
"""How long a client that is let go may take to hear why."""


class PulsarServer:
    """All connections of one broker."""

    def __init__(self, services: PulsarServices, settings: Settings) -> None:
        self.services = services
        self.settings = settings
        self.connections: set[PulsarSocket] = set()
        self.came = 0
        """How many there were, since the process began."""
        self.scratch = scratch_buffer()
        self._timer: asyncio.TimerHandle | None = None
        self._unread = UnreadWatch(services.broker.serving.memory, lambda: self.connections)

    def start(self) -> None:
        """Begin to look for clients that are silent."""
        loop = asyncio.get_running_loop()
        interval_s = self.settings.of(PulsarSettings).keep_alive_interval_ms / 1000

        def check() -> None:
            for connection in list(self.connections):
                connection.keep_alive(interval_s)
            self._timer = loop.call_later(interval_s / 2, check)

        self._timer = loop.call_later(interval_s / 2, check)
        self._unread.start()

    def connection(self, listener: Listener) -> PulsarSocket:
        """Return what talks to one client."""
        return PulsarSocket(self, listener)

    def close(self) -> None:
        """Let every client go."""
        self._unread.close()
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self.connections):
            connection.connection.end()


class PulsarSocket(asyncio.BufferedProtocol):
    """One socket. What its client sends is read as long as what it asked for before is being dealt with:
    `PulsarServing`.
    """

    def __init__(self, server: PulsarServer, listener: Listener) -> None:
        settings = server.settings
        self._server = server
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        lending = server.services.broker.serving.memory.lending
        self._frames = PulsarFrameReader(_STRANGERS_FRAME_BYTES, server.scratch, lending)
        self._most_bytes = settings.of(PulsarSettings).pulsar_max_message_size + FRAME_PADDING_BYTES
        self._max_unsettled = settings.of(PulsarSettings).max_pending_publish_requests_per_connection
        self._transport: Any = None
        self._serving = PulsarServing(
            self._take_up,
            self._held_up,
            self._count,
            self._has_room,
            self._read,
            later=self._loop.call_soon,
            when_throttled=self._when_throttled,
            gathering=server.services.broker.engine.gathering,
        )
        self._alarm: asyncio.TimerHandle | None = None
        self._last_words: asyncio.TimerHandle | None = None
        self._last_heard = self._connected_at = 0.0
        self._went_on_at = 0.0
        self._unwritable_since: float | None = None
        self._descriptor = -1
        self._counted = 0
        self._host = ""
        self.connection: PulsarConnection
        self.account: Account

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._host = str(peer[0]) if isinstance(peer, tuple) else "local"
        address = f"/{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "local"
        ssl_object = transport.get_extra_info("ssl_object")
        self.connection = PulsarConnection(
            self._server.services,
            ROUTES,
            self._listener,
            address,
            self._write,
            self.close,
            ssl_object.getpeercert() if ssl_object is not None else None,
            self._serving.went_on,
        )
        self._descriptor = descriptor_of(transport)
        broker = self._server.services.broker
        self.account = broker.serving.memory.account(
            self._serving.went_on, known=False, missing=lambda: self._frames.missing_bytes
        )
        self._last_heard = self._connected_at = self._went_on_at = self._loop.time()
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        self._server.connections.add(self)
        self._server.came += 1
        if not broker.serving.connections.came(self._host):
            self.connection.refuse("too many connections")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.buffer_updated(nbytes)
        self._last_heard = self._loop.time()
        self._serving.go_on()
        self._server.services.broker.serving.idle_poll.heard(nbytes)

    # -- what its serving asks

    def _take_up(self) -> bool:
        try:
            frame = self._frames.next_frame()
        except BadFrame as error:
            self.connection.refuse(str(error))
            return False
        if frame is None:
            return False
        self.connection.receive(frame)
        return True

    def _held_up(self) -> PulsarServingState | None:
        connection = self.connection
        if connection.phase is Phase.PROVING:
            return PulsarServingState.PROVING  # nothing is heard until it is known who speaks
        if connection.is_connected and self._frames.most_bytes != self._most_bytes:
            self._frames.most_bytes = self._most_bytes
            self.account.login()
        if (
            connection.unsettled >= self._max_unsettled
            or connection.unsettled_bytes >= MAX_UNSETTLED_BYTES
            or connection.waits_for_place
        ):
            return PulsarServingState.UNSETTLED
        if connection.under_way >= _MAX_UNDER_WAY:
            return PulsarServingState.BUSY
        if connection.is_behind:
            return PulsarServingState.BEHIND
        return PulsarServingState.THROTTLED if connection.throttled_s > 0 else None

    def _count(self) -> None:
        """Count what is kept for the client."""
        held = self._frames.held_bytes + self._transport.get_write_buffer_size() + self.connection.held_bytes
        if held != self._counted:
            counted, self._counted = self._counted, held
            self.account.charge(held - counted)

    def _has_room(self) -> bool:
        return self.account.may_take_more()

    def _read(self, wanted: bool) -> None:
        if not self._transport.is_closing():
            if wanted:
                self._transport.resume_reading()
            else:
                self._went_on_at = self._loop.time()
                self._transport.pause_reading()

    def _when_throttled(self, then: Callable[[], None]) -> None:
        if self._alarm is None:
            self._alarm = self._loop.call_later(self.connection.throttled_s, self._woken, then)

    def _woken(self, then: Callable[[], None]) -> None:
        self._alarm = None
        then()

    # -- the socket

    def _write(self, parts: Sequence[Buffer]) -> None:
        write_parts(self._transport, parts)

    def pause_writing(self) -> None:
        self._unwritable_since = self._loop.time()
        self.connection.pause()
        self._count()

    def resume_writing(self) -> None:
        self._unwritable_since = None
        self._count()
        self.connection.resume()
        self._serving.went_on()

    def keep_alive(self, interval_s: float) -> None:
        """Ask a client that was silent for so long whether it lives, and let it go after twice that.

        One that has not said who it is by then, or takes nothing of what it is sent for so long, is let go, too.
        """
        check_expiry(self.connection, time.time())
        now = self._loop.time()
        silent_s = now - self._last_heard
        if not self.connection.is_connected and now - self._connected_at > interval_s:
            self.give_up("it has not introduced itself in time")
        elif silent_s > 2 * interval_s and self._serving.reads:
            self.give_up("it has been silent for too long")
        elif self._unwritable_since is not None and now - self._unwritable_since > 2 * interval_s:
            self.give_up("it does not take what it is sent")
        elif silent_s > interval_s:
            self.connection.ping()

    @property
    def unread_descriptor(self) -> int:
        return -1 if self._serving.reads else self._descriptor

    def left(self, socket: Unread) -> None:
        """The client has gone; what it had sent whole is still to be read, unless its end took that along."""
        if socket.ends_amid(self._frames.missing_bytes, tls=self._listener.context is not None):
            self._transport.abort()

    def is_stuck(self, since: float) -> bool:
        """Whether it holds much, and for so long it is the client that does not go on."""
        unwritable = self._unwritable_since is not None and self._unwritable_since < since
        amid_frame = self._serving.reads and self._frames.is_amid_frame and self._last_heard < since
        return (unwritable or amid_frame) and self.account.held_bytes > MIN_BYTES

    def waits_since(self, since: float) -> bool:
        is_short = self._serving.state is PulsarServingState.SHORT and self._went_on_at < since
        return is_short and self._frames.held_bytes > 0

    def give_up(self, why: str) -> None:
        """End it whether or not the client takes what it was to be sent."""
        self.connection.refuse(why)
        self._transport.abort()

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._descriptor = -1
        self._server.connections.discard(self)
        self._server.services.broker.serving.connections.left(self._host)
        self._serving.end()
        for each in (self._alarm, self._last_words):
            if each is not None:
                each.cancel()
        self.connection.hang_up()
        self._frames.close()
        self.account.close()

    def close(self) -> None:
        """Let the client go, once it has heard what it was told; if it does not listen, without."""
        self._serving.end()
        if not self._transport.is_closing():
            self._transport.close()
            self._last_words = self._loop.call_later(_LAST_WORDS_S, self._transport.abort)
