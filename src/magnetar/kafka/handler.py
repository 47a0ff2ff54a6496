"""The protocol handler "kafka": puts the services together and serves Kafka's clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import fields
from typing import ClassVar

from magnetar.broker.background import end_all
from magnetar.broker.core import Broker
from magnetar.broker.handlers import ProtocolHandler
from magnetar.broker.listeners import Listener
from magnetar.broker.settings import Settings
from magnetar.broker.topic import Topic
from magnetar.kafka.context import Services
from magnetar.kafka.coordinators.groups import GroupCoordinator
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.kafka.fetch_sessions import ROW_BYTES, FetchSessions
from magnetar.kafka.group_progress import GroupProgress
from magnetar.kafka.login import SERVED_MECHANISMS
from magnetar.kafka.offsets_log import LedgerOffsetsLog
from magnetar.kafka.partitions.cleaner import Cleaner
from magnetar.kafka.partitions.registry import Partitions
from magnetar.kafka.producer_ids import ProducerIds
from magnetar.kafka.server import KafkaServer
from magnetar.kafka.tenancy import Tenancy
from magnetar.kafka.wakeups import Wakeups
from magnetar.ledger.port import wall_clock_ms

_SESSIONS_PART = 4  # of the budget for what clients make the broker keep
_log = logging.getLogger("magnetar.kafka")


class KafkaProtocolHandler(ProtocolHandler):
    """Serves Kafka's protocol."""

    protocol_name: ClassVar[str] = "kafka"

    def __init__(self, clock: Callable[[], int] = wall_clock_ms) -> None:
        self._clock = clock
        self._settings: Settings
        self._server: KafkaServer
        self.services: Services

    def initialize(self, settings: Settings) -> None:
        self._settings = settings
        unserved = [each for each in settings.sasl_enabled_mechanisms if each not in SERVED_MECHANISMS]
        if unserved:
            _log.warning("SASL mechanisms that are enabled, but not served: %s", ", ".join(unserved))

    async def start(self, broker: Broker) -> None:
        partitions = Partitions(broker, self._clock)
        groups = GroupCoordinator(
            LedgerOffsetsLog(broker, partitions),
            group_settings(self._settings),
            background=broker.background,
        )
        self.services = Services(
            broker=broker,
            partitions=partitions,
            groups=groups,
            fetch_sessions=FetchSessions(
                self._settings.max_incremental_fetch_session_cache_slots,
                self._settings.memory_requests_bytes // _SESSIONS_PART // ROW_BYTES,
                broker.memory.account(lambda: None, known=True),
            ),
            producer_ids=ProducerIds(broker.store),
            wakeups=Wakeups(),
        )

        if self._settings.kafka_enable_multi_tenant_metadata:
            self.services.tenancy = tenancy = Tenancy(
                self.services,
                lambda name: GroupCoordinator(
                    LedgerOffsetsLog(broker, partitions, name),
                    group_settings(self._settings),
                    background=broker.background,
                ),
            )
        else:
            tenancy = None

        async def forget(topic: Topic) -> None:
            await groups.on_topic_deleted(topic.kafka_name)
            if tenancy is not None:
                await tenancy.forget(topic.kafka_name)

        broker.events.topic_deleted.append(forget)
        broker.progress.groups = GroupProgress(broker, groups)
        groups.on_committed = broker.progress.committed
        groups.on_joining = broker.progress.joining_group
        self._server = KafkaServer(self.services, self._settings)
        partitions.start()
        self._cleaner = Cleaner(broker, partitions, self._clock)
        self._cleaner.start()
        self._server.start()
        await groups.start()

    def new_connection(self, listener: Listener) -> asyncio.BaseProtocol:
        return self._server.connection(listener)

    async def close(self) -> None:
        tenancy = self.services.tenancy
        await end_all(
            "the Kafka handler",
            [
                ("its clients", self._server.close),
                ("groups", self.services.groups.close),
                *([("tenants' groups", tenancy.close)] if tenancy is not None else []),
                ("the log cleaner", self._cleaner.close),
                ("retention", self.services.partitions.close),
            ],
        )


def group_settings(settings: Settings) -> GroupSettings:
    """Give what the settings say about groups."""
    names = [field.name for field in fields(GroupSettings)]
    return GroupSettings(**{name: getattr(settings, name) for name in names})
