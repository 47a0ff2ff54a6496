"""Clients of several tenants on one broker (``kafka.enable.multi.tenant.metadata``), each as if alone, as in KoP.

The tenant in the SASL user's name, or ``tenant/namespace``, is the client's home. A short topic name means a topic
there; its groups are the tenant's own, kept in ``<tenant>/__kafka/__consumer_offsets``, and so are its transactional
ids. Handlers know nothing of all
this: names are made long in requests and short again in answers, and each tenant has `KafkaServices` with its own
groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from magnetar.base.errors import InvalidTopic
from magnetar.kafka.configs.resource_types import ConfigResourceType
from magnetar.kafka.coordinators.groups import GroupCoordinator
from magnetar.kafka.route import Names
from magnetar.kafka.services import KafkaServices
from magnetar.topics.names import (
    CONSUMER_OFFSETS,
    INTERNAL_TOPICS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    Naming,
    TopicName,
)
from magnetar.topics.topic import Topic

if TYPE_CHECKING:
    from magnetar.kafka.shares.lazy import LazyShares
    from magnetar.kafka.transactions.lazy import LazyTransactions

_MAX_SPELLED = 10_000


class Home:
    """Where one client is at home; translates the names of its requests and answers."""

    def __init__(self, tenant: str, namespace: str, services: KafkaServices, *, renames: bool = True) -> None:
        """``renames`` is off where short names mean what they mean without tenants."""
        self.services = services
        """The tenant's."""
        self._renames = renames
        self._prefix = f"{tenant}/{namespace}/"
        self._metadata = f"{tenant}/{services.broker.naming.metadata_namespace}/"
        self._spelled: set[str] = set()
        """Names of home that the client itself writes in full: they are given back so."""

    def inward(self, names: Names, request: Any) -> None:
        """Make the topic names of a request long."""
        if self._renames:
            for path in names.asked:
                _rewrite(request, path, self._long)

    def outward(self, names: Names, response: Any) -> None:
        """Make the topic names of an answer as the client knows them."""
        if self._renames:
            for path in names.answered:
                _rewrite(response, path, self._short)

    def _long(self, name: str) -> str:
        if "/" in name:
            full = name.removeprefix("persistent://")
            if full.startswith(self._prefix) and len(self._spelled) < _MAX_SPELLED:
                self._spelled.add(full)
            return name
        return (self._metadata if name in INTERNAL_TOPICS else self._prefix) + name

    def _short(self, name: str) -> str:
        if name in self._spelled:
            return name
        for prefix in (self._prefix, self._metadata):
            if name.startswith(prefix):
                return name.removeprefix(prefix)
        return name


class MakesCoordinators(Protocol):
    """Makes coordinators, each for what is kept in the topic of a name; none of them is started."""

    def groups(self, topic: str) -> GroupCoordinator: ...

    def transactions(self, topic: str, home: str) -> LazyTransactions: ...

    def shares(self, groups: GroupCoordinator, topic: str, home: str) -> LazyShares: ...


class Tenancy:
    """The homes of one broker's clients."""

    def __init__(self, services: KafkaServices, rooms: MakesCoordinators) -> None:
        """``rooms`` makes each tenant's coordinators."""
        self._services = services
        self._rooms = rooms
        self._by_tenant: dict[str, KafkaServices] = {}

    async def home(self, user: str) -> Home:
        """Return the home of a SASL user; raise `InvalidTopic` for what is no tenant, or the broker's own."""
        naming = self._services.broker.naming
        tenant, separator, namespace = user.partition("/")
        namespace = namespace if separator else naming.namespace
        TopicName.parse(f"{tenant}/{namespace}/t")
        if tenant != naming.tenant:
            if tenant not in self._services.broker.namespaces.tenants():
                raise InvalidTopic(user, f"there is no tenant {tenant}")
            if tenant == naming.metadata_tenant:  # its groups would be those of the default tenant
                raise InvalidTopic(user, f"tenant {tenant} is the broker's own")
        services = await self._of(tenant, naming, f"{tenant}/{namespace}")
        is_default = (tenant, namespace) == (naming.tenant, naming.namespace)
        return Home(tenant, namespace, services, renames=not is_default)

    async def _of(self, tenant: str, naming: Naming, home: str) -> KafkaServices:
        if tenant == naming.tenant:
            return replace(self._services, home=home)
        if tenant not in self._by_tenant:
            inside = f"{tenant}/{naming.metadata_namespace}"
            groups = self._rooms.groups(f"{inside}/{CONSUMER_OFFSETS}")
            asks_as = f"{tenant}/{naming.namespace}"
            transactions = self._rooms.transactions(f"{inside}/{TRANSACTION_STATE}", asks_as)
            shares = self._rooms.shares(groups, f"{inside}/{SHARE_GROUP_STATE}", asks_as)
            self._by_tenant[tenant] = replace(
                self._services,
                groups=groups,
                transactions=transactions,
                shares=shares,
            )
            await groups.start()
            await transactions.follow_ownership()
        return replace(self._by_tenant[tenant], home=home)

    def coordinators(self) -> list[tuple[str, GroupCoordinator]]:
        """Return the groups of each tenant that has had clients, but for those that are everybody's."""
        return [(tenant, services.groups) for tenant, services in self._by_tenant.items()]

    def shares(self) -> dict[str, LazyShares]:
        """Return the share groups of each of these tenants."""
        return {tenant: services.shares for tenant, services in self._by_tenant.items()}

    async def forget(self, topic: Topic) -> None:
        """Let every tenant's groups know that a topic is gone."""
        for services in list(self._by_tenant.values()):
            await services.groups.on_topic_deleted(topic.kafka_name)
            await services.shares.forget_topic(topic)

    async def follow_ownership(self) -> None:
        """Have every tenant's groups follow what has come to this broker or gone."""
        for services in list(self._by_tenant.values()):
            await services.groups.follow_ownership()
            await services.transactions.follow_ownership()
            await services.shares.follow_ownership()

    async def close(self) -> None:
        """Finish what is in hand."""
        for services in self._by_tenant.values():
            await services.transactions.close()
            await services.shares.close()
            await services.groups.close()


def _rewrite(node: Any, path: Sequence[str], change: Callable[[str], str]) -> None:
    field, *rest = path
    value = getattr(node, field)
    if value is None:
        return
    if rest:
        for each in value if isinstance(value, list) else (value,):
            _rewrite(each, rest, change)
    elif isinstance(value, list):
        setattr(node, field, [change(name) for name in value])
    elif value and getattr(node, "resource_type", ConfigResourceType.TOPIC) == ConfigResourceType.TOPIC:
        setattr(node, field, change(value))
