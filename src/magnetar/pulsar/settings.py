"""The settings of Pulsar's protocol."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import Feed, HandlerSettings, setting, times
from magnetar.base.values import Kind, at_least

_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class PulsarSettings(HandlerSettings):
    """Pulsar's protocol."""

    # Listeners.
    pulsar_listeners: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Addresses to serve Pulsar's binary protocol on, pulsar://HOST:PORT or pulsar+ssl://HOST:PORT each; empty for "
        "none, port 0 chooses a free one.",
    )
    pulsar_advertised_listeners: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Addresses returned to Pulsar clients, in the order of pulsar.listeners; empty for those served on.",
    )
    broker_service_port: str = setting(
        "",
        Kind.STRING,
        "Port on bind.address to serve Pulsar's binary protocol on where pulsar.listeners (--pulsar) says nothing; "
        "empty for none.",
    )
    broker_service_port_tls: str = setting(
        "", Kind.STRING, "Port for Pulsar clients over TLS (pulsar+ssl); empty for none."
    )

    # Connections.
    pulsar_max_message_size: int = setting(
        5 * _MB,
        Kind.INT,
        "Largest message of Pulsar producers; larger ones must be chunked.",
        unit="bytes",
        rule=at_least(1024),
        pulsar=("maxMessageSize",),
    )
    keep_alive_interval_ms: int = setting(
        30_000,
        Kind.INT,
        "A Pulsar client that is silent for this time is pinged; if it stays silent for the same time again it is "
        "disconnected, as is one that has not sent CONNECT by then, or takes nothing of what it is sent for twice as "
        "long.",
        unit="ms",
        rule=at_least(1),
        pulsar=(Feed("keepAliveIntervalSeconds", times(1000)),),
    )
    max_pending_publish_requests_per_connection: int = setting(
        1000,
        Kind.INT,
        "Messages of one Pulsar connection that may wait to be stored before reading stops.",
        rule=at_least(1),
        pulsar=("maxPendingPublishRequestsPerConnection",),
    )

    # Topics and subscriptions.
    enable_broker_side_subscription_pattern_evaluation: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether the broker matches patterns of Pulsar clients against topic names, and notifies clients of "
        "topics that are created and deleted.",
        pulsar=("enableBrokerSideSubscriptionPatternEvaluation",),
    )
    subscription_pattern_max_length: int = setting(
        50,
        Kind.INT,
        "Longest such pattern, in characters; with longer ones clients ask for all names now and then.",
        rule=at_least(0),
        pulsar=("subscriptionPatternMaxLength",),
    )
    allow_auto_subscription_creation: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether a durable subscription is made when a consumer first asks for it, where its namespace does not say.",
        dynamic=True,
        pulsar=("allowAutoSubscriptionCreation",),
    )
    broker_deduplication_enabled: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether what a Pulsar producer of one name sends twice, by its sequence ids, is stored once.",
        pulsar=("brokerDeduplicationEnabled",),
    )
    acknowledgment_at_batch_index_level_enabled: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether acknowledging some messages of a batch counts; otherwise the batch comes again whole until all of it "
        "is acknowledged.",
        pulsar=("acknowledgmentAtBatchIndexLevelEnabled",),
    )
    enable_non_persistent_topics: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether Pulsar clients may use non-persistent:// topics, whose messages go to connected consumers and "
        "are not stored.",
        pulsar=("enableNonPersistentTopics",),
    )
    subscription_key_shared_use_consistent_hashing: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether consumers of Key_Shared subscriptions divide keys by a ring on which each stands at a hundred points; "
        "otherwise who comes takes half of the longest stretch of hashes.",
        pulsar=("subscriptionKeySharedUseConsistentHashing",),
    )
    max_unacked_messages_per_consumer: int = setting(
        50_000,
        Kind.INT,
        "Messages that a consumer of a shared subscription may hold unacknowledged; 0 for no bound.",
        rule=at_least(0),
        pulsar=("maxUnackedMessagesPerConsumer",),
    )
    max_unacked_messages_per_subscription: int = setting(
        200_000,
        Kind.INT,
        "Messages that all consumers of a shared subscription may hold unacknowledged; 0 for no bound.",
        rule=at_least(0),
        pulsar=("maxUnackedMessagesPerSubscription",),
    )

    # Transactions.
    transaction_coordinator_enabled: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether Pulsar clients may use transactions.",
        pulsar=("transactionCoordinatorEnabled",),
    )
    max_active_transactions_per_coordinator: int = setting(
        0,
        Kind.INT,
        "Open transactions per Pulsar transaction coordinator; 0 for no bound.",
        rule=at_least(0),
        pulsar=("maxActiveTransactionsPerCoordinator",),
    )

    # What is done now and then.
    message_ttl_ms: int = setting(
        0,
        Kind.LONG,
        "Age at which subscriptions skip unacknowledged messages; 0 for never.",
        unit="ms",
        rule=at_least(0),
        pulsar=(Feed("ttlDurationDefaultInSeconds", times(1000)),),
    )
    schema_compatibility_strategy: str = setting(
        "FULL",
        Kind.STRING,
        "What a new version of a topic's schema must be compatible with.",
        pulsar=("schemaCompatibilityStrategy",),
    )
    schema_validation_enforced: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether producers without a schema are refused for topics that have one, whatever namespaces and topics say.",
        pulsar=("isSchemaValidationEnforced",),
    )
    memory_cache_bytes: int = setting(
        32 * _MB,
        Kind.LONG,
        "Cache for batches converted from Kafka's format for Pulsar consumers, in bytes, so that many consumers "
        "cost one conversion; 0 for none. The newest entries themselves are in the page cache.",
        unit="bytes",
        rule=at_least(0),
        pulsar=(Feed("managedLedgerCacheSizeMB", times(_MB)),),
    )

    @property
    def asks_to_serve(self) -> bool:
        return bool(self.pulsar_listeners or self.broker_service_port or self.broker_service_port_tls)
