"""A broker in this process with two tenants that use the same names, and somebody of each kind who asks.

Tenant ``red`` has topic ``ruby``, group ``rubies`` and subject ``ruby-value``, and so has ``blue``: namesakes. All that
red keeps in them, and all else that it has, is called ``garnet``: nobody asks for that word, so that where an answer
holds it, something of red's was shown.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from magnetar.auth import AuthAction
from magnetar.auth.acls import Acl, Operation, PatternType, Permission, ResourceType
from magnetar.auth.scram import MECHANISMS, of_password
from magnetar.auth.scram_users import Alteration
from magnetar.coordination.transactions import TxnId, TxnPartition, TxnSubscription
from magnetar.kafka.handler import KafkaProtocolHandler
from magnetar.kafka.listeners import parse_listeners
from magnetar.ledger.memory import MemoryEngine
from magnetar.ledger.port import wall_clock_ms
from magnetar.metadata import MemoryStore
from magnetar.node.broker import Broker
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.wanted import Start, Wanted
from magnetar.pulsar.handler import PulsarProtocolHandler
from magnetar.pulsar.listeners import parse_pulsar_listeners
from magnetar.schema_registry.handler import SchemaRegistryHandler
from magnetar.schema_registry.registries import Registries
from magnetar.schema_registry.workshop import Workshop
from magnetar.serving.listeners import Listener
from magnetar.settings.settings import Settings
from magnetar.topics.names import TopicName
from tests.security.signing import OTHER_SECRET, SECRET_URL, token

MARK = b"garnet"
IDS_OF_RED = ("ruby-mining", "ruby-resting")
"""Transactional ids, of which the first has a transaction open."""
PULSARS_TRANSACTION = "(0,2)"
"""That over red's topic and subscription."""
TURNS = 4000
"""Of the event loop, for which an answer is waited: what is answered is, in a few."""
_SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
    "pulsar.listeners": "pulsar://127.0.0.1:6650",
    "authentication.enabled": "true",
    "authorization.enabled": "true",
    "super.user.roles": "root",
    "token.secret.key": SECRET_URL,
    "connection.failed.authentication.delay.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.auto.offset.reset": "earliest",
    "transaction.state.log.num.partitions": "1",
    "transaction.coordinator.enabled": "true",
    "advertised.address": "127.0.0.1",
    "data.dir": ".",
    "console.read.only": "false",
    "ssl.keystore.password": "garnet",
    "delegation.token.secret.key": "garnet",
}


@dataclass(frozen=True)
class Asker:
    """Somebody: what it shows, and the tenant that is its home."""

    name: str
    role: str
    home: str = "red"
    shows: str = "token"
    """A ``token``, an ``expired`` one, ``garbage``, or ``nothing``."""

    @property
    def proof(self) -> str:
        """The token, good or not; empty for nobody."""
        return _proof(self.role, self.shows)


@cache
def _proof(role: str, shows: str) -> str:
    if shows == "nothing":
        return ""
    if shows == "garbage":
        return token(role, OTHER_SECRET)
    return token(role, exp=time.time() - 60) if shows == "expired" else token(role)


ASKERS = (
    Asker("nobody", "", shows="nothing"),
    Asker("forged", "root", shows="garbage"),
    Asker("expired", "root", shows="expired"),
    Asker("stranger", "sam"),
    Asker("blue's", "bob", "blue"),
    Asker("blue's, at red", "bob", "red"),
    Asker("blue's, at public", "bob", "public"),
    Asker("blue's admin", "beth", "blue"),
    Asker("blue's admin, at red", "beth", "red"),
    Asker("public's admin", "padma", "public"),
    Asker("public's admin, at red", "padma", "red"),
    Asker("producer", "pete"),
    Asker("producer, consumer of blue's", "pia"),
    Asker("consumer, denied the topic", "dora"),
    Asker("consumer", "carl"),
    Asker("red's admin, denied the topic", "rita"),
    Asker("red's admin", "ruth"),
    Asker("super user", "root"),
)
"""Those of no proof, foreigners, and whom red knows, from who may least to who may most. Where an ACL denies somebody
red's topic, a grant and being an admin do not help."""


