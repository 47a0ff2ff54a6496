"""The protocol handler "pulsar": puts the services together and serves Pulsar's clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from magnetar.broker.core import Broker
from magnetar.broker.handlers import ProtocolHandler
from magnetar.broker.listeners import Listener
from magnetar.broker.settings import Settings
from magnetar.ledger.port import wall_clock_ms
from magnetar.pulsar.schemas import Schemas, strategy_named
from magnetar.pulsar.server import PulsarServer
from magnetar.pulsar.services import Services
from magnetar.pulsar.topics import PulsarTopics


class PulsarProtocolHandler(ProtocolHandler):
    """Serves Pulsar's binary protocol."""

    protocol_name: ClassVar[str] = "pulsar"

    def __init__(self, clock: Callable[[], int] = wall_clock_ms) -> None:
        self._clock = clock
        self._settings: Settings
        self._server: PulsarServer
        self.services: Services

    def initialize(self, settings: Settings) -> None:
        strategy_named(settings.schema_compatibility_strategy)
        self._settings = settings

    async def start(self, broker: Broker) -> None:
        topics = PulsarTopics(broker, self._clock)
        schemas = Schemas(
            broker.store, self._clock, strategy_named(self._settings.schema_compatibility_strategy)
        )
        self.services = Services(broker, topics, schemas, self._clock)
        broker.events.topic_deleted.append(schemas.topic_deleted)
        self._server = PulsarServer(self.services, self._settings)
        topics.start()
        self._server.start()

    def new_connection(self, listener: Listener) -> asyncio.BaseProtocol:
        return self._server.connection(listener)

    async def close(self) -> None:
        await self.services.topics.close()
        self._server.close()
