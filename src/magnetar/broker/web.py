"""HTTP on the broker's own loop and listeners: uvicorn's protocol, one per connection, for any ASGI application."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp


class WebServer:
    """Serves one application. Import it only where HTTP is to be served: what it needs takes a while to load."""

    def __init__(self, app: ASGIApp) -> None:
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

        self._protocol = Protocol
        self._state = ServerState()
        self._config = Config(
            app,
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
