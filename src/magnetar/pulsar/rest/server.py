"""The web service's sockets: the admin REST as an application of the broker's HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar.broker import web
from magnetar.broker.listeners import Listener
from magnetar.pulsar.rest.ask import Address
from magnetar.pulsar.services import Services


class WebServer:
    """Made, with all it imports, when the first listener of the web service is to be served."""

    def __init__(self, services: Services, address: Callable[[], Address]) -> None:
        from magnetar.pulsar.rest.app import make_app

        self._server = web.WebServer(make_app(services, address), services.broker)

    def connection(self, listener: Listener) -> asyncio.BaseProtocol:
        """Give what talks to one client."""
        return self._server.connection()

    def close(self) -> None:
        """Let every client go."""
        self._server.close()
