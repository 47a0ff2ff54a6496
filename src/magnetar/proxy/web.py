"""The proxy's HTTP: /metrics and /health are its own, everything else is passed on to a broker's admin REST.

A broker that does not have what is asked about names the one that has (307). Its address means nothing to who comes by
way of a proxy, so the proxy goes there itself, as Pulsar's does. What is sent again for that is kept, up to a bound.
Clients are bounded as those of a broker are (`web/http.py`); all of them are strangers here, for only brokers know
who is who.

All requests from one address begin at the same broker as long as it lives: whoever has made something asks about it
next, and another broker hears of it a moment later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from typing import NamedTuple
from urllib.parse import urlsplit
from zlib import crc32

import h11
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from magnetar.proxy.figures import ProxyFigures
from magnetar.proxy.settings import ProxySettings
from magnetar.serving.connections import Connections
from magnetar.serving.listeners import Listener
from magnetar.serving.memory import MemoryBudget
from magnetar.settings.settings import Settings
from magnetar.web.http import BodyTooLarge, WebLimits, body_of, say_with_status
from magnetar.web.pages import FORWARDED_HOST
from magnetar.web.server import WebPort

_MAX_HOPS = 5
_CHUNK_BYTES = 64 << 10
_BETWEEN_TWO = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
        b"transfer-encoding", b"upgrade", b"host", b"expect",
    }
)  # fmt: skip
"""Headers that are said to the next hop alone (RFC 9110, 7.6.1), and those that are written anew."""
_MAY_HAVE_BODIES = frozenset({b"POST", b"PUT", b"PATCH"})
_Headers = list[tuple[bytes, bytes]]
_log = logging.getLogger("magnetar.proxy")


class _Place(NamedTuple):
    host: str
    port: int

    @property
    def netloc(self) -> bytes:
        return f"{self.host}:{self.port}".encode()


class _Request(NamedTuple):
    method: bytes
    target: bytes
    headers: _Headers
    body: bytes


class WebProxy:
    """All HTTP clients of one proxy."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        memory: MemoryBudget,
        connections: Connections,
        figures: ProxyFigures,
    ) -> None:
        self._settings = settings().of(ProxySettings)
        self._figures = figures
        urls = [each.strip() for each in self._settings.broker_web_service_url.split(",") if each.strip()]
        self._brokers = [_place(each) for each in urls]
        self.port = WebPort(self._serve, WebLimits(settings, memory, connections, known=False))

    def connection(self, listener: Listener) -> asyncio.BaseProtocol:
        """Return what talks to one client."""
        return self.port.connection()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        own = self.own(scope["raw_path"])
        if own is not None:
            await own(scope, receive, send)
            return
        try:
            body = await body_of(Request(scope, receive))
        except BodyTooLarge as error:
            await _plain(413, f"{error}\n")(scope, receive, send)
            return
        asked = _Request(scope["method"].encode(), _target(scope), list(scope["headers"]), body)
        passing = asyncio.ensure_future(self._pass_on(asked, scope, receive, send))
        leaving = asyncio.ensure_future(
            receive()
        )  # says so once the client has left, or has all of its answer
        try:
            await asyncio.wait((passing, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not passing.done() and leaving.done():
                passing.cancel()
                await asyncio.wait((passing,))
            if not passing.cancelled():
                await passing
        finally:
            passing.cancel()
            leaving.cancel()

    def own(self, path: bytes) -> Response | None:
        """Return what the proxy answers itself, None of what a broker does."""
        if path in (b"/metrics", b"/metrics/"):
            return _plain(200, self._figures.text(), "text/plain; version=0.0.4; charset=utf-8")
        if path in (b"/health", b"/health/live", b"/health/ready"):
            return _plain(200, "ok\n")
        if not self._brokers:
            return _plain(404, "not here: broker.web.service.url is not set\n")
        return None

    async def _pass_on(self, asked: _Request, scope: Scope, receive: Receive, send: Send) -> None:
        host = scope["client"][0] if scope["client"] else "local"
        try:
            response, broker = await self.answered(asked, host)
        except (OSError, h11.ProtocolError, ValueError) as error:
            _log.warning("no broker answers %s: %s", asked.target.decode("ascii", "replace")[:200], error)
            await _plain(502, "no broker answers\n")(scope, receive, send)
            return
        with closing(broker):
            kept = [(name, value) for name, value in response.headers if name not in _BETWEEN_TWO]
            say_with_status(scope, response.reason.decode("ascii", "replace"))
            start = {"type": "http.response.start", "status": response.status_code, "headers": kept}
            await send(start)
            try:
                async for data in broker.body():
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            except (OSError, h11.ProtocolError) as error:
                # The client learns it by the end of its connection: the head of the answer is on its way.
                _log.warning("an answer to %s has no end: %s", host, error)
                return
            await send({"type": "http.response.body", "body": b""})

    async def answered(self, request: _Request, client: str) -> tuple[h11.Response, _Broker]:
        """Return what a broker answers to a client at this address; raise ``OSError`` if none does.

        The broker has the answer's body, and is to be closed.
        """
        at = crc32(client.encode()) % len(self._brokers)
        error: OSError = ConnectionError("no broker is known")
        for place in [*self._brokers[at:], *self._brokers[:at]]:
            try:
                broker = await self._connected(place)
            except OSError as failure:
                error = failure
                continue
            return await self._followed(broker, request)
        raise error

    async def _connected(self, place: _Place) -> _Broker:
        async with asyncio.timeout(self._settings.proxy_connect_timeout_ms / 1000):
            reader, writer = await asyncio.open_connection(*place, limit=_CHUNK_BYTES)
        return _Broker(place, reader, writer, self._settings.proxy_request_timeout_ms / 1000)

    async def _followed(self, broker: _Broker, request: _Request) -> tuple[h11.Response, _Broker]:
        try:
            for _ in range(_MAX_HOPS):
                response = await broker.ask(request)
                where = dict(response.headers).get(b"location")
                if response.status_code not in (307, 308) or where is None:
                    return response, broker
                broker.close()
                url = urlsplit(where.decode("ascii", "replace"))
                target = (url.path + (f"?{url.query}" if url.query else "")).encode()
                request = request._replace(target=target)
                broker = await self._connected(_place(where.decode("ascii", "replace")))
            raise ConnectionError("brokers send each other too many times")
        except BaseException:
            broker.close()
            raise

    def close(self) -> None:
        """Let every client go."""
        self.port.close()


class _Broker:
    """One request to one broker."""

    def __init__(
        self, place: _Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, within_s: float
    ) -> None:
        self._place = place
        self._reader = reader
        self._writer = writer
        self._within_s = within_s
        self._http = h11.Connection(h11.CLIENT)

    async def ask(self, request: _Request) -> h11.Response:
        """Return the head of its answer; raise ``OSError`` or h11's ``ProtocolError``."""
        left_out = _BETWEEN_TWO | {b"content-length"}  # that is counted, not believed
        headers = [(name, value) for name, value in request.headers if name not in left_out]
        if request.body or request.method in _MAY_HAVE_BODIES:
            headers.append((b"content-length", str(len(request.body)).encode()))
        if not any(name == FORWARDED_HOST for name, _ in headers):
            headers += [(FORWARDED_HOST, value) for name, value in request.headers if name == b"host"]
        headers += [(b"host", self._place.netloc), (b"connection", b"close")]
        asked = h11.Request(method=request.method, target=request.target, headers=headers)
        async with asyncio.timeout(self._within_s):
            for event in (
                asked,
                *([h11.Data(data=request.body)] if request.body else []),
                h11.EndOfMessage(),
            ):
                self._writer.write(self._http.send(event) or b"")
            await self._writer.drain()
            while isinstance(answer := await self._event(), h11.InformationalResponse):
                pass
        if not isinstance(answer, h11.Response):
            raise ConnectionError("the broker closed the connection")
        return answer

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the rest of its answer."""
        while isinstance(event := await self._event(), h11.Data):
            yield bytes(event.data)

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            async with asyncio.timeout(self._within_s):
                self._http.receive_data(await self._reader.read(_CHUNK_BYTES))
        return event

    def close(self) -> None:
        """It is over."""
        self._writer.close()


def _target(scope: Scope) -> bytes:
    """Return what a request names, as it came."""
    path, query = scope["raw_path"], scope["query_string"]
    return bytes(path + b"?" + query if query else path)


def _plain(status: int, text: str, kind: str = "text/plain; charset=utf-8") -> Response:
    return Response(text.encode(), status, {"content-type": kind})


def _place(url: str) -> _Place:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"{url[:200]!r} is no http://HOST:PORT")
    return _Place(parts.hostname, parts.port or 80)
