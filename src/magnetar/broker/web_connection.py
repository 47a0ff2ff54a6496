"""One HTTP connection: uvicorn's, with the broker's limits of number, memory and time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from magnetar.broker import web
from magnetar.broker.core import Broker

_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
    b"content-length: 30\r\n\r\nInvalid HTTP request received."
)
_log = logging.getLogger("magnetar.web")


class _Connection(h11.Connection):
    """HTTP's state of one connection. Applications have no other way to say what stands behind a status."""

    def __init__(self, most_bytes: int, phrase: Callable[[], bytes]) -> None:
        super().__init__(h11.SERVER, most_bytes)
        self._phrase = phrase

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        if type(event) is h11.Response and (phrase := self._phrase()):
            event = h11.Response(status_code=event.status_code, headers=event.headers, reason=phrase)
        return super().send_with_data_passthrough(event)


class WebConnection(H11Protocol):
    """Keeps, for whoever asks who this is, what certificate the client has shown."""

    def __init__(self, broker: Broker, config: Config, state: ServerState) -> None:
        super().__init__(config, state, {}, asyncio.get_running_loop())
        assert config.h11_max_incomplete_event_size is not None
        self.conn = _Connection(config.h11_max_incomplete_event_size, self._phrase)
        self._broker = broker
        self._host = ""
        self._held = web.Held(broker, self._read_on, self._buffered)
        self.app_state["held"] = self._held
        self._is_held_back = False
        self._heard_at = self._begun_at = self.loop.time()
        self._untaken_since: float | None = None
        self._received = 0  # of the request that is coming

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.app_state["certificate"] = tls.getpeercert()
        self._host = self.client[0] if self.client else "local"
        if not self._broker.connections.came(self._host):
            self._give_up("too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._broker.connections.left(self._host)
        self._held.close()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        now = self.loop.time()
        if self._is_idle:
            self._begun_at, self._received = now, 0
        self._heard_at = now
        self._received += len(data)
        super().data_received(data)
        if self._is_drained and self._received > web.MAX_REFUSED_BYTES:
            self._give_up("what it still sends was refused long ago")
            return
        self._held.recount()
        if not self._held.account.may_take_more():
            self._is_held_back = True
            self.flow.pause_reading()

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
            self.flow.resume_reading()

    def _buffered(self) -> int:
        """Bytes that lie here: parts of requests, and answers on their way."""
        body = len(self.cycle.body) if self.cycle is not None else 0
        return len(self.conn._receive_buffer) + body + self.transport.get_write_buffer_size()

    @property
    def _is_idle(self) -> bool:
        """Whether nothing has been asked that is not answered."""
        return self.conn.their_state is h11.IDLE and not len(self.conn._receive_buffer)

    @property
    def _is_drained(self) -> bool:
        """Whether a body comes whose request was answered before."""
        return self.cycle is not None and self.cycle.response_complete and self.cycle.more_body

    def look(self, now_s: float) -> None:
        """Let go of the client if its time is up."""
        longest_s = self._broker.settings.connections.connections_max_idle_ms / 1000
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
