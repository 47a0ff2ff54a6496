"""HTTP on the broker's own loop and listeners: uvicorn's protocol, one per connection, for any ASGI application."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

MOST_BODY_BYTES = 8 << 20
_log = logging.getLogger("magnetar.web")


class BodyTooLarge(Exception):
    """A request's body is larger than anything asked here has reason to be."""

    def __init__(self) -> None:
        super().__init__(f"the body is larger than {MOST_BODY_BYTES} bytes")


async def body_of(request: Request) -> bytes:
    """Give a request's body; raise ``BodyTooLarge``.

    Raises starlette's ``ClientDisconnect``, too, which an application lets through: there is nobody left to answer.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BODY_BYTES:
            raise BodyTooLarge
        parts.append(part)
    return b"".join(parts)


class WebServer:
    """Serves one application. Import it only where HTTP is to be served: what it needs takes a while to load."""

    def __init__(self, app: ASGIApp) -> None:
        from starlette.requests import ClientDisconnect
        from uvicorn import Config
        from uvicorn.protocols.http.h11_impl import H11Protocol
        from uvicorn.server import ServerState

        class Protocol(H11Protocol):
            """Keeps, for whoever asks who this is, what certificate the client has shown."""

            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                tls = transport.get_extra_info("ssl_object")
                if tls is not None:
                    self.app_state["certificate"] = tls.getpeercert()

        async def while_connected(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await app(scope, receive, send)
            except ClientDisconnect:
                _log.warning(
                    "%s %s: the client left before all of it had come", scope["method"], scope["path"]
                )

        self._protocol = Protocol
        self._state = ServerState()
        self._config = Config(
            while_connected,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=75,
            h11_max_incomplete_event_size=64 << 10,
        )
        self._config.load()

    def connection(self) -> asyncio.BaseProtocol:
        """Give what talks to one client."""
        made: Any = self._protocol(
            config=self._config, server_state=self._state, app_state={}, _loop=asyncio.get_running_loop()
        )
        return made  # type: ignore[no-any-return]

    def close(self) -> None:
        """Let every client go."""
        for connection in list(self._state.connections):
            connection.shutdown()
