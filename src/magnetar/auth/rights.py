"""The rights that a role may have, and their resources, in every protocol's words."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from magnetar.topics.names import TopicName


class Right(StrEnum):
    """A right; its value is the text of a refusal."""

    see = "produce or consume on the topic"
    """To know that a topic, a group or a transaction exists, and to describe it."""
    produce = "produce on the topic"
    consume = "consume on the topic"
    use = "consume where the group is at home"
    """To be a member of a Kafka group, and to see it."""
    enter = "any grant in the tenant"
    """To use a tenant as the client's home."""
    administer = "tenant admin"
    operate = "super user"

    # Kafka distinguishes these; Pulsar grants them together.
    create = "tenant admin, or CREATE"
    create_unasked = "produce or consume on the topic, or CREATE"
    """To create a topic by requesting it."""
    delete = "tenant admin, or DELETE"
    alter = "tenant admin, or ALTER"
    see_configs = "DESCRIBE_CONFIGS"
    alter_configs = "tenant admin, or ALTER_CONFIGS"
    describe_cluster = "super user, or DESCRIBE on the cluster"
    create_on_cluster = "super user, or CREATE on the cluster"
    alter_cluster = "super user, or ALTER on the cluster"
    see_cluster_configs = "super user, or DESCRIBE_CONFIGS on the cluster"
    alter_cluster_configs = "super user, or ALTER_CONFIGS on the cluster"
    act_for_cluster = "super user, or CLUSTER_ACTION on the cluster"
    create_tokens = "CREATE_TOKENS on the user"
    describe_tokens = "DESCRIBE_TOKENS on the user"
    transact = "produce somewhere, or WRITE on the transactional id"
    find_transaction = "produce somewhere, or DESCRIBE on the transactional id"
    """To look up the broker of a transaction."""


class Subscribed(NamedTuple):
    """A topic through a subscription."""

    topic: TopicName
    subscription: str


class Group(NamedTuple):
    """A Kafka group. It has no owner; a role that may consume in ``tenant`` (None: anywhere) may use it."""

    name: str
    home: str
    """``tenant/namespace`` whose subscriptions may be restricted to some roles."""
    tenant: str | None = None


class TransactionalId(NamedTuple):
    """A transactional id of Kafka."""

    id: str
    role: str = ""
    """The role that owns it; empty if no role does, or if that is not known."""
    tenant: str | None = None
    """The tenant of its clients, where tenants have ids of their own; the tenant's admins own all of them."""


class TokenOwner(NamedTuple):
    """The role for which delegation tokens are created or seen."""

    role: str


class TokenId(NamedTuple):
    """A delegation token."""

    id: str


class Tenant(NamedTuple):
    """Everything in a tenant."""

    name: str


Resource = TopicName | Subscribed | Group | TransactionalId | TokenOwner | TokenId | Tenant | None
"""The resource of a right. None is the whole broker: there, to produce or consume means to be allowed it anywhere."""
