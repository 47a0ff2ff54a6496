"""The protocol handler "pulsar": puts the services together and serves Pulsar's clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from magnetar.base.background import end_all
from magnetar.base.setting import HandlerSettings
from magnetar.cluster.ownership import SoleOwner
from magnetar.ledger.port import wall_clock_ms
from magnetar.node.broker import Broker
from magnetar.node.handlers import ProtocolHandler
from magnetar.pulsar.expired_subscriptions import ExpiredSubscriptionsSweep
from magnetar.pulsar.figures import PulsarFigures
from magnetar.pulsar.group_cursors import GroupCursors
from magnetar.pulsar.grown_topics import GrownTopics
from magnetar.pulsar.inactive import InactiveTopicsSweep
from magnetar.pulsar.limit_settings import PulsarLimitSettings
from magnetar.pulsar.listeners import parse_pulsar_listeners
from magnetar.pulsar.schemas import TopicSchemas, strategy_named
from magnetar.pulsar.server import PulsarServer
from magnetar.pulsar.services import PulsarServices
from magnetar.pulsar.settings import PulsarSettings
from magnetar.pulsar.topics import PulsarTopics
from magnetar.pulsar.watches import Watches
from magnetar.schema_registry.workshop import Workshop
from magnetar.serving.listeners import Listener
from magnetar.serving.url_listeners import with_tls
from magnetar.settings.settings import Settings

if TYPE_CHECKING:
    from magnetar.pulsar.transactions.participants import TopicParticipants


class PulsarProtocolHandler(ProtocolHandler):
    """Serves Pulsar's binary protocol; without listeners, what the admin REST asks."""

    protocol_name: ClassVar[str] = "pulsar"
    settings: ClassVar[tuple[type[HandlerSettings], ...]] = (
        PulsarSettings,
        PulsarLimitSettings,
    )

    def __init__(self, clock: Callable[[], int] = wall_clock_ms) -> None:
        self._clock = clock
        self._settings: Settings
        self._server: PulsarServer
        self.services: PulsarServices

    def initialize(self, settings: Settings) -> None:
        strategy_named(settings.of(PulsarSettings).schema_compatibility_strategy)
        self._settings = settings

    def listeners(self) -> Sequence[Listener]:
        return with_tls(parse_pulsar_listeners(self._settings), self._settings)

    def needs(self) -> Sequence[str]:
        # For what understands schemas, and for the transaction coordinator.
        return ("schema-registry", "kafka") if self._has_transactions else ("schema-registry",)

    @property
    def _has_transactions(self) -> bool:
        return self._settings.of(PulsarSettings).transaction_coordinator_enabled

    async def start(self, broker: Broker) -> None:
        topics = PulsarTopics(broker, self._clock)
        strategy = strategy_named(self._settings.of(PulsarSettings).schema_compatibility_strategy)
        schemas = TopicSchemas(
            broker.store, self._clock, strategy, broker.offers.get(Workshop), topics.policies.schema_strategy
        )
        self.services = PulsarServices(
            broker,
            topics,
            schemas,
            GroupCursors(broker, topics),
            self._clock,
            Watches(broker.events, broker.topics()),
            GrownTopics(broker, topics),
        )
        broker.offers.add(self.services)
        await self._join_transactions(broker, topics)
        InactiveTopicsSweep(broker, topics, self._clock)
        ExpiredSubscriptionsSweep(broker, topics, self.services.groups, self._clock)
        broker.events.topic_deleted.append(schemas.topic_deleted)
        self._server = PulsarServer(self.services, self._settings)
        await broker.metadata.follow(schemas, load=False)
        await topics.start()
        figures = PulsarFigures(self.services, self._server)
        broker.figures.sources.append(figures)
        broker.figures.before.append(figures.look)
        self._server.start()

    async def _join_transactions(self, broker: Broker, topics: PulsarTopics) -> None:
        """Have the coordinator find topics and subscriptions, and where transactions are switched on clients find it.

        What was decided before they were switched off is ended all the same.
        """
        made: list[TopicParticipants] = []

        def participants() -> TopicParticipants:
            if not made:
                from magnetar.pulsar.transactions.participants import (
                    TopicParticipants,
                )  # most brokers have none

                made.append(TopicParticipants(broker, topics))
            return made[0]

        broker.coordination.transactions.join(participants)
        coordinator_of = broker.coordination.transactions.coordinator_of
        # Brokers of a cluster answer each other about transactions whether their own clients may have any or not: the
        # setting is changed on one after the other, and each has a part of the coordinators, and of the topics.
        is_one_of_several = not isinstance(broker.cluster.ownership, SoleOwner)
        if coordinator_of is not None and (self._has_transactions or is_one_of_several):
            from magnetar.pulsar.transactions.service import TransactionService

            service = TransactionService(broker, topics, participants(), await coordinator_of())
            if self._has_transactions:
                self.services.transactions = service

    def new_connection(self, listener: Listener) -> asyncio.BaseProtocol:
        return self._server.connection(listener)

    def serves(self, listeners: Sequence[Listener]) -> None:
        self.services.served = tuple(listeners)

    async def drain(self) -> None:
        self._server.close()

    async def close(self) -> None:
        await end_all(
            "the Pulsar handler",
            [
                ("groups", self.services.groups.synchronise),
                ("topics", self.services.topics.close),
            ],
        )
