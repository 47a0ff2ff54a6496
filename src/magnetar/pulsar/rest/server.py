"""The web service's sockets: the admin REST as an application of the broker's HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.broker import web
from magnetar.broker.listeners import Listener
from magnetar.pulsar.rest.ask import Address
from magnetar.pulsar.services import Services

if TYPE_CHECKING:
    from starlette.types import ASGIApp


class WebServer:
    """Serves the admin REST. What it takes a while to load and to lay out is `prepared` before, in a thread."""

    def __init__(self, services: Services, app: ASGIApp) -> None:
        self._server = web.WebServer(app, services.broker)

    def connection(self, listener: Listener) -> asyncio.BaseProtocol:
        """Give what talks to one client."""
        return self._server.connection()

    def close(self) -> None:
        """Let every client go."""
        self._server.close()


def prepared(services: Services, address: Callable[[], Address]) -> ASGIApp:
    """Give the application of the admin REST, with all loaded that serving it needs."""
    import prometheus_client  # noqa: F401

    import magnetar.broker.web_connection  # noqa: F401
    from magnetar.pulsar.rest.app import make_app

    return make_app(services, address)
