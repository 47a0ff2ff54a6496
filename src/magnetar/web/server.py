"""An ASGI application behind a process's HTTP. Import it only where HTTP is served: it takes a while to load."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import cast

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from magnetar.base.slices import FairTurns
from magnetar.base.some_lines import SomeLines
from magnetar.node.broker import Broker
from magnetar.serving.unread import unread
from magnetar.web import http as web
from magnetar.web.common import Common
from magnetar.web.connection import LentMemory, WebConnection
from magnetar.web.http import say_with_status
from magnetar.web.pages import PageRefusal, WebPages

_LOOK_S = 1.0
_log = logging.getLogger("magnetar.web")


_refused = SomeLines(_log)


def _said(refusal: PageRefusal) -> Response:
    """Return it in the words of both, Pulsar's admin REST and Confluent's registry."""
    said = {"reason": refusal.reason, "error_code": refusal.status, "message": refusal.reason}
    return Response(json.dumps(said).encode(), refusal.status, media_type="application/json")


class WebPort:
    """Serves one application to all that come."""

    def __init__(self, app: ASGIApp, limits: web.WebLimits) -> None:
        async def while_connected(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await app(scope, receive, send)
            except ClientDisconnect:
                _log.warning(
                    "%s %s: the client left before all of it had come", scope["method"], scope["path"]
                )
            finally:
                scope["state"]["held"].let_go()

        self._limits = limits
        self._turns = FairTurns()
        self._state = ServerState()
        self._config = Config(
            while_connected,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # ACLs go by the address that a connection has, not by what its client says of it
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
        return LentMemory(WebConnection(self._limits, self._config, self._state, self._turns))

    def _look_around(self) -> None:
        loop = asyncio.get_running_loop()
        self.look(loop.time())
        self._look = loop.call_later(_LOOK_S, self._look_around)

    def look(self, now_s: float) -> None:
        """Let go of those whose time is up."""
        connections = cast("list[WebConnection]", list(self._state.connections))
        for connection in connections:
            connection.look(now_s)
        of = {each.unread_descriptor: each for each in connections}
        of.pop(-1, None)
        for socket in unread(of):
            if socket.has_left:
                of[socket.descriptor].left()

    def close(self) -> None:
        """Let every client go."""
        if self._look is not None:
            self._look.cancel()
        for connection in list(self._state.connections):
            connection.shutdown()


class WebServer(WebPort):
    """Serves one application of a broker's."""

    def __init__(self, app: ASGIApp, broker: Broker, *, answers_common: bool = False) -> None:
        """Paths that every port answers (`Common`) are answered here, unless the application does so itself."""
        app = app if answers_common else Common(app, broker)
        pages = WebPages(broker.settings, is_open=not broker.security.authentication.enabled)

        async def but_for_pages(scope: Scope, receive: Receive, send: Send) -> None:
            refusal = pages.refusal(scope["method"], scope["path"], dict(scope["headers"]))
            if refusal is None:
                await app(scope, receive, send)
                return
            _refused.warning(
                "%s %s is not answered: %s", scope["method"], scope["path"][:200], refusal.reason
            )
            say_with_status(scope, refusal.reason)
            await _said(refusal)(scope, receive, send)

        super().__init__(but_for_pages, web.limits_of(broker))
