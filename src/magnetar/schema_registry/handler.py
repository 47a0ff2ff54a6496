"""The protocol handler "schema-registry": serves Confluent's REST API."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from magnetar.base.setting import HandlerSettings
from magnetar.node.broker import Broker
from magnetar.node.handlers import ProtocolHandler
from magnetar.schema_registry.listeners import parse_registry_listeners
from magnetar.schema_registry.registries import Registries
from magnetar.schema_registry.settings import SchemaRegistrySettings
from magnetar.schema_registry.workshop import Workshop
from magnetar.serving.listeners import Listener
from magnetar.serving.url_listeners import with_tls
from magnetar.settings.settings import Settings

if TYPE_CHECKING:
    from magnetar.web.server import WebServer


class SchemaRegistryHandler(ProtocolHandler):
    """Serves the schema registry of a broker; without listeners, understands schemas for other handlers."""

    protocol_name: ClassVar[str] = "schema-registry"
    settings: ClassVar[tuple[type[HandlerSettings], ...]] = (SchemaRegistrySettings,)
    offers: ClassVar[tuple[type, ...]] = (Registries, Workshop)

    def __init__(self) -> None:
        self._web: WebServer | None = None
        self._broker: Broker
        self._registries: Registries
        self._workshop = Workshop()
        self._settings: Settings

    def initialize(self, settings: Settings) -> None:
        self._settings = settings

    def listeners(self) -> Sequence[Listener]:
        return with_tls(parse_registry_listeners(self._settings), self._settings)

    async def start(self, broker: Broker) -> None:
        self._broker = broker
        naming, by_tenant = broker.naming, self._settings.names.kafka_enable_multi_tenant_metadata
        self._registries = Registries(broker.metadata, naming.tenant, by_tenant=by_tenant)
        broker.offers.add(self._registries)
        broker.offers.add(self._workshop)
        if self._settings.of(SchemaRegistrySettings).asks_to_serve:
            await self._registries.of()
            # Now, and in a thread: it takes longer than clients should wait for when the first one comes.
            broker.background.once("loading the schema registry", asyncio.to_thread(_load))

    def new_connection(self, listener: Listener) -> asyncio.BaseProtocol:
        if self._web is None:
            _load()
            from magnetar.schema_registry.app import App
            from magnetar.web.server import WebServer

            self._web = WebServer(App(self._broker, self._registries, self._workshop), self._broker)
        return self._web.connection()

    async def drain(self) -> None:
        # Clients that wait for a schema to be understood would keep their connections.
        self._workshop.close()
        if self._web is not None:
            self._web.close()

    async def close(self) -> None: ...


def _load() -> None:
    pass
