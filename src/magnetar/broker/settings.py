"""Every setting of the broker in one typed object. ``docs/configuration.md`` is made from this file.

A field's own name is its Kafka name with dots as underscores, where Kafka has such a setting. Times are in ms and
sizes in bytes unless the unit says otherwise. How files, environment and flags become a `Settings` is told in
`magnetar.broker.setting_sources`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from magnetar.broker.errors import InvalidConfig
from magnetar.broker.schema_registry_settings import SchemaRegistrySettings
from magnetar.broker.setting import Feed, SettingDef, plain, setting, times, times_unless_zero
from magnetar.broker.values import MAX_INT, MAX_LONG, Kind, Value, at_least, between, one_of

_MINUTE, _HOUR, _MB = 60_000, 3_600_000, 1 << 20


@dataclass(frozen=True, slots=True)
class Settings(SchemaRegistrySettings):
    """What the broker was told. Dynamic settings change by giving the broker a new object."""

    # Where things lie and who we are.
    data_dir: str = setting(
        "data",
        Kind.STRING,
        "Directory of ledgers, journal and metadata. One broker at a time may open it.",
        kafka=(
            Feed("log.dirs", lambda text: text.split(",")[0]),
            Feed("log.dir", lambda text: text.split(",")[0]),
        ),
    )
    node_id: int = setting(
        0, Kind.INT, "Number of this broker, as clients see it.", rule=at_least(0), kafka=("broker.id",)
    )
    broker_rack: str | None = setting(None, Kind.STRING, "Rack that clients are told, for fetching nearby.")
    log_level: str = setting(
        "INFO",
        Kind.STRING,
        "Least level that is logged.",
        rule=one_of("DEBUG", "INFO", "WARNING", "ERROR"),
    )
    log_format: str = setting(
        "text", Kind.STRING, "Form of log lines on standard error.", rule=one_of("text", "json")
    )

    # Listeners and connections.
    listeners: tuple[str, ...] = setting(
        ("PLAINTEXT://127.0.0.1:9092",),
        Kind.LIST,
        "Addresses to serve on, NAME://HOST:PORT each; port 0 chooses a free one, IPv6 hosts stand in brackets.",
        pulsar=("kafkaListeners",),
    )
    advertised_listeners: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Addresses that clients are told, by listener name; empty for those served on.",
        pulsar=("kafkaAdvertisedListeners",),
    )
    listener_security_protocol_map: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Security protocol by listener name, NAME:PROTOCOL; a name that is a protocol needs none.",
        pulsar=("kafkaProtocolMap",),
    )
    controller_listener_names: tuple[str, ...] = setting(
        (), Kind.LIST, "Listeners of Kafka's controllers in a file made for Kafka; they are not served."
    )
    socket_request_max_bytes: int = setting(
        104857600,
        Kind.INT,
        "Largest request frame; a larger claim closes the connection.",
        unit="bytes",
        rule=at_least(1),
    )
    socket_send_buffer_bytes: int = setting(
        102400,
        Kind.INT,
        "SO_SNDBUF of connections; -1 leaves it to the system.",
        unit="bytes",
        rule=at_least(-1),
    )
    socket_receive_buffer_bytes: int = setting(
        102400,
        Kind.INT,
        "SO_RCVBUF of connections; -1 leaves it to the system.",
        unit="bytes",
        rule=at_least(-1),
    )
    socket_listen_backlog_size: int = setting(
        50, Kind.INT, "Connections that may wait to be accepted.", rule=at_least(1)
    )
    connections_max_idle_ms: int = setting(
        600000,
        Kind.LONG,
        "A connection that says nothing for so long is closed; -1 for never.",
        unit="ms",
        rule=at_least(-1),
        pulsar=("connectionMaxIdleMs",),
    )
    max_connections: int = setting(
        MAX_INT, Kind.INT, "Connections in all; more are closed at once.", rule=at_least(0), dynamic=True
    )
    max_connections_per_ip: int = setting(
        MAX_INT,
        Kind.INT,
        "Connections from one address; more are closed at once.",
        rule=at_least(0),
        dynamic=True,
    )
    queued_max_requests: int = setting(
        500,
        Kind.INT,
        "Requests of one connection that may wait for their answers before reading stops.",
        rule=at_least(1),
        pulsar=("maxQueuedRequests",),
    )
    idle_poll_time_us: int = setting(
        50,
        Kind.INT,
        "How long the broker goes on looking for more before it sleeps, after a small request has come: answers are "
        "sooner, for some processor time where nothing follows. 0: it sleeps at once.",
        unit="us",
        rule=between(0, 10_000),
    )

    # Memory.
    memory_requests_bytes: int = setting(
        64 * _MB,
        Kind.LONG,
        "Bytes of requests in hand of all clients, past which reading stops.",
        unit="bytes",
        rule=at_least(_MB),
        kafka=(Feed("queued.max.request.bytes", lambda text: None if text == "-1" else text),),
    )
    memory_cache_bytes: int = setting(
        32 * _MB,
        Kind.LONG,
        "Bytes of the newest entries kept to serve readers at the tail.",
        unit="bytes",
        rule=at_least(0),
        pulsar=(Feed("managedLedgerCacheSizeMB", times(_MB)),),
    )

    chunked_message_max_bytes: int = setting(
        16 * _MB,
        Kind.LONG,
        "How large a message may be that Pulsar's producer cut into chunks, to come whole to Kafka's clients; 0: none.",
        unit="bytes",
        rule=between(0, 256 * _MB),
    )

    # Names.
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

    # Topics.
    num_partitions: int = setting(
        1,
        Kind.INT,
        "Partitions of topics that are created without a number.",
        rule=at_least(1),
        dynamic=True,
        pulsar=("defaultNumPartitions",),
    )
    default_replication_factor: int = setting(
        1,
        Kind.INT,
        "Replication factor asked for when a topic does not say; here every topic has 1.",
        rule=at_least(1),
    )
    auto_create_topics_enable: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether asking for the metadata of an unknown topic creates it.",
        dynamic=True,
        pulsar=("allowAutoTopicCreation",),
    )
    delete_topic_enable: bool = setting(True, Kind.BOOLEAN, "Whether topics may be deleted.", dynamic=True)

    # How records are kept.
    flush: str = setting(
        "always",
        Kind.STRING,
        "When a record is acknowledged: always (on disk; survives power loss), interval (at once, flushed every "
        "flush.interval.ms), os (at once, flushed when the system likes, as Kafka does).",
        rule=one_of("always", "interval", "os"),
        dynamic=True,
        kafka=(Feed("log.flush.interval.messages", lambda text: "always" if text.strip() == "1" else None),),
    )
    flush_interval_ms: int = setting(
        1000,
        Kind.LONG,
        "Time between flushes with flush=interval: what a power loss may cost.",
        unit="ms",
        rule=at_least(1),
        kafka=("log.flush.interval.ms",),
    )
    log_retention_ms: int = setting(
        604800000,
        Kind.LONG,
        "Age of its newest record at which a ledger goes; -1 for no bound.",
        unit="ms",
        rule=at_least(-1),
        dynamic=True,
        kafka=(Feed("log.retention.minutes", times(_MINUTE)), Feed("log.retention.hours", times(_HOUR))),
        pulsar=(Feed("defaultRetentionTimeInMinutes", times_unless_zero(_MINUTE)),),
    )
    log_retention_bytes: int = setting(
        -1,
        Kind.LONG,
        "Size of a partition past which its oldest ledgers go; -1 for no bound.",
        unit="bytes",
        rule=at_least(-1),
        dynamic=True,
        pulsar=(Feed("defaultRetentionSizeInMB", times_unless_zero(_MB)),),
    )
    log_retention_check_interval_ms: int = setting(
        300000,
        Kind.LONG,
        "Time between two looks for ledgers that may go.",
        unit="ms",
        rule=at_least(1),
        pulsar=(Feed("retentionCheckIntervalInSeconds", times(1000)),),
    )
    log_segment_bytes: int = setting(
        1 << 30,
        Kind.INT,
        "Size at which a ledger is sealed and the next one begun.",
        unit="bytes",
        rule=at_least(1048576),
        dynamic=True,
        pulsar=(Feed("managedLedgerMaxSizePerLedgerMbytes", lambda text: _at_most_int(times(_MB)(text))),),
    )
    log_roll_ms: int = setting(
        604800000,
        Kind.LONG,
        "Age at which a ledger is sealed and the next one begun.",
        unit="ms",
        rule=at_least(1),
        dynamic=True,
        kafka=(Feed("log.roll.hours", times(_HOUR)),),
        pulsar=(Feed("managedLedgerMaxLedgerRolloverTimeMinutes", times(_MINUTE)),),
    )
    ledger_max_entries: int = setting(
        0,
        Kind.INT,
        "Entries (appends) at which a ledger is sealed and the next one begun; 0 for no bound.",
        rule=at_least(0),
        pulsar=("managedLedgerMaxEntriesPerLedger",),
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        ("delete",),
        Kind.LIST,
        "What happens to old records of topics that do not say.",
        dynamic=True,
        rule=one_of("delete", "compact"),
    )
    log_cleaner_enable: bool = setting(
        True, Kind.BOOLEAN, "Whether topics with cleanup.policy=compact are compacted in the background."
    )
    log_cleaner_backoff_ms: int = setting(
        15_000,
        Kind.LONG,
        "How often topics are looked at for something to compact.",
        unit="ms",
        dynamic=True,
        rule=at_least(1),
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        134217728,
        Kind.LONG,
        "What the map of keys of a compaction may take, 24 bytes a key; with more keys it runs several times.",
        unit="bytes",
        dynamic=True,
        rule=at_least(1024),
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        0.5,
        Kind.DOUBLE,
        "Share of bytes not yet compacted at which topics that do not say are compacted.",
        dynamic=True,
        rule=between(0, 1),
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        0,
        Kind.LONG,
        "Shortest time that a record of topics that do not say stays uncompacted.",
        unit="ms",
        dynamic=True,
        rule=at_least(0),
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        MAX_LONG,
        Kind.LONG,
        "Longest time that a record of topics that do not say stays uncompacted.",
        unit="ms",
        dynamic=True,
        rule=at_least(1),
    )
    log_cleaner_delete_retention_ms: int = setting(
        86_400_000,
        Kind.LONG,
        "How long compaction keeps deletions (records with a null value) in topics that do not say.",
        unit="ms",
        dynamic=True,
        rule=at_least(0),
    )
    message_max_bytes: int = setting(
        1048588,
        Kind.INT,
        "Largest record batch, as sent, of topics that do not say.",
        unit="bytes",
        rule=at_least(0),
        dynamic=True,
        pulsar=("maxMessageSize",),
    )
    log_message_timestamp_type: str = setting(
        "CreateTime",
        Kind.STRING,
        "Whose clock gives the timestamps of topics that do not say.",
        dynamic=True,
        rule=one_of("CreateTime", "LogAppendTime"),
    )
    log_message_timestamp_before_max_ms: int = setting(
        MAX_LONG,
        Kind.LONG,
        "How far a create time may lie in the past.",
        unit="ms",
        rule=at_least(0),
        dynamic=True,
    )
    log_message_timestamp_after_max_ms: int = setting(
        3600000,
        Kind.LONG,
        "How far a create time may lie in the future.",
        unit="ms",
        rule=at_least(0),
        dynamic=True,
    )
    entry_format: str = setting(
        "kafka",
        Kind.STRING,
        "What Kafka's producers' batches are stored as in topics and namespaces that do not say: kafka (as sent), "
        "mixed_kafka (with relative offsets put right), pulsar (as Pulsar's messages). Every reader reads all.",
        dynamic=True,
        rule=one_of("kafka", "mixed_kafka", "pulsar"),
        pulsar=("entryFormat",),
    )
    compression_type: str = setting(
        "producer",
        Kind.STRING,
        "Codec of what topics store that do not say.",
        dynamic=True,
        rule=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        pulsar=("kafkaCompressionType",),
    )
    min_insync_replicas: int = setting(
        1,
        Kind.INT,
        "Replicas that acks=all asks for in topics that do not say; there is one.",
        rule=at_least(1),
        dynamic=True,
    )

    # Reading.
    fetch_max_bytes: int = setting(
        57671680, Kind.INT, "Most that one Fetch answer holds.", unit="bytes", rule=at_least(1024)
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        1000, Kind.INT, "Fetch sessions that are remembered.", rule=at_least(0)
    )

    # Groups and their offsets.
    group_min_session_timeout_ms: int = setting(
        6000,
        Kind.INT,
        "Shortest session timeout that a member may ask for.",
        unit="ms",
        rule=at_least(0),
        pulsar=("groupMinSessionTimeoutMs",),
    )
    group_max_session_timeout_ms: int = setting(
        1800000,
        Kind.INT,
        "Longest session timeout that a member may ask for.",
        unit="ms",
        rule=at_least(0),
        pulsar=("groupMaxSessionTimeoutMs",),
    )
    group_initial_rebalance_delay_ms: int = setting(
        3000,
        Kind.INT,
        "Time that a new group waits for more members.",
        unit="ms",
        rule=at_least(0),
        pulsar=("groupInitialRebalanceDelayMs",),
    )
    group_max_size: int = setting(MAX_INT, Kind.INT, "Most members of one group.", rule=at_least(1))
    offset_metadata_max_bytes: int = setting(
        4096,
        Kind.INT,
        "Longest text that may be committed beside an offset.",
        unit="bytes",
        rule=at_least(0),
        pulsar=("offsetMetadataMaxSize",),
    )
    offsets_topic_num_partitions: int = setting(
        50,
        Kind.INT,
        "Partitions of __consumer_offsets when it is created; later its own number counts.",
        rule=at_least(1),
        pulsar=("offsetsTopicNumPartitions",),
    )
    offsets_topic_segment_bytes: int = setting(
        104857600,
        Kind.INT,
        "Size at which a ledger of __consumer_offsets is sealed.",
        unit="bytes",
        rule=at_least(1048576),
    )
    offsets_retention_minutes: int = setting(
        10080,
        Kind.INT,
        "How long offsets of a group without members are kept.",
        unit="minutes",
        rule=at_least(1),
        pulsar=("offsetsRetentionMinutes",),
    )
    offsets_retention_check_interval_ms: int = setting(
        600000,
        Kind.LONG,
        "Time between two looks for offsets that may go.",
        unit="ms",
        rule=at_least(1),
        pulsar=("offsetsRetentionCheckIntervalMs",),
    )
    offsets_commit_timeout_ms: int = setting(
        5000,
        Kind.INT,
        "How long a commit may take before the client is told that it failed.",
        unit="ms",
        rule=at_least(1),
        pulsar=("offsetCommitTimeoutMs",),
    )

    # Producers and transactions.
    producer_id_expiration_ms: int = setting(
        86400000,
        Kind.INT,
        "How long a silent idempotent producer is remembered.",
        unit="ms",
        rule=at_least(1),
        dynamic=True,
    )
    transactional_id_expiration_ms: int = setting(
        604800000,
        Kind.INT,
        "How long a silent transactional id is remembered.",
        unit="ms",
        rule=at_least(1),
        pulsar=("kafkaTransactionalIdExpirationMs",),
    )
    transaction_max_timeout_ms: int = setting(
        900000, Kind.INT, "Longest transaction that a producer may ask for.", unit="ms", rule=at_least(1)
    )
    transaction_state_log_num_partitions: int = setting(
        50,
        Kind.INT,
        "Partitions of __transaction_state when it is created.",
        rule=at_least(1),
        pulsar=("kafkaTxnLogTopicNumPartitions",),
    )

    # Protocols.
    messaging_protocols: tuple[str, ...] = setting(
        ("kafka",), Kind.LIST, "Protocol handlers to start.", pulsar=("messagingProtocols",)
    )
    protocol_handler_directory: str = setting(
        "",
        Kind.STRING,
        "Directory with further protocol handlers, as .py files or packages.",
        pulsar=("protocolHandlerDirectory",),
    )

    given: frozenset[str] = frozenset()
    """The fields that a file, the environment or a flag gave; the others have their defaults."""

    def with_values(self, texts: dict[str, str]) -> Settings:
        """Give a copy in which the named settings (own or Kafka names) have new values, or raise `InvalidConfig`."""
        values: dict[str, Value] = {}
        for name, text in texts.items():
            found = find_all(name)
            if not found:
                raise InvalidConfig(f"Unknown setting: {name}")
            for definition, feed in found:
                if (converted := feed.convert(text)) is not None:
                    values[definition.field] = definition.parse(converted)
        return replace(self, **values, given=self.given | values.keys())  # type: ignore[arg-type]


def _at_most_int(text: str | None) -> str | None:
    return str(min(int(text), MAX_INT)) if text is not None and text.isdigit() else text


def _definitions() -> dict[str, SettingDef]:
    # A dataclass puts what it inherits first; the page begins with what everybody needs.
    inherited = {field.name for field in fields(SchemaRegistrySettings)}
    ordered = sorted(fields(Settings), key=lambda field: field.name in inherited)
    made = ((field.name, field.metadata.get("setting")) for field in ordered)
    return {name: replace(each, field=name) for name, each in made if each is not None}


SETTINGS: dict[str, SettingDef] = _definitions()
"""All settings by field name, in the order of this file; those of security and of Pulsar's protocol last."""


def _by_name() -> dict[str, list[tuple[SettingDef, Feed]]]:
    named: dict[str, dict[str, tuple[SettingDef, Feed]]] = {}
    for each in SETTINGS.values():
        for feed in each.feeds:
            named.setdefault(plain(feed.name), {})[each.name] = each, feed
    return {name: list(found.values()) for name, found in named.items()}


_BY_NAME = _by_name()


def find_all(name: str) -> list[tuple[SettingDef, Feed]]:
    """Give the settings that have this name, own or foreign, in any spelling, and which of their names that is.

    One of Pulsar's may stand for two: ``maxMessageSize`` bounds what Pulsar's producers send, and in KoP Kafka's, too.
    """
    return _BY_NAME.get(plain(name), [])


def find(name: str) -> tuple[SettingDef, Feed] | None:
    """Give the first of `find_all`, or None."""
    return next(iter(find_all(name)), None)
