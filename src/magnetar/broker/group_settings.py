"""The settings of consumer groups, their offsets, and producers: a part of `Settings`."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker.log_settings import LogSettings
from magnetar.broker.setting import setting
from magnetar.broker.values import MAX_INT, Kind, at_least


@dataclass(frozen=True, slots=True)
class GroupSettings(LogSettings):
    """What the broker was told about groups and producers. (Dataclasses with slots inherit in one line only.)"""

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
        "How long a commit may take to become durable before the client is told to ask again.",
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
        "Without effect until there are transactions: how long a silent transactional id is remembered.",
        unit="ms",
        rule=at_least(1),
        pulsar=("kafkaTransactionalIdExpirationMs",),
    )
    transaction_max_timeout_ms: int = setting(
        900000,
        Kind.INT,
        "Without effect until there are transactions: the longest that a producer may ask for.",
        unit="ms",
        rule=at_least(1),
    )
    transaction_state_log_num_partitions: int = setting(
        50,
        Kind.INT,
        "Partitions of __transaction_state when a client's asking for it creates it; "
        "nothing is kept there until there are transactions.",
        rule=at_least(1),
        pulsar=("kafkaTxnLogTopicNumPartitions",),
    )
