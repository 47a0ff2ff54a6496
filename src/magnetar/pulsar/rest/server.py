"""The web service's sockets: uvicorn's HTTP protocol, one per connection, on the broker's own loop and listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar.broker.listeners import Listener
from magnetar.pulsar.rest.ask import Address
from magnetar.pulsar.services import Services


class WebServer:
    """Made, with all it imports, when the first listener of the web service is to be served."""

    def __init__(self, services: Services, address: Callable[[], Address]) -> None:
        from uvicorn import Config
        from uvicorn.protocols.http.h11_impl import H11Protocol
        from uvicorn.server import ServerState

        from magnetar.pulsar.rest.app import make_app

        class Protocol(H11Protocol):
            """Keeps, for whoever asks who this is, what certificate the client has shown."""

            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                tls = transport.get_extra_info("ssl_object")
                if tls is not None:
                    self.app_state["certificate"] = tls.getpeercert()

        self._protocol = Protocol
        self._state = ServerState()
        self._config = Config(
            make_app(services, address),
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

    def connection(self, listener: Listener) -> asyncio.BaseProtocol:
        """Give what talks to one client."""
        made: asyncio.BaseProtocol = self._protocol(
            config=self._config, server_state=self._state, app_state={}, _loop=asyncio.get_running_loop()
        )
        return made

    def close(self) -> None:
        """Let every client go."""
        for connection in list(self._state.connections):
            connection.shutdown()
