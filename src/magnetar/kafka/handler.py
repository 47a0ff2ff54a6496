"""The protocol handler "kafka": puts the services together and serves Kafka's clients."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar

from magnetar.base.background import end_all
from magnetar.base.errors import InvalidConfig
from magnetar.base.setting import HandlerSettings
from magnetar.cluster.ownership import Bundle
from magnetar.kafka.client_metrics.lazy import LazyClientMetrics
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.kafka.coordinators.share.settings import ShareSettings
from magnetar.kafka.coordinators.streams.settings import StreamsSettings
from magnetar.kafka.group_progress import GroupProgress
from magnetar.kafka.listeners import parse_listeners
from magnetar.kafka.other_brokers import OtherBrokers
from magnetar.kafka.partitions.registry import Partitions
from magnetar.kafka.producer_ids import ProducerIds
from magnetar.kafka.quotas.lazy import LazyQuotas
from magnetar.kafka.request_figures import Requests
from magnetar.kafka.rooms import Rooms
from magnetar.kafka.sasl import SERVED
from magnetar.kafka.server import KafkaServer
from magnetar.kafka.services import KafkaServices
from magnetar.kafka.settings import KafkaSettings
from magnetar.kafka.slow_requests import thresholds
from magnetar.ledger.durations import Durations
from magnetar.ledger.port import wall_clock_ms
from magnetar.node.broker import Broker
from magnetar.node.handlers import ProtocolHandler
from magnetar.schema_registry.settings import SchemaRegistrySettings
from magnetar.serving.fetch_sessions import ROW_BYTES, FetchSessions
from magnetar.serving.listeners import Listener
from magnetar.serving.wakeups import Wakeups
from magnetar.settings.metrics import KOP
from magnetar.settings.settings import Settings
from magnetar.topics.topic import Topic

if TYPE_CHECKING:
    from magnetar.auth import Access
    from magnetar.coordination.transactions import Coordinator
    from magnetar.figures.figures import FigureTable
    from magnetar.kafka.figures import KafkaFigures
    from magnetar.kafka.tenancy import Tenancy


def monotonic_ms() -> int:
    """Return the time by a clock that is never set."""
    return int(time.monotonic() * 1000)


_SESSIONS_PART = 4  # of the budget for what clients make the broker keep
_log = logging.getLogger("magnetar.kafka")


class KafkaProtocolHandler(ProtocolHandler):
    """Serves Kafka's protocol."""

    protocol_name: ClassVar[str] = "kafka"
    settings: ClassVar[tuple[type[HandlerSettings], ...]] = (
        KafkaSettings,
        GroupSettings,
        ShareSettings,
        StreamsSettings,
    )
    offers: ClassVar[tuple[type, ...]] = (KafkaServices, KafkaServer)

    def __init__(self, clock: Callable[[], int] = wall_clock_ms) -> None:
        self._clock = clock
        self._settings: Settings
        self._slow_s: Mapping[int, float]
        self._server: KafkaServer
        self._tenancy: Tenancy | None
        self._others: OtherBrokers
        self.services: KafkaServices

    def initialize(self, settings: Settings) -> None:
        self._settings = settings
        self._slow_s = thresholds(settings.of(KafkaSettings).slow_request_ms)
        everywhere = (settings.security, *settings.security_by_listener.values())
        enabled = dict.fromkeys(each for part in everywhere for each in part.sasl_enabled_mechanisms)
        unserved = [each for each in enabled if each not in SERVED]
        if unserved:
            _log.warning("SASL mechanisms that are enabled, but not served: %s", ", ".join(unserved))

    def listeners(self) -> Sequence[Listener]:
        try:
            wanted = parse_listeners(self._settings)
        except InvalidConfig as error:
            if "listeners" in self._settings.given:
                raise
            # A file of Pulsar's that lets clients in by what Kafka's clients cannot show there.
            _log.warning("Kafka clients are not served, as no listeners are set: %s", error)
            return ()
        if not any(each.tls for each in wanted):
            return wanted
        from magnetar.auth.tls import kafka_tls

        return [
            replace(each, context=kafka_tls(self._settings.at(each.name).security, each.client_auth))
            if each.tls
            else each
            for each in wanted
        ]

    async def start(self, broker: Broker) -> None:
        partitions = Partitions(broker, self._clock)
        rooms = Rooms(broker, partitions, self._settings, ProducerIds(broker.store))
        await broker.metadata.follow(rooms.configs)
        self._others = rooms.others
        groups = rooms.groups()
        transactions = rooms.transactions()
        shares = rooms.shares(groups)
        client_metrics = LazyClientMetrics(broker.metadata, monotonic_ms)
        await broker.metadata.follow(client_metrics.kept)
        self.services = KafkaServices(
            broker=broker,
            partitions=partitions,
            groups=groups,
            transactions=transactions,
            shares=shares,
            fetch_sessions=FetchSessions(
                self._settings.of(KafkaSettings).max_incremental_fetch_session_cache_slots,
                self._settings.connections.memory_requests_bytes // _SESSIONS_PART // ROW_BYTES,
                broker.serving.memory.account(lambda: None, known=True),
            ),
            producer_ids=rooms.producer_ids,
            wakeups=Wakeups(),
            quotas=LazyQuotas(
                broker.quotas_of_clients, broker.serving.memory, self._settings.of(KafkaSettings)
            ),
            client_metrics=client_metrics,
            requests=Requests(self._slow_s),
            reads=Durations() if broker.figures.dialects.has(KOP) else None,
        )

        tenancy: Tenancy | None = None
        if self._settings.names.kafka_enable_multi_tenant_metadata:
            from magnetar.kafka.tenancy import Tenancy

            self.services.by_tenant = True
            tenancy = Tenancy(self.services, rooms)

        self._tenancy = tenancy

        async def forget(topic: Topic) -> None:
            await groups.on_topic_deleted(topic.kafka_name)
            await shares.forget_topic(topic)
            if tenancy is not None:
                await tenancy.forget(topic)

        broker.events.topic_deleted.append(forget)
        for each in (groups, transactions, shares, *(() if tenancy is None else (tenancy,))):
            # Each by itself: were one of them to fail, the others would not hear of it.
            follow = partial(_follow, each.follow_ownership)
            broker.events.bundle_lost.append(follow)
            broker.events.bundle_acquired.append(follow)
        broker.coordination.progress.groups = GroupProgress(broker, groups)
        if broker.coordination.progress.links:
            from magnetar.kafka.shares.links import ShareLinks  # most brokers have no linked names

            broker.coordination.linked_queues.shares = ShareLinks(shares, partitions)

        async def coordinator() -> Coordinator:
            return (await transactions.get()).of_pulsar()

        broker.coordination.transactions.coordinator_of = coordinator
        broker.cluster.between.way = rooms.others.question
        groups.telling.on_committed.append(broker.coordination.progress.committed)
        groups.on_joining.append(broker.coordination.progress.joining_group)
        broker.offers.add(self.services)
        self._server = KafkaServer(self.services, self._settings, tenancy)
        broker.offers.add(self._server)
        broker.figures.sources.append(self._figures)
        broker.figures.before.append(self._look)
        partitions.start()
        self._server.start()
        await groups.start()
        await transactions.follow_ownership()

    @cached_property
    def _told(self) -> KafkaFigures:
        from magnetar.kafka.figures import KafkaFigures  # for brokers that somebody asks for their figures

        return KafkaFigures(self.services, self._server, self._tenancy)

    async def _look(self) -> None:
        await self._told.look()

    def _figures(self, access: Access | None) -> Iterator[FigureTable | None]:
        return self._told(access)

    def new_connection(self, listener: Listener) -> asyncio.BaseProtocol:
        return self._server.connection(listener)

    def needs(self) -> Sequence[str]:
        decodes = self._settings.of(SchemaRegistrySettings).kafka_apply_avro_schema_on_decode
        return ("schema-registry",) if decodes else ()

    def ready(self) -> Sequence[str]:
        groups, transactions = self.services.groups.loading, self.services.transactions.loading
        loading = [(groups, "groups"), (transactions, "transactions")]
        return [f"{count} partitions of {what} are being loaded" for count, what in loading if count]

    def serves(self, listeners: Sequence[Listener]) -> None:
        self._others.serves(listeners)
        self._server.serves(listeners)

    async def drain(self) -> None:
        self._server.close()

    async def close(self) -> None:
        tenancy = self._tenancy
        await end_all(
            "the Kafka handler",
            [
                ("transactions", self.services.transactions.close),
                ("share groups", self.services.shares.close),
                ("groups", self.services.groups.close),
                *([("tenants' groups and transactions", tenancy.close)] if tenancy is not None else []),
                ("partitions", self.services.partitions.close),
                ("other brokers", self._others.close),
            ],
        )


async def _follow(follow: Callable[[], Awaitable[None]], bundle: Bundle) -> None:
    """Follow which bundles this broker has; ``bundle`` has come, or goes."""
    await follow()
