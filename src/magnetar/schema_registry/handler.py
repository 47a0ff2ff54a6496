"""The protocol handler "schema-registry": serves Confluent's REST API."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from magnetar.broker.core import Broker
from magnetar.broker.handlers import ProtocolHandler
from magnetar.broker.listeners import Listener
from magnetar.broker.settings import Settings
from magnetar.schema_registry.registries import registries_of
from magnetar.schema_registry.workshop import workshop_of

if TYPE_CHECKING:
    from magnetar.broker.web import WebServer


class SchemaRegistryHandler(ProtocolHandler):
    """Serves the schema registry of a broker."""

    protocol_name: ClassVar[str] = "schema-registry"

    def __init__(self) -> None:
        self._web: WebServer | None = None
        self._broker: Broker

    def initialize(self, settings: Settings) -> None: ...

    async def start(self, broker: Broker) -> None:
        self._broker = broker
        registries_of(broker).of()
        # Now, and in a thread: it takes longer than clients should wait for when the first one comes.
        broker.background.once("loading the schema registry", asyncio.to_thread(_load))

    def new_connection(self, listener: Listener) -> asyncio.BaseProtocol:
        if self._web is None:
            _load()
            from magnetar.broker.web import WebServer
            from magnetar.schema_registry.app import App

            self._web = WebServer(App(self._broker, registries_of(self._broker)), self._broker)
        return self._web.connection()

    async def close(self) -> None:
        workshop_of(self._broker).close()
        if self._web is not None:
            self._web.close()


def _load() -> None:
    import magnetar.broker.web_connection
    import magnetar.schema_registry.app  # noqa: F401