class Transport(asyncio.Transport):
    """Takes what the broker says instead of a socket."""

    def __init__(self, protocol: Any) -> None:
        super().__init__({"peername": ("127.0.0.1", 40_000)})
        self.protocol = protocol
        self.said = bytearray()
        self.closed = self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.said += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_reading(self) -> bool:
        return not self.paused


class Client:
    """One connection: bytes in, frames out."""

    def __init__(self, handler: Any, listener: Listener) -> None:
        self._protocol = handler.new_connection(listener)
        self.transport = Transport(self._protocol)
        self._protocol.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        while data and not self.transport.closed:
            buffer = self._protocol.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self._protocol.buffer_updated(count)
            data = data[count:]

    async def frame(self) -> bytes | None:
        """Wait for a frame without its size; None if the connection was closed, or nothing came."""
        said = self.transport.said
        for turn in range(TURNS):
            if len(said) >= 4 and len(said) >= 4 + int.from_bytes(said[:4], "big"):
                size = 4 + int.from_bytes(said[:4], "big")
                found = bytes(said[4:size])
                del said[:size]
                return found
            if self.transport.closed:
                return None
            # What threads do takes time, and not turns.
            await asyncio.sleep(0 if turn < 100 else 0.001)
        raise AssertionError("no answer")

    def close(self) -> None:
        self.transport.close()


