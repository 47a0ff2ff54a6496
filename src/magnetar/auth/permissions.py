"""Granting and revoking, as in the Pulsar admin. Every change is stored, and in force, when a call returns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar.base.errors import InvalidPolicy
from magnetar.topics.grants import AuthPolicies, Grants, parse_actions
from magnetar.topics.names import TopicName

if TYPE_CHECKING:
    from magnetar.auth.policies import Policies
    from magnetar.topics.namespaces import Namespaces


class Permissions:
    """The grants of all namespaces. Unknown namespaces raise `NamespaceNotFound`, wrong words `InvalidPolicy`."""

    def __init__(self, namespaces: Namespaces, policies: Policies) -> None:
        self._namespaces = namespaces
        self._policies = policies

    def of_namespace(self, namespace: str) -> AuthPolicies:
        """Return all grants of a namespace, with the Kafka ACLs that amount to one."""
        auth = self._namespaces.policies(namespace).auth
        topics = dict(auth.topics)
        for topic, grants in self._policies.topics_in(namespace).items():
            topics[topic] = _together(topics.get(topic, {}), grants)
        return replace(
            auth, namespace=_together(auth.namespace, self._policies.of_namespace(namespace)), topics=topics
        )

    def of_topic(self, topic: TopicName) -> Grants:
        """Return what roles may do with a topic: its own grants and those of its namespace."""
        policies = self.of_namespace(topic.namespace_name)
        together = dict(policies.namespace)
        for role, actions in policies.topics.get(str(topic), {}).items():
            together[role] = together.get(role, frozenset()) | actions
        return together

    async def grant(
        self, namespace: str, role: str, actions: Iterable[str], topic: TopicName | None = None
    ) -> None:
        """Grant a role exactly these actions on a namespace, or on one topic of it."""
        parsed = parse_actions(actions)
        if not role or not parsed:
            raise InvalidPolicy("a grant names a role and at least one action")
        await self._namespaces.change_auth_policies(
            namespace, lambda before: before.granted(role, parsed, _full(topic))
        )

    async def revoke(self, namespace: str, role: str, topic: TopicName | None = None) -> bool:
        """Revoke all grants of a role on a namespace, or on one topic; return whether there were any."""
        before = self._namespaces.policies(namespace).auth
        had = await self._policies.revoke(namespace, role, topic)
        if before.revoked(role, _full(topic)) == before:
            return had
        await self._namespaces.change_auth_policies(
            namespace, lambda before: before.revoked(role, _full(topic))
        )
        return True

    async def grant_subscription(self, namespace: str, subscription: str, roles: Iterable[str]) -> None:
        """Open a subscription to more roles; from the first on, it is closed to all others."""
        more = frozenset(roles)
        await self._namespaces.change_auth_policies(
            namespace,
            lambda before: before.with_subscription(
                subscription, before.subscriptions.get(subscription, frozenset()) | more
            ),
        )

    async def revoke_subscription(self, namespace: str, subscription: str, role: str) -> None:
        """Close a subscription to a role; after the last one it is open to all again."""
        await self._namespaces.change_auth_policies(
            namespace,
            lambda before: before.with_subscription(
                subscription, before.subscriptions.get(subscription, frozenset()) - {role}
            ),
        )

    async def set_subscription(self, namespace: str, subscription: str, roles: Iterable[str]) -> None:
        """Open a subscription to exactly these roles; without roles, to all that may consume."""
        only = frozenset(roles)
        await self._namespaces.change_auth_policies(
            namespace, lambda before: before.with_subscription(subscription, only)
        )

    async def set_tenant_admins(self, tenant: str, roles: Iterable[str]) -> None:
        """Make exactly these roles the admins of a tenant, which is created if it does not exist."""
        await self._namespaces.set_admin_roles(tenant, roles)


def _together(one: Grants, other: Grants) -> Grants:
    return {role: one.get(role, frozenset()) | other.get(role, frozenset()) for role in {**one, **other}}


def _full(topic: TopicName | None) -> str | None:
    return None if topic is None else str(topic)
