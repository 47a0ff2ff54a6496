"""Who may ask an operator's question over the network. The socket in the data directory asks nobody: its file does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from magnetar.admin.errors import Forbidden
from magnetar.auth import Access, Right, may
from magnetar.auth.rights import Group, Resource, Tenant
from magnetar.node.broker import Broker
from magnetar.topics.names import TopicName

Given = Mapping[str, Any]
Wanted = list[tuple[Right, Resource]]
"""All that somebody needs."""
Rule = Callable[[Broker, Given], Wanted]


def _topic(right: Right) -> Rule:
    return lambda broker, given: [(right, _named(broker, given["topic"]))]


def _tenant_of(field: str, right: Right) -> Rule:
    """To be an admin of the tenant, who is not denied this right to the topic, if it is one."""

    def rule(broker: Broker, given: Given) -> Wanted:
        named = given[field]
        if "://" not in named and named.count("/") == 1:
            return [(Right.administer, Tenant(named.partition("/")[0]))]
        topic = _named(broker, named)
        return [(Right.administer, Tenant(topic.tenant)), (right, topic)]

    return rule


def _group(broker: Broker, given: Given) -> Wanted:
    return [(Right.use, Group(given["group"], f"{broker.naming.tenant}/{broker.naming.namespace}"))]


def _operate(broker: Broker, given: Given) -> Wanted:
    return [(Right.operate, None)]


def _named(broker: Broker, name: str) -> TopicName:
    return broker.naming.parse(name)


RULES: Mapping[str, Rule] = {
    "health": lambda broker, given: [],  # as /health, which needs no login at all
    "explain": _topic(Right.consume),
    "ledgers": _topic(Right.see),
    "schemas": _topic(Right.consume),
    "why-partition": _topic(Right.see),
    "compact": _tenant_of("topic", Right.alter),
    "compaction": _topic(Right.see),
    "permissions": _tenant_of("target", Right.see),
    "grant": _tenant_of("target", Right.alter),
    "revoke": _tenant_of("target", Right.alter),
    "restrict": _tenant_of("namespace", Right.alter),
    "set-admins": _operate,
    "users": _operate,
    "set-user": _operate,
    "delete-user": _operate,
    "why-group": _group,
}
"""Of each question that is answered over the network."""


def check(access: Access | None, question: str, given: Given, broker: Broker) -> None:
    """Raise `Forbidden` unless whoever asks may; ``InvalidTopic`` for a name that no topic can have."""
    for right, of in RULES[question](broker, given):
        if not may(access, right, of):
            raise Forbidden(
                f"{question} needs {right}", "Ask as a role that has it, or on the broker's machine."
            )
