"""One HTTP connection: uvicorn's, with the process's limits of number, memory and time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import h11
from uvicorn import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from magnetar.base.slices import FairTurns
from magnetar.serving.memory import MIN_BYTES
from magnetar.serving.unread import descriptor_of
from magnetar.web import http as web
from magnetar.web.chunks import ChunkCount

_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: 30\r\n\r\nInvalid HTTP request received."
)
_EVENTS_AT_ONCE = 32
"""Parts of requests that are taken in at a stretch, at 25 us each; those that lie behind them wait for a later turn."""
_SCRATCH = bytearray(64 << 10)
"""All connections of the loop receive into it; what has come is taken out at once."""
_CROWDED_BYTES = 16 << 10
"""Received at a stretch while what has come waits for its turn."""
_log = logging.getLogger("magnetar.web")


class _Connection(h11.Connection):
    """HTTP's state of one connection. Applications have no other way to say what stands behind a status."""

    def __init__(self, most_bytes: int, phrase: Callable[[], bytes]) -> None:
        super().__init__(h11.SERVER, most_bytes)
        self._phrase = phrase
        self._allowed = 0
        self._chunks = ChunkCount()

    def allow_more(self) -> None:
        """Give so many events as there may be at a stretch before there seem to be no more."""
        self._allowed = _EVENTS_AT_ONCE

    @property
    def has_more(self) -> bool:
        """Whether there may be more than was allowed."""
        return self._allowed <= 0

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if self._allowed <= 0:
            return h11.NEED_DATA
        self._allowed -= 1
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._chunks.add(event)
        elif isinstance(event, h11.Request):
            _refuse_two_lengths(event)
            self._chunks = ChunkCount()
        return event

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        if type(event) is h11.Response and (phrase := self._phrase()):
            event = h11.Response(status_code=event.status_code, headers=event.headers, reason=phrase)
        return super().send_with_data_passthrough(event)


def _refuse_two_lengths(request: h11.Request) -> None:
    """Raise h11's ``RemoteProtocolError`` for a body that is said to end in two ways (RFC 9112, 6.1).

    What stands in front may have believed the other one, and take for a part of this request what would be the next
    here. Pulsar's Jetty refuses it too.
    """
    names = {name for name, _ in request.headers}
    if b"transfer-encoding" in names and b"content-length" in names:
        raise h11.RemoteProtocolError("Transfer-Encoding and Content-Length")


