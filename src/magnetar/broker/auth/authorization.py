"""What a role may do: super users everything, a tenant's admins everything in it, others what they were granted.

`may` is the one place that decides, for Kafka's requests, Pulsar's commands, the admin REST and the schema registry:
each says which `Right` it wants to what, and has no rule of its own. The rules are those of Pulsar's own provider.
Decisions are remembered per role until any grant changes, so that asking again is one look into a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

from magnetar.broker.errors import InvalidConfig, NamespaceNotFound
from magnetar.broker.grants import AuthAction, Grants
from magnetar.broker.names import TopicName
from magnetar.broker.security_settings import SecuritySettings

if TYPE_CHECKING:
    from magnetar.broker.namespaces import Namespaces


class Right(StrEnum):
    """What somebody may be allowed; the words are those of refusals."""

    see = "produce or consume on the topic"
    """To know that a topic is there, and what it is like."""
    produce = "produce on the topic"
    consume = "consume on the topic"
    use = "consume where the group is at home"
    """To be a member of one of Kafka's groups, to see it and to delete it."""
    enter = "any grant in the tenant"
    """To have a tenant for one's home."""
    administer = "tenant admin"
    operate = "super user"


class Subscribed(NamedTuple):
    """A topic by way of a subscription."""

    topic: TopicName
    subscription: str


class Group(NamedTuple):
    """One of Kafka's groups. It has no owner; what may be consumed in ``tenant`` (None: anywhere) opens it."""

    name: str
    home: str
    """``tenant/namespace`` whose subscriptions may be kept for some roles."""
    tenant: str | None = None


class Tenant(NamedTuple):
    """All that there is in a tenant."""

    name: str


Resource = TopicName | Subscribed | Group | Tenant | None
"""What a right is to. None is the whole broker: there, to produce or consume is to be allowed it anywhere."""


def may(access: Access | None, right: Right, of: Resource = None) -> bool:
    """Decide whether somebody has a right; ``access`` is None where nobody is refused."""
    return access is None or access.may(right, of)


_MAX_REMEMBERED = 10_000
_ACTIONS = {
    Right.see: frozenset({AuthAction.PRODUCE, AuthAction.CONSUME}),
    Right.produce: frozenset({AuthAction.PRODUCE}),
    Right.consume: frozenset({AuthAction.CONSUME}),
    Right.enter: frozenset(AuthAction),
}
"""What gives a right to who was granted any of it."""
_OF_TOPICS = frozenset({Right.see, Right.produce, Right.consume})


