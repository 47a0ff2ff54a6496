"""What a role may do: super users everything, a tenant's admins everything in it, others what they were granted.

The rules are those of Pulsar's own provider. Decisions are remembered per role until any grant changes, so that
asking again is one look into a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from magnetar.broker.auth.grants import Action, Grants
from magnetar.broker.errors import InvalidConfig, NamespaceNotFound
from magnetar.broker.names import TopicName
from magnetar.broker.security_settings import SecuritySettings

if TYPE_CHECKING:
    from magnetar.broker.namespaces import Namespaces

_MOST_REMEMBERED = 10_000
_LOOK_UP = frozenset({Action.PRODUCE, Action.CONSUME})


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
        self._accesses: dict[str, Access] = {}
        namespaces.changed.append(self.forget)

    def access(self, role: str) -> Access | None:
        """Give the remembered decisions of a role, shared by all its connections; None if nobody is refused."""
        if not self.enabled:
            return None
        found = self._accesses.get(role)
        if found is None:
            if len(self._accesses) >= _MOST_REMEMBERED:
                self._accesses.clear()
            found = self._accesses[role] = Access(self, role)
        return found

    def forget(self) -> None:
        """Decide anew from now on: some grant has changed."""
        for access in self._accesses.values():
            access.forget()

    def is_super(self, role: str) -> bool:
        """Whether the role may do everything."""
        return not self.enabled or role in self._super

    def is_tenant_admin(self, role: str, tenant: str) -> bool:
        """Whether the role may do everything in a tenant."""
        return self.is_super(role) or role in self._namespaces.admin_roles(tenant)

    def allows_topic(
        self, role: str, topic: TopicName, action: Action, subscription: str | None = None
    ) -> bool:
        """Whether the role may do this with a topic, there or not yet; to consume, with this subscription."""
        if self.is_tenant_admin(role, topic.tenant):
            return True
        return self._granted(role, topic.namespace_name, {action}, topic) and (
            subscription is None or self._is_subscriber(role, topic.namespace_name, subscription)
        )

    def allows_look_up(self, role: str, topic: TopicName) -> bool:
        """Whether the role may see that a topic is there: who may produce or consume."""
        return self.is_tenant_admin(role, topic.tenant) or self._granted(
            role, topic.namespace_name, _LOOK_UP, topic
        )

    def allows_namespace(self, role: str, namespace: str, *actions: Action) -> bool:
        """Whether the role was granted any of these on the whole namespace (Pulsar: list topics, functions, ...)."""
        return self.is_tenant_admin(role, namespace.partition("/")[0]) or self._granted(
            role, namespace, actions, None
        )

    def allows_subscription(self, role: str, namespace: str, subscription: str) -> bool:
        """Whether a subscription of a namespace is open to the role, whatever it may consume."""
        return self.is_tenant_admin(role, namespace.partition("/")[0]) or self._is_subscriber(
            role, namespace, subscription
        )

    def allows_tenant(self, role: str, tenant: str) -> bool:
        """Whether the role has anything at all to do with a tenant."""
        if self.is_tenant_admin(role, tenant):
            return True
        everything = frozenset(Action)
        for namespace in self._namespaces.names():
            if namespace.partition("/")[0] == tenant:
                grants = self._namespaces.policies(namespace).auth
                tables = (grants.namespace, *grants.topics.values())
                if any(self._matches(rows, role, everything) for rows in tables):
                    return True
        return False

    def allows_somewhere(self, role: str, action: Action) -> bool:
        """Whether the role may do this with any topic at all (KIP-679 asks so of idempotent producers)."""
        if self.is_super(role):
            return True
        for namespace in self._namespaces.names():
            if role in self._namespaces.admin_roles(namespace.partition("/")[0]):
                return True
            grants = self._namespaces.policies(namespace).auth
            tables = (grants.namespace, *grants.topics.values())
            if any(self._matches(rows, role, {action}) for rows in tables):
                return True
        return False

    def _granted(self, role: str, namespace: str, actions: Iterable[Action], topic: TopicName | None) -> bool:
        try:
            grants = self._namespaces.policies(namespace).auth
        except NamespaceNotFound:
            return False
        actions = frozenset(actions)
        if self._matches(grants.namespace, role, actions):
            return True
        rows = grants.topics.get(str(topic)) if topic is not None else None
        return rows is not None and self._matches(rows, role, actions)

    def _is_subscriber(self, role: str, namespace: str, subscription: str) -> bool:
        try:
            roles = self._namespaces.policies(namespace).auth.subscriptions.get(subscription)
        except NamespaceNotFound:
            return True
        return not roles or role in roles

    def _matches(self, rows: Grants, role: str, actions: Iterable[Action]) -> bool:
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

    __slots__ = ("_authorization", "_remembered", "role")

    def __init__(self, authorization: Authorization, role: str) -> None:
        self._authorization = authorization
        self.role = role
        self._remembered: dict[object, bool] = {}

    def forget(self) -> None:
        """Decide anew from now on."""
        self._remembered.clear()

    @property
    def is_super(self) -> bool:
        """Whether it may do everything."""
        return self._authorization.is_super(self.role)

    def produces(self, topic: TopicName) -> bool:
        """Whether it may write to a topic."""
        return self._decided((Action.PRODUCE, topic), topic)

    def consumes(self, topic: TopicName, subscription: str | None = None) -> bool:
        """Whether it may read a topic, with a subscription of this name."""
        return self._decided((Action.CONSUME, topic, subscription), topic, subscription)

    def looks_up(self, topic: TopicName) -> bool:
        """Whether it may see a topic."""
        return self.produces(topic) or self.consumes(topic)

    def administers(self, tenant: str) -> bool:
        """Whether it may do everything in a tenant."""
        return self._authorization.is_tenant_admin(self.role, tenant)

    def somewhere(self, action: Action) -> bool:
        """Whether it may do this with any topic at all."""
        key = (action,)
        found = self._remembered.get(key)
        if found is None:
            found = self._keep(key, self._authorization.allows_somewhere(self.role, action))
        return found

    def subscribes(self, namespace: str, subscription: str) -> bool:
        """Whether a subscription of a namespace is open to it."""
        return self._authorization.allows_subscription(self.role, namespace, subscription)

    def _decided(
        self,
        key: tuple[Action, TopicName] | tuple[Action, TopicName, str | None],
        topic: TopicName,
        subscription: str | None = None,
    ) -> bool:
        found = self._remembered.get(key)
        if found is None:
            found = self._keep(key, self._authorization.allows_topic(self.role, topic, key[0], subscription))
        return found

    def _keep(self, key: object, decision: bool) -> bool:
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[key] = decision
        return decision


def _is_like(role: str, pattern: str) -> bool:
    """Pulsar's wildcards: ``team.*`` and ``*.team``, and ``*`` for everybody."""
    if pattern.endswith("*") and role.startswith(pattern[:-1]):
        return True
    return pattern.startswith("*") and role.endswith(pattern[1:])
