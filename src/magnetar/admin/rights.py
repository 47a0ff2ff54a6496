"""Who may ask an operator's question over the network. The socket in the data directory asks nobody: its file does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from magnetar.admin.errors import Forbidden
from magnetar.broker.auth import Access, Right, may
from magnetar.broker.auth.authorization import Group, Resource, Tenant
from magnetar.broker.core import Broker
from magnetar.broker.names import TopicName

Given = Mapping[str, Any]
Rule = Callable[[Broker, Given], tuple[Right, Resource]]


def _topic(right: Right) -> Rule:
    return lambda broker, given: (right, _named(broker, given["topic"]))


def _tenant_of(field: str) -> Rule:
    def rule(broker: Broker, given: Given) -> tuple[Right, Resource]:
        named = given[field]
        is_namespace = "://" not in named and named.count("/") == 1
        tenant = named.partition("/")[0] if is_namespace else _named(broker, named).tenant
        return Right.administer, Tenant(tenant)

    return rule


def _group(broker: Broker, given: Given) -> tuple[Right, Resource]:
    return Right.use, Group(given["group"], f"{broker.naming.tenant}/{broker.naming.namespace}")


def _operate(broker: Broker, given: Given) -> tuple[Right, Resource]:
    return Right.operate, None


def _named(broker: Broker, name: str) -> TopicName:
    return broker.naming.parse(name)


RULES: Mapping[str, Rule] = {
    "explain": _topic(Right.consume),
    "ledgers": _topic(Right.see),
    "why-partition": _topic(Right.see),
    "compact": _tenant_of("topic"),
    "compaction": _topic(Right.see),
    "permissions": _tenant_of("target"),
    "grant": _tenant_of("target"),
    "revoke": _tenant_of("target"),
    "restrict": _tenant_of("namespace"),
    "set-admins": _operate,
    "users": _operate,
    "set-user": _operate,
    "delete-user": _operate,
    "why-group": _group,
}
"""Of each question that is answered over the network."""


def check(access: Access | None, question: str, given: Given, broker: Broker) -> None:
    """Raise `Forbidden` unless whoever asks may; ``InvalidTopic`` for a name that no topic can have."""
    right, of = RULES[question](broker, given)
    if not may(access, right, of):
        raise Forbidden(f"{question} needs {right}", "Ask as a role that has it, or on the broker's machine.")
