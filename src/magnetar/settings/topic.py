"""The settings of topics and of how their records are kept: a part of `Settings`."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import Feed, setting, times, times_unless_zero
from magnetar.base.values import MAX_INT, MAX_LONG, Kind, at_least, between, one_of

_MB = 1 << 20
_MINUTE, _HOUR = 60_000, 3_600_000


def _at_most_int(text: str | None) -> str | None:
    return str(min(int(text), MAX_INT)) if text is not None and text.isdigit() else text


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Topics and the storage of their records."""

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
        "Without effect: Kafka's replication factor of topics that do not say; here every topic has 1.",
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
        "When a record is acknowledged: always (on disk; survives power loss), interval (immediately, flushed "
        "every flush.interval.ms), os (immediately, flushed when the system does, as in Kafka).",
        rule=one_of("always", "interval", "os"),
        dynamic=True,
    )
    log_flush_interval_messages: int = setting(
        MAX_LONG,
        Kind.LONG,
        "1 makes every append durable before it is acknowledged, whatever flush says; otherwise flush decides.",
        rule=at_least(1),
        dynamic=True,
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

    # Compaction.
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
    broker_service_compaction_monitor_interval_ms: int = setting(
        60_000,
        Kind.LONG,
        "How often open topics are looked at for the compaction threshold.",
        unit="ms",
        rule=at_least(1),
        pulsar=(Feed("brokerServiceCompactionMonitorIntervalInSeconds", times(1000)),),
    )
    message_expiry_check_interval_seconds: int = setting(
        30,
        Kind.INT,
        "How often messages are looked for that are older than their topic's TTL.",
        unit="seconds",
        rule=at_least(1),
        pulsar=(Feed("messageExpiryCheckIntervalInMinutes", times(60)),),
    )
    backlog_quota_check_interval_in_seconds: int = setting(
        60,
        Kind.INT,
        "How often backlogs are compared with their quotas; this also happens for each new producer.",
        unit="seconds",
        rule=at_least(1),
        pulsar=("backlogQuotaCheckIntervalInSeconds",),
    )
    topic_compaction_retain_null_key: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether compaction keeps messages without a key.",
        pulsar=("topicCompactionRetainNullKey",),
    )
    broker_service_compaction_threshold_in_bytes: int = setting(
        0,
        Kind.LONG,
        "Bytes behind its compaction horizon at which a topic is compacted, for namespaces and topics that do not "
        "say; 0 for only when asked.",
        unit="bytes",
        rule=at_least(0),
        pulsar=("brokerServiceCompactionThresholdInBytes",),
    )

    # What is taken.
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
        "How batches of Kafka producers are stored in topics and namespaces without a setting: kafka (as sent), "
        "mixed_kafka (with corrected relative offsets), pulsar (as Pulsar messages). Every reader reads all.",
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
        "Without effect: the replicas that acks=all asks for, as topics show that do not say; here there is one.",
        rule=at_least(1),
        dynamic=True,
    )

    # Topics of Kafka's coordinators.
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
    share_coordinator_state_topic_num_partitions: int = setting(
        50,
        Kind.INT,
        "Partitions of __share_group_state when the first share group makes it.",
        rule=at_least(1),
    )
    transaction_state_log_num_partitions: int = setting(
        50,
        Kind.INT,
        "Partitions of __transaction_state when the first transactional id creates it; each id belongs to one of "
        "them.",
        rule=at_least(1),
        pulsar=("kafkaTxnLogTopicNumPartitions",),
    )
