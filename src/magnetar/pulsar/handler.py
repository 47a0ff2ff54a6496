"""The protocol handler "pulsar": puts the services together and serves Pulsar's clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from magnetar.broker.background import end_all
from magnetar.broker.core import Broker
from magnetar.broker.handlers import ProtocolHandler
from magnetar.broker.listeners import Listener
from magnetar.broker.names import TopicName
from magnetar.broker.pulsar_listeners import WEB, url
from magnetar.broker.settings import Settings
from magnetar.ledger.port import wall_clock_ms
from magnetar.pulsar.compaction import CompactionMonitor
from magnetar.pulsar.group_cursors import GroupCursors
from magnetar.pulsar.inactive import InactiveTopicsSweep
from magnetar.pulsar.schemas import Schemas, strategy_named
from magnetar.pulsar.server import PulsarServer
from magnetar.pulsar.services import Services
from magnetar.pulsar.topics import PulsarTopics
from magnetar.pulsar.watches import Watches
from magnetar.schema_registry.workshop import workshop_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from magnetar.pulsar.rest.ask import Address
    from magnetar.pulsar.rest.server import WebServer


class PulsarProtocolHandler(ProtocolHandler):
    """Serves Pulsar's binary protocol and its admin REST."""

    protocol_name: ClassVar[str] = "pulsar"

    def __init__(self, clock: Callable[[], int] = wall_clock_ms) -> None:
        self._clock = clock
        self._settings: Settings
        self._server: PulsarServer
        self._web: WebServer | None = None
        self._app: asyncio.Task[ASGIApp] | None = None
        """The admin REST, being loaded: it takes longer than clients should wait for."""
        self._listeners: Sequence[Listener] = ()
        self.services: Services

    def initialize(self, settings: Settings) -> None:
        strategy_named(settings.schema_compatibility_strategy)
        self._settings = settings

    async def start(self, broker: Broker) -> None:
        topics = PulsarTopics(broker, self._clock)
        self._workshop = workshop_of(broker)
        strategy = strategy_named(self._settings.schema_compatibility_strategy)
        schemas = Schemas(broker.store, self._clock, strategy, self._workshop)
        self.services = Services(
            broker, topics, schemas, GroupCursors(broker, topics), self._clock, Watches(broker)
        )
        self._compactions = CompactionMonitor(broker, topics)
        InactiveTopicsSweep(broker, topics, self._clock)
        broker.events.topic_deleted.append(schemas.topic_deleted)
        namespaces = broker.namespaces

        def strategy_of(topic: TopicName) -> str | None:
            known = topic.namespace_name in namespaces
            return namespaces.policies(topic.namespace_name).schema_compatibility_strategy if known else None

        schemas.strategy_of = strategy_of
        self._server = PulsarServer(self.services, self._settings)
        topics.start()
        self._compactions.start()
        self._server.start()

    def new_connection(self, listener: Listener) -> asyncio.BaseProtocol:
        if listener.name in WEB.values():
            return self._web_server().connection(listener)
        return self._server.connection(listener)

    def serves(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners
        if any(listener.name in WEB.values() for listener in listeners):
            loading = asyncio.to_thread(self._prepared)
            self._app = self.services.broker.background.once("loading the web service", loading)

    def _prepared(self) -> ASGIApp:
        from magnetar.pulsar.rest.server import prepared

        return prepared(self.services, self._address)

    def _web_server(self) -> WebServer:
        if self._web is None:
            from magnetar.pulsar.rest.server import WebServer

            is_ready = self._app is not None and self._app.done() and self._app.exception() is None
            app = self._app.result() if self._app is not None and is_ready else self._prepared()
            self._web = WebServer(self.services, app)
        return self._web

    def _address(self) -> Address:
        from magnetar.pulsar.rest.ask import Address

        urls = {listener.name: url(listener) for listener in reversed(self._listeners)}
        return Address(*(urls.get(name, "") for name in ("PULSAR", "PULSAR_SSL", "HTTP", "HTTPS")))

    async def close(self) -> None:
        await end_all(
            "the Pulsar handler",
            [
                ("what understands schemas", self._workshop.close),
                *([("clients of its REST", self._web.close)] if self._web is not None else []),
                ("groups", self.services.groups.synchronise),
                ("the monitor of compactions", self._compactions.close),
                ("topics", self.services.topics.close),
                ("its clients", self._server.close),
            ],
        )