class _Flow(FlowControl):
    """Reading goes on where neither uvicorn nor the connection itself is against it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._paused = self._held = False

    def pause_reading(self) -> None:
        self._paused = True
        self._apply()

    def resume_reading(self) -> None:
        self._paused = False
        self._apply()

    def hold(self, held: bool) -> None:
        """Have nothing read until this is taken back."""
        self._held = held
        self._apply()

    def _apply(self) -> None:
        self.read_paused = self._paused or self._held
        if self._transport.is_closing() or self._transport.is_reading() is not self.read_paused:
            return
        if self.read_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


class LentMemory(asyncio.BufferedProtocol):
    """Receives for a `WebConnection`, into memory that is lent.

    A loop would receive a quarter of a megabyte at once else, also of each of a thousand that are refused afterwards.
    It is an object of its own because uvloop lends nothing to what is an ``asyncio.Protocol`` as well, as uvicorn's is.
    """

    def __init__(self, connection: WebConnection) -> None:
        self.connection = connection
        self.get_buffer = connection.get_buffer  # type: ignore[method-assign]
        self.buffer_updated = connection.buffer_updated  # type: ignore[method-assign]
        self.connection_made = connection.connection_made  # type: ignore[method-assign,assignment]
        self.connection_lost = connection.connection_lost  # type: ignore[method-assign]
        self.eof_received = connection.eof_received  # type: ignore[method-assign]
        self.pause_writing = connection.pause_writing  # type: ignore[method-assign]
        self.resume_writing = connection.resume_writing  # type: ignore[method-assign]


class WebConnection(H11Protocol):
    """Keeps, for whoever asks who this is, what certificate the client has shown."""

    conn: _Connection
    flow: _Flow

    def __init__(self, limits: web.WebLimits, config: Config, state: ServerState, turns: FairTurns) -> None:
        """``turns`` are all connections', a lane for each address: who sends much is heard beside the others."""
        super().__init__(config, state, {}, asyncio.get_running_loop())
        assert config.h11_max_incomplete_event_size is not None
        self.conn = _Connection(config.h11_max_incomplete_event_size, self._phrase)
        self._limits = limits
        self._turns = turns
        self._came: list[bytes] = []  # and waits for its turn
        self._goes_on = False
        self._host = ""
        self._held = web.Held(limits, self._read_on, self._buffered)
        self.app_state["held"] = self._held
        self._is_held_back = False
        self._heard_at = self._begun_at = self.loop.time()
        self._untaken_since: float | None = None
        self._received = 0  # of the request that is coming

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.app_state["certificate"] = tls.getpeercert()
        self._host = self.client[0] if self.client else "local"
        if not self._limits.connections.came(self._host):
            self._give_up("too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._came.clear()
        self._limits.connections.left(self._host)
        self._held.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        goes_on = self._held.account.held_bytes > MIN_BYTES  # it was given room
        most = len(_SCRATCH) if goes_on else self._limits.memory.lending.nbytes
        return memoryview(_SCRATCH)[: min(most, _CROWDED_BYTES) if self._turns.are_waited_for else most]

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(memoryview(_SCRATCH)[:nbytes]))

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        now = self.loop.time()
        if self._is_idle:
            self._begun_at, self._received = now, 0
        self._heard_at = now
        self._received += len(data)
        self._came.append(data)
        if len(self._came) == 1:
            self._turns.add(self._host, self._take)
        if self._came:
            self._held.recount()
            self._hold()

    def _take(self) -> None:
        """Take in what has come."""
        data, self._came = b"".join(self._came), []
        if not self.transport.is_closing():
            super().data_received(data)
            self._after_events()

    def handle_events(self) -> None:
        """Take in some of what has come. What is left is taken in later, and until then no more is read."""
        self.conn.allow_more()
        super().handle_events()
        if self.conn.has_more and not self._goes_on:
            self._goes_on = True
            self._turns.add_later(self._host, self._go_on)
        self._hold()

    def _hold(self) -> None:
        self.flow.hold(self._is_held_back or self._goes_on or bool(self._came))

    def _go_on(self) -> None:
        self._goes_on = False
        if not self.transport.is_closing():
            self.handle_events()
            self._after_events()

    def _after_events(self) -> None:
        if self.transport.is_closing():
            return
        if self._is_drained and self._received > web.MAX_REFUSED_BYTES:
            self._give_up("what it still sends was refused long ago")
            return
        self._held.recount()
        self._is_held_back = not self._held.account.may_take_more()
        self._hold()

    def _phrase(self) -> bytes:
        """Return what the answer that begins now says behind its status; nothing for what HTTP calls it."""
        phrase: bytes = b"" if self.cycle is None else self.cycle.scope["state"].get("phrase", b"")
        return phrase

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP. What was asked before it, and is not answered yet, has no answer any more."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # no answer has begun, or was the last
            # Not by h11, which holds it against the request, as far as that was understood.
            self.transport.write(_BAD_REQUEST)
        self.transport.close()

    def on_response_complete(self) -> None:
        self._heard_at = self._begun_at = self.loop.time()
        self._received = 0
        super().on_response_complete()
        self._held.recount()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._untaken_since = self.loop.time()
        self._held.recount()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._untaken_since = None
        self._held.recount()

    def _read_on(self) -> None:
        """There may be room again for what this client sends."""
        if not self._is_held_back or self.transport.is_closing():
            return
        if self._held.account.may_take_more():
            self._is_held_back = False
            self._hold()

    def _buffered(self) -> int:
        """Bytes that lie here: parts of requests, and answers on their way."""
        body = len(self.cycle.body) if self.cycle is not None else 0
        came = sum(map(len, self._came)) + len(self.conn._receive_buffer)
        return came + body + self.transport.get_write_buffer_size()

    @property
    def unread_descriptor(self) -> int:
        """Its socket while that is open and waits for others' memory, otherwise -1."""
        return descriptor_of(self.transport) if self._is_held_back and not self.transport.is_closing() else -1

    def left(self) -> None:
        """The client has gone while it waited: there would be no answer to what is still to be read."""
        self.transport.abort()

    @property
    def _is_idle(self) -> bool:
        """Whether nothing has been asked that is not answered."""
        return self.conn.their_state is h11.IDLE and not self._came and not len(self.conn._receive_buffer)

    @property
    def _is_drained(self) -> bool:
        """Whether a body comes whose request was answered before."""
        return self.cycle is not None and self.cycle.response_complete and self.cycle.more_body

    def look(self, now_s: float) -> None:
        """Let go of the client if its time is up."""
        longest_s = self._limits.settings().connections.connections_max_idle_ms / 1000
        if self._untaken_since is not None:
            if now_s - self._untaken_since > web.UNTAKEN_S:
                self._give_up("it does not take what it asked for")
        elif self._is_idle:
            asked_before = self.cycle is not None
            if not asked_before and now_s - self._begun_at > web.HEAD_S:
                self._give_up("it asks for nothing")
            elif longest_s > 0 and now_s - self._heard_at > longest_s:
                self._give_up("it was idle for too long")
        elif self.conn.their_state is h11.IDLE:
            if now_s - self._begun_at > web.HEAD_S:
                self._give_up("its request does not come to an end")
        elif self._is_held_back:
            if now_s - self._heard_at > web.UNTAKEN_S:
                self._give_up("there is no room for what it sends")
        elif self.conn.their_state is h11.SEND_BODY:
            until = self._begun_at + web.BODY_S + self._received / web.MIN_BYTES_PER_S
            if now_s > until:
                self._give_up("the body of its request does not come to an end")

    def _give_up(self, why: str) -> None:
        _log.warning("connection from %s closed: %s", self._host, why)
        self.transport.abort()
