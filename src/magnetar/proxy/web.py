"""The proxy's HTTP: /metrics and /health are its own, everything else is passed on to a broker's admin REST.

A broker that does not have what is asked about names the one that has (307). Its address means nothing to who comes by
way of a proxy, so the proxy goes there itself, as Pulsar's does. What is sent again for that is kept, up to a bound.

All requests from one address begin at the same broker as long as it lives: whoever has made something asks about it
next, and another broker hears of it a moment later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import NamedTuple
from urllib.parse import urlsplit
from zlib import crc32

import h11

from magnetar.broker.connections import Connections
from magnetar.broker.listeners import Listener
from magnetar.broker.memory import Account, MemoryBudget
from magnetar.proxy.figures import ProxyFigures
from magnetar.proxy.settings import ProxySettings

_MAX_BODY_BYTES = 5 << 20
"""Of a request, which is a policy, a schema or a message."""
_MAX_HOPS = 5
_CHUNK_BYTES = 64 << 10
_IDLE_S = 60.0
_BETWEEN_TWO = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
        b"transfer-encoding", b"upgrade", b"host", b"expect",
    }
)  # fmt: skip
"""Headers that are said to the next hop alone (RFC 9110, 7.6.1), and those that are written anew."""
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
        self, settings: ProxySettings, memory: MemoryBudget, connections: Connections, figures: ProxyFigures
    ) -> None:
        self._settings = settings
        self._memory = memory
        self._counted = connections
        self._figures = figures
        urls = [each.strip() for each in settings.broker_web_service_url.split(",") if each.strip()]
        self._brokers = [_place(each) for each in urls]
        self._tasks: set[asyncio.Task[None]] = set()

    def connection(self, listener: Listener) -> asyncio.BaseProtocol:
        """Return what talks to one client."""
        reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
        return asyncio.StreamReaderProtocol(reader, self._came)

    def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        host = str(peer[0]) if isinstance(peer, tuple) else "local"
        account = self._memory.account(lambda: None, known=True)
        try:
            if self._counted.came(host):
                await _Client(self, reader, writer, account, host).serve()
        except (OSError, h11.ProtocolError, TimeoutError, asyncio.IncompleteReadError) as error:
            _log.info("HTTP connection from %s ended: %s", host, error)
        finally:
            self._counted.left(host)
            account.close()
            writer.close()

    def own(self, target: bytes) -> tuple[int, bytes, bytes] | None:
        """Return status, type and body of what the proxy answers itself, None of what a broker does."""
        path = target.partition(b"?")[0]
        if path in (b"/metrics", b"/metrics/"):
            return 200, b"text/plain; version=0.0.4; charset=utf-8", self._figures.text().encode()
        if path in (b"/health", b"/health/live", b"/health/ready"):
            return 200, b"text/plain; charset=utf-8", b"ok\n"
        if not self._brokers:
            return 404, b"text/plain; charset=utf-8", b"not here: broker.web.service.url is not set\n"
        return None

    async def answered(self, request: _Request, client: str) -> tuple[h11.Response, AsyncIterator[bytes]]:
        """Return what a broker answers to a client at this address, and its body; raise ``OSError`` if none does."""
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

    async def _followed(
        self, broker: _Broker, request: _Request
    ) -> tuple[h11.Response, AsyncIterator[bytes]]:
        for _ in range(_MAX_HOPS):
            response = await broker.ask(request)
            where = dict(response.headers).get(b"location")
            if response.status_code not in (307, 308) or where is None:
                return response, broker.body()
            broker.close()
            url = urlsplit(where.decode("ascii", "replace"))
            target = (url.path + (f"?{url.query}" if url.query else "")).encode()
            request = request._replace(target=target)
            broker = await self._connected(_place(where.decode("ascii", "replace")))
        raise ConnectionError("brokers send each other too many times")

    def close(self) -> None:
        """Let every client go."""
        for task in list(self._tasks):
            task.cancel()


class _Client:
    """The connection to one client."""

    def __init__(
        self,
        proxy: WebProxy,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        account: Account,
        host: str,
    ) -> None:
        self._host = host
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._account = account
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_CHUNK_BYTES)

    async def serve(self) -> None:
        """Answer requests, one after the other."""
        while True:
            try:
                request = await self._request()
            except h11.RemoteProtocolError as error:
                await self._say(error.error_status_hint, b"text/plain; charset=utf-8", f"{error}\n".encode())
                return
            if request is None:
                return
            own = self._proxy.own(request.target)
            if own is not None:
                await self._say(*own)
            else:
                await self._pass_on(request)
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _request(self) -> _Request | None:
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None
        if self._http.they_are_waiting_for_100_continue:
            self._writer.write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
        body = bytearray()
        try:
            while isinstance(event := await self._event(), h11.Data):
                if len(body) + len(event.data) > _MAX_BODY_BYTES:
                    raise h11.RemoteProtocolError("the body is too large", error_status_hint=413)
                body += event.data
                self._account.charge(len(event.data))
        finally:
            self._account.charge(-len(body))  # it is soon gone; until then it was counted
        return _Request(head.method, head.target, list(head.headers), bytes(body))

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            async with asyncio.timeout(_IDLE_S):
                self._http.receive_data(await self._reader.read(_CHUNK_BYTES))
        return event

    async def _pass_on(self, request: _Request) -> None:
        try:
            response, body = await self._proxy.answered(request, self._host)
        except (OSError, h11.ProtocolError, ValueError) as error:
            _log.warning("no broker answers %s: %s", request.target.decode("ascii", "replace")[:200], error)
            await self._say(502, b"text/plain; charset=utf-8", b"no broker answers\n")
            return
        kept = [(name, value) for name, value in response.headers if name not in _BETWEEN_TWO]
        status, reason = response.status_code, response.reason  # both in the broker's words
        await self._send(h11.Response(status_code=status, headers=kept, reason=reason))
        async for data in body:
            await self._send(h11.Data(data=data))
        await self._send(h11.EndOfMessage())

    async def _say(self, status: int, kind: bytes, body: bytes) -> None:
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await self._send(h11.Response(status_code=status, headers=headers))
        await self._send(h11.Data(data=body))
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()  # who takes nothing is not read for, either


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
        """Return the head of its answer."""
        headers = [(name, value) for name, value in request.headers if name not in _BETWEEN_TWO]
        if request.body and not any(name == b"content-length" for name, _ in headers):
            headers.append((b"content-length", str(len(request.body)).encode()))
        headers += [(b"host", self._place.netloc), (b"connection", b"close")]
        asked = h11.Request(method=request.method, target=request.target, headers=headers)
        for event in (asked, *([h11.Data(data=request.body)] if request.body else []), h11.EndOfMessage()):
            self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()
        while isinstance(answer := await self._event(), h11.InformationalResponse):
            pass
        if not isinstance(answer, h11.Response):
            raise ConnectionError("the broker closed the connection")
        return answer

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the rest of its answer."""
        try:
            while isinstance(event := await self._event(), h11.Data):
                yield bytes(event.data)
        finally:
            self.close()

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            async with asyncio.timeout(self._within_s):
                self._http.receive_data(await self._reader.read(_CHUNK_BYTES))
        return event

    def close(self) -> None:
        """It is over."""
        self._writer.close()


def _place(url: str) -> _Place:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"{url[:200]!r} is no http://HOST:PORT")
    return _Place(parts.hostname, parts.port or 80)
