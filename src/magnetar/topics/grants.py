"""The grants of a namespace, in the JSON that Pulsar stores in its policies as ``auth_policies``:

    {"namespace_auth":          {"<role>": ["produce", "consume"]},
     "destination_auth":        {"persistent://tenant/ns/topic": {"<role>": ["consume"]}},
     "subscription_auth_roles": {"<subscription>": ["<role>"]}}

A subscription that is named there is for the named roles alone; any other is for all roles that may consume.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from magnetar.base.errors import InvalidPolicy

Grants = Mapping[str, frozenset["AuthAction"]]


class AuthAction(StrEnum):
    """An action that may be granted, in Pulsar's words."""

    PRODUCE = "produce"
    CONSUME = "consume"
    FUNCTIONS = "functions"
    SOURCES = "sources"
    SINKS = "sinks"
    PACKAGES = "packages"


def parse_actions(names: Iterable[str]) -> frozenset[AuthAction]:
    """Return the actions; raise `InvalidPolicy` that names the wrong one and all valid ones."""
    found = set()
    for name in names:
        try:
            found.add(AuthAction(name))
        except ValueError:
            raise InvalidPolicy(f"{name!r} is no action: one of {', '.join(AuthAction)}") from None
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class AuthPolicies:
    """All grants of one namespace. Topics are named in full (``persistent://tenant/ns/topic``)."""

    namespace: Grants = field(default_factory=dict)
    topics: Mapping[str, Grants] = field(default_factory=dict)
    subscriptions: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def granted(self, role: str, actions: frozenset[AuthAction], topic: str | None = None) -> AuthPolicies:
        """Return the grants after ``role`` got exactly these actions, on the namespace or on one topic."""
        if topic is None:
            return replace(self, namespace={**self.namespace, role: actions})
        return replace(self, topics={**self.topics, topic: {**self.topics.get(topic, {}), role: actions}})

    def revoked(self, role: str, topic: str | None = None) -> AuthPolicies:
        """Return the grants after those of ``role`` on the namespace, or on one topic, were taken away."""
        if topic is None:
            return replace(self, namespace=_without(self.namespace, role))
        topics = {**self.topics, topic: _without(self.topics.get(topic, {}), role)}
        return replace(self, topics={name: grants for name, grants in topics.items() if grants})

    def with_subscription(self, subscription: str, roles: frozenset[str]) -> AuthPolicies:
        """Return the grants after a subscription was restricted to these roles; without roles, it is open to all."""
        kept = {name: found for name, found in self.subscriptions.items() if name != subscription}
        return replace(self, subscriptions=kept | ({subscription: roles} if roles else {}))

    def without_topic(self, topic: str) -> AuthPolicies:
        """Return the grants after all those of one topic were taken away."""
        return replace(self, topics={name: found for name, found in self.topics.items() if name != topic})


def decode_auth_policies(content: Any) -> AuthPolicies:
    """Read ``auth_policies``; raise `InvalidPolicy` if it is malformed."""
    try:
        return AuthPolicies(
            _grants(content.get("namespace_auth") or {}),
            {str(topic): _grants(rows) for topic, rows in (content.get("destination_auth") or {}).items()},
            {
                str(name): frozenset(map(str, roles))
                for name, roles in (content.get("subscription_auth_roles") or {}).items()
            },
        )
    except (TypeError, AttributeError) as error:
        raise InvalidPolicy(f"auth_policies cannot be read: {error}") from None


def encode_auth_policies(policies: AuthPolicies) -> dict[str, Any]:
    """Write ``auth_policies`` as `decode_auth_policies` reads it, in a fixed order."""
    return {
        "namespace_auth": _rows(policies.namespace),
        "destination_auth": {topic: _rows(rows) for topic, rows in sorted(policies.topics.items())},
        "subscription_auth_roles": {
            name: sorted(roles) for name, roles in sorted(policies.subscriptions.items())
        },
    }


def _grants(rows: Mapping[str, Iterable[str]]) -> Grants:
    return {str(role): parse_actions(actions) for role, actions in rows.items()}


def _rows(grants: Grants) -> dict[str, list[str]]:
    return {role: sorted(actions) for role, actions in sorted(grants.items())}


def _without(grants: Grants, role: str) -> Grants:
    return {name: actions for name, actions in grants.items() if name != role}
