"""A handler that is nobody's but this test's: what a client says, it hears again. Own listeners, own settings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from magnetar.base.setting import HandlerSettings, setting
from magnetar.base.values import Kind, at_least
from magnetar.node.broker import Broker
from magnetar.node.handlers import ProtocolHandler
from magnetar.serving.listeners import Listener
from magnetar.serving.url_listeners import url_listeners, with_tls
from magnetar.settings.settings import Settings

_SCHEMES = {"echo": "ECHO", "echos": "ECHO_TLS"}


@dataclass(frozen=True, slots=True)
class EchoSettings(HandlerSettings):
    """Echoes."""

    echo_listeners: tuple[str, ...] = setting((), Kind.LIST, "Addresses to echo on, echo://HOST:PORT each.")
    echo_times: int = setting(
        1, Kind.INT, "How often each line comes back.", rule=at_least(0), kafka=("echo.number",)
    )


class Echo(asyncio.Protocol):
    """One client."""

    def __init__(self, broker: Broker, connections: set[Echo]) -> None:
        self._broker = broker
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked: the transports that uvloop does TLS with are no instances of asyncio.Transport.
        self.transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data * self._broker.settings.of(EchoSettings).echo_times)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)


class EchoHandler(ProtocolHandler):
    """Serves lines."""

    protocol_name: ClassVar[str] = "echo"
    settings: ClassVar[tuple[type[HandlerSettings], ...]] = (EchoSettings,)

    def initialize(self, settings: Settings) -> None:
        self._settings = settings
        self._connections: set[Echo] = set()

    def listeners(self) -> Sequence[Listener]:
        own = self._settings.of(EchoSettings)
        return with_tls(
            url_listeners("echo", own.echo_listeners, (), _SCHEMES, self._settings), self._settings
        )

    async def start(self, broker: Broker) -> None:
        self._broker = broker

    def new_connection(self, listener: Listener) -> asyncio.BaseProtocol:
        return Echo(self._broker, self._connections)

    async def drain(self) -> None:
        for each in list(self._connections):
            each.transport.write(b"bye\n")
            each.transport.close()

    async def close(self) -> None:
        assert not self._broker.background.troubles()
