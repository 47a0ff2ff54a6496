"""The settings of tenants, namespaces and names: a part of `Settings`."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import setting
from magnetar.base.values import Kind, at_least


@dataclass(frozen=True, slots=True)
class NamingSettings:
    """Tenants, namespaces and names."""

    kafka_tenant: str = setting(
        "public", Kind.STRING, "Tenant of topics with a short name.", pulsar=("kafkaTenant",)
    )
    kafka_namespace: str = setting(
        "default", Kind.STRING, "Namespace of topics with a short name.", pulsar=("kafkaNamespace",)
    )
    kafka_metadata_tenant: str = setting(
        "public", Kind.STRING, "Tenant of the coordinators' topics.", pulsar=("kafkaMetadataTenant",)
    )
    kafka_metadata_namespace: str = setting(
        "__kafka", Kind.STRING, "Namespace of the coordinators' topics.", pulsar=("kafkaMetadataNamespace",)
    )
    kafka_enable_multi_tenant_metadata: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether the tenant in the SASL user's name is the client's own: its short topic names lie there, and its "
        "groups are apart from those of other tenants.",
    )
    kop_allowed_namespaces: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Namespaces (tenant/namespace) that Kafka clients see; empty for all. `${tenant}` stands for each tenant, "
        "`*` for each namespace.",
    )
    auto_create_namespaces_enable: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether a topic created in a tenant or namespace that does not exist creates it.",
        dynamic=True,
    )
    max_topics_per_namespace: int = setting(
        0,
        Kind.INT,
        "Topics that one namespace may have, counting each partition, by whichever protocol they are created; 0 "
        "for no bound. A policy of the namespace or the topic comes first.",
        rule=at_least(0),
        pulsar=("maxTopicsPerNamespace",),
    )
    linked_subscriptions: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Names under which a Kafka group and a Pulsar subscription share one progress, * for all: while the group has "
        "members they read, and the subscription's consumers wait; when the last one left, the consumers go on. "
        "A share group and a Shared subscription work side by side.",
    )