class Authorization:
    """Decides for every protocol. Nothing is refused while it is not ``enabled``."""

    def __init__(self, settings: SecuritySettings, namespaces: Namespaces) -> None:
        """Raise `InvalidConfig` if nobody would be known by name."""
        self.enabled = settings.authorization_enabled
        if self.enabled and not settings.authentication_enabled:
            raise InvalidConfig("authorization.enabled asks for authentication.enabled too")
        self._super = frozenset(settings.super_user_roles)
        self._wildcards = settings.authorization_allow_wildcards_matching
        self._namespaces = namespaces
        self._accesses: WeakValueDictionary[str, Access] = WeakValueDictionary()
        """Whom somebody asks for now: each of them hears of a changed grant."""
        namespaces.changed.append(self.forget)

    def access(self, role: str) -> Access | None:
        """Return the remembered decisions of a role, shared by all its connections; None if nobody is refused."""
        if not self.enabled:
            return None
        found = self._accesses.get(role)
        if found is None:
            found = self._accesses[role] = Access(self, role)
        return found

    def forget(self) -> None:
        """Decide anew from now on: some grant has changed."""
        for access in list(self._accesses.values()):
            access.forget()

    def may(self, role: str, right: Right, of: Resource = None) -> bool:
        """Whether a role has a right to a topic, a group, a tenant or the whole broker."""
        if not self.enabled or role in self._super:
            return True
        if isinstance(of, Subscribed):
            topic = of.topic
            return self._has_topic(role, right, topic) and (
                self._administers(role, topic.tenant)
                or self._is_subscriber(role, topic.namespace_name, of.subscription)
            )
        if isinstance(of, TopicName):
            return self._has_topic(role, right, of)
        if isinstance(of, Group):
            return right is Right.use and self._joins(role, of)
        if right is Right.operate:
            return False
        if right is Right.administer:
            return of is not None and self._administers(role, of.name)
        return self._has_somewhere(role, _ACTIONS[right], None if of is None else of.name)

    def _administers(self, role: str, tenant: str) -> bool:
        return role in self._namespaces.admin_roles(tenant)

    def _has_topic(self, role: str, right: Right, topic: TopicName) -> bool:
        if right is Right.operate:
            return False
        if self._administers(role, topic.tenant):
            return True
        return right in _OF_TOPICS and self._granted(role, topic.namespace_name, _ACTIONS[right], topic)

    def _joins(self, role: str, group: Group) -> bool:
        if not self._has_somewhere(role, _ACTIONS[Right.consume], group.tenant):
            return False
        return self._administers(role, group.home.partition("/")[0]) or self._is_subscriber(
            role, group.home, group.name
        )

    def _has_somewhere(self, role: str, actions: frozenset[AuthAction], tenant: str | None) -> bool:
        """Whether a role was granted any of these on any topic, there or not, of a tenant or of all."""
        if tenant is not None and self._administers(role, tenant):
            return True
        for namespace in self._namespaces.names():
            owner = namespace.partition("/")[0]
            if tenant is None:
                if self._administers(role, owner):
                    return True
            elif owner != tenant:
                continue
            grants = self._namespaces.policies(namespace).auth
            tables = (grants.namespace, *grants.topics.values())
            if any(self._matches(rows, role, actions) for rows in tables):
                return True
        return False

    def _granted(self, role: str, namespace: str, actions: frozenset[AuthAction], topic: TopicName) -> bool:
        try:
            grants = self._namespaces.policies(namespace).auth
        except NamespaceNotFound:
            return False
        if self._matches(grants.namespace, role, actions):
            return True
        rows = grants.topics.get(str(topic))
        return rows is not None and self._matches(rows, role, actions)

    def _is_subscriber(self, role: str, namespace: str, subscription: str) -> bool:
        try:
            roles = self._namespaces.policies(namespace).auth.subscriptions.get(subscription)
        except NamespaceNotFound:
            return True
        return not roles or role in roles

    def _matches(self, rows: Grants, role: str, actions: Iterable[AuthAction]) -> bool:
        if not rows:
            return False
        own = rows.get(role)
        if own is not None and not own.isdisjoint(actions):
            return True
        return self._wildcards and any(
            not granted.isdisjoint(actions) and _is_like(role, pattern) for pattern, granted in rows.items()
        )


class Access:
    """What one role may do, remembered."""

    __slots__ = ("__weakref__", "_authorization", "_remembered", "role")

    def __init__(self, authorization: Authorization, role: str) -> None:
        self._authorization = authorization
        self.role = role
        self._remembered: dict[object, bool] = {}

    def forget(self) -> None:
        """Decide anew from now on."""
        self._remembered.clear()

    def may(self, right: Right, of: Resource = None) -> bool:
        """Whether it has a right."""
        key = (right, of)
        found = self._remembered.get(key)
        if found is None:
            found = self._keep(key, self._authorization.may(self.role, right, of))
        return found

    def produces(self, topic: TopicName) -> bool:
        """Whether it may write to a topic."""
        return self.may(Right.produce, topic)

    def consumes(self, topic: TopicName, subscription: str | None = None) -> bool:
        """Whether it may read a topic, with a subscription of this name."""
        return self.may(Right.consume, topic if subscription is None else Subscribed(topic, subscription))

    def looks_up(self, topic: TopicName) -> bool:
        """Whether it may see a topic."""
        return self.may(Right.see, topic)

    def _keep(self, key: object, decision: bool) -> bool:
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[key] = decision
        return decision


def _is_like(role: str, pattern: str) -> bool:
    """Pulsar's wildcards: ``team.*`` and ``*.team``, and ``*`` for everybody."""
    if pattern.endswith("*") and role.startswith(pattern[:-1]):
        return True
    return pattern.startswith("*") and role.endswith(pattern[1:])
