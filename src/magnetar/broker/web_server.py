"""An ASGI application behind the broker's HTTP. Import it only where HTTP is served: it takes a while to load."""

from __future__ import annotations

import asyncio
import logging

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from magnetar.broker import web
from magnetar.broker.core import Broker
from magnetar.broker.web_common import Common
from magnetar.broker.web_connection import WebConnection

_LOOK_S = 1.0
_log = logging.getLogger("magnetar.web")


class WebServer:
    """Serves one application."""

    def __init__(self, app: ASGIApp, broker: Broker, *, answers_common: bool = False) -> None:
        """Paths that every port answers (`Common`) are answered here, unless the application does so itself."""
        app = app if answers_common else Common(app, broker)

        async def while_connected(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await app(scope, receive, send)
            except ClientDisconnect:
                _log.warning(
                    "%s %s: the client left before all of it had come", scope["method"], scope["path"]
                )
            finally:
                scope["state"]["held"].let_go()

        self._broker = broker
        self._state = ServerState()
        self._config = Config(
            while_connected,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=web.KEEP_ALIVE_S,
            h11_max_incomplete_event_size=64 << 10,
        )
        self._config.load()
        self._look: asyncio.TimerHandle | None = None
        self._look_around()

    def connection(self) -> asyncio.BaseProtocol:
        """Return what talks to one client."""
        return WebConnection(self._broker, self._config, self._state)

    def _look_around(self) -> None:
        loop = asyncio.get_running_loop()
        self.look(loop.time())
        self._look = loop.call_later(_LOOK_S, self._look_around)

    def look(self, now_s: float) -> None:
        """Let go of those whose time is up."""
        for connection in list(self._state.connections):
            connection.look(now_s)  # type: ignore[union-attr]

    def close(self) -> None:
        """Let every client go."""
        if self._look is not None:
            self._look.cancel()
        for connection in list(self._state.connections):
            connection.shutdown()
