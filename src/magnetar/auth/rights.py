"""The rights that somebody may have, and what they are to, in every protocol's words."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from magnetar.topics.names import TopicName


class Right(StrEnum):
    """What somebody may be allowed; the words are those of refusals."""

    see = "produce or consume on the topic"
    """To know that a topic, a group or a transaction is there, and what it is like."""
    produce = "produce on the topic"
    consume = "consume on the topic"
    use = "consume where the group is at home"
    """To be a member of one of Kafka's groups, and to see it."""
    enter = "any grant in the tenant"
    """To have a tenant for one's home."""
    administer = "tenant admin"
    operate = "super user"

    # Kafka tells these apart; Pulsar grants them together.
    create = "tenant admin, or CREATE"
    create_unasked = "produce or consume on the topic, or CREATE"
    """To have a topic made by asking for it."""
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
    """To learn which broker has a transaction."""


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


class TransactionalId(NamedTuple):
    """One of Kafka's transactional ids."""

    id: str
    role: str = ""
    """Which role's it is; empty if no role's, or if that is not known."""
    tenant: str | None = None
    """Whose clients' it is, where tenants have ids of their own; its admins have all of them."""


class TokenOwner(NamedTuple):
    """Somebody in whose name delegation tokens are made or seen."""

    role: str


class TokenId(NamedTuple):
    """A delegation token."""

    id: str


class Tenant(NamedTuple):
    """All that there is in a tenant."""

    name: str


Resource = TopicName | Subscribed | Group | TransactionalId | TokenOwner | TokenId | Tenant | None
"""What a right is to. None is the whole broker: there, to produce or consume is to be allowed it anywhere."""