class House:
    """The broker with its handlers."""

    broker: Broker
    kafka: KafkaProtocolHandler
    pulsar: PulsarProtocolHandler
    registry: SchemaRegistryHandler

    def __init__(self, *, tenants: bool) -> None:
        texts = _SETTINGS | {"kafka.enable.multi.tenant.metadata": str(tenants).lower()}
        self.settings = Settings().with_values(texts)
        self.tenants = tenants
        self.store = MemoryStore()
        (self.listener,) = parse_listeners(self.settings)
        (self.pulsar_listener,) = parse_pulsar_listeners(self.settings)
        self._engine = MemoryEngine(self.store)

    async def start(self) -> House:
        await self._engine.start()
        self.broker = Broker(self.settings, self.store, self._engine)
        await self.broker.start()
        self.kafka, self.pulsar = KafkaProtocolHandler(), PulsarProtocolHandler()
        self.registry = SchemaRegistryHandler()
        for handler in (self.registry, self.kafka, self.pulsar):
            handler.initialize(self.settings)
            await handler.start(self.broker)
        # What is done every now and then would change something while somebody asks.
        await self.broker.background.close()
        self.registries, self.workshop = self.broker.offers.get(Registries), self.broker.offers.get(Workshop)
        await self._furnish()
        return self

    async def _furnish(self) -> None:
        permissions = self.broker.security.permissions
        for tenant, admin in (("public", "padma"), ("red", "ruth"), ("blue", "beth")):
            for name in ("ruby", f"garnet-of-{tenant}" if tenant == "red" else "pearl"):
                await self.broker.create_topic(TopicName(tenant, "default", name), 1)
            await permissions.set_tenant_admins(tenant, [admin, "rita"] if tenant == "red" else [admin])
        await permissions.grant("blue/default", "bob", ["produce", "consume"])
        ruby = TopicName("red", "default", "ruby")
        for role, actions in (
            ("pete", ["produce"]),
            ("pia", ["produce"]),
            ("carl", ["consume"]),
            ("dora", ["consume"]),
        ):
            await permissions.grant("red/default", role, actions, ruby)
        await self.broker.security.acls.create(
            Acl(
                ResourceType.TOPIC,
                name,
                PatternType.LITERAL,
                f"User:{role}",
                "*",
                Operation.ALL,
                Permission.DENY,
            )
            for role, name in (("dora", "red/default/ruby"), ("rita", str(ruby)))
        )
        await permissions.grant("red/default", "garnet-reader", [AuthAction.CONSUME])
        await permissions.grant("blue/default", "pia", ["consume"])
        sha_256 = MECHANISMS["SCRAM-SHA-256"]
        await self.broker.security.scram.alter(
            [Alteration("garnet-user", sha_256, of_password(sha_256, "x"))]
        )
        await self.broker.security.delegation_tokens.create("garnet-owner", "garnet", [], -1, wall_clock_ms())
        topics = self.pulsar.services.topics
        for name in ("ruby", "garnet-of-red"):
            topic = await topics.open(self.broker.topic(f"red/default/{name}"), 0)
            await topic.subscription(Wanted("readers", SubType.Shared, True, Start.earliest))

    async def transaction_of(self, role: str) -> TxnId:
        """Begin a transaction of Pulsar's, of somebody's own, that has red's topics and subscriptions in it."""
        service = self.pulsar.services.transactions
        assert service is not None
        await service.coordinator.loaded()
        txn = await service.coordinator.begin(0, 3_600_000, role, 0)
        for name in ("ruby", "garnet-of-red"):
            where = TxnPartition(f"red/default/{name}", 0)
            await service.participants.begin(txn, where)
            await service.coordinator.add_partitions(txn, {where: f"persistent://red/default/{name}"})
            subscription = TxnSubscription(*where, "readers")
            await service.coordinator.add_subscriptions(
                txn, {subscription: f"persistent://red/default/{name}"}
            )
        return txn

    def topics_of_red(self) -> Iterator[Any]:
        return (topic for topic in self.broker.topics() if topic.name.tenant == "red")

    def state_of_red(self) -> object:
        """Return what there is of red's, so that two looks differ if anything was changed."""
        kept = tuple(
            (path, node)
            for path, node in self.store.blocking.scan("/")
            if "red" in path or path.startswith(("/magnetar/acls", "/magnetar/client-quotas"))
        )
        partitions = self.kafka.services.partitions
        logs = tuple(
            (topic.kafka_name, log.log_start_offset, log.log_end_offset, log.terminated)
            for topic in self.topics_of_red()
            for index in range(topic.partitions)
            if (log := getattr(partitions.opened(topic.kafka_name, topic.topic_id, index), "log", None))
        )
        subscriptions = tuple(
            (topic.name, name, each.backlog, len(each.consumers))
            for topic in self.pulsar.services.topics.all_open()
            if "red/" in topic.name
            for name, each in topic.subscriptions.items()
        )
        tenancy = self.kafka._tenancy
        services = [self.kafka.services] if tenancy is None else list(tenancy._by_tenant.values())
        groups = tuple(
            (group.group_id, group.state)
            for each in services
            if tenancy is None or tenancy._by_tenant.get("red") is each
            for group in each.groups.list_groups()
        )
        transactions = tuple(
            (each.transactional_id, each.producer_id, each.epoch, each.state, each.partitions)
            for service in services
            if tenancy is None or tenancy._by_tenant.get("red") is service
            if service.transactions.made is not None
            for each in service.transactions.made.list()
            if each.transactional_id in (*IDS_OF_RED, PULSARS_TRANSACTION)
        )
        return kept, logs, subscriptions, groups, transactions

    async def settled(self) -> None:
        """Wait for what an answered request began: what it changes belongs to that request, not to the next one."""
        if running := list(self.broker.logs.compactions._running.values()):
            await asyncio.wait(running)

    async def close(self) -> None:
        handlers = (self.registry, self.pulsar, self.kafka)
        for handler in handlers:  # as a broker ends: what looks around from time to time would keep this one
            await handler.drain()
        for handler in handlers:
            await handler.close()
        await self.broker.logs.compactions.close()
        await self._engine.close()
        await self.broker.metadata.close()
