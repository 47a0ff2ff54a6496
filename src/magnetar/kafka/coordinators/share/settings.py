"""The settings of share groups (KIP-932), under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import HandlerSettings, setting
from magnetar.base.values import Kind, Rule, at_least, between, one_of
from magnetar.kafka.coordinators.share.reset import is_reset

READ_COMMITTED = "read_committed"


@dataclass(frozen=True, slots=True)
class ShareSettings(HandlerSettings):
    """Kafka's share groups. All but those that bound others hold for groups that are not configured otherwise."""

    group_share_session_timeout_ms: int = setting(
        45000,
        Kind.INT,
        "How long a member of a share group may be silent.",
        unit="ms",
        rule=at_least(1),
    )
    group_share_min_session_timeout_ms: int = setting(
        45000,
        Kind.INT,
        "Shortest session timeout that a share group may be given.",
        unit="ms",
        rule=at_least(1),
    )
    group_share_max_session_timeout_ms: int = setting(
        60000,
        Kind.INT,
        "Longest session timeout that a share group may be given.",
        unit="ms",
        rule=at_least(1),
    )
    group_share_heartbeat_interval_ms: int = setting(
        5000,
        Kind.INT,
        "Interval of heartbeats of members of share groups.",
        unit="ms",
        rule=at_least(1),
    )
    group_share_min_heartbeat_interval_ms: int = setting(
        5000,
        Kind.INT,
        "Shortest heartbeat interval that a share group may be given.",
        unit="ms",
        rule=at_least(1),
    )
    group_share_max_heartbeat_interval_ms: int = setting(
        15000,
        Kind.INT,
        "Longest heartbeat interval that a share group may be given.",
        unit="ms",
        rule=at_least(1),
    )
    group_share_assignment_interval_ms: int = setting(
        1000,
        Kind.INT,
        "Least time between two new assignments of one share group.",
        unit="ms",
        rule=at_least(0),
        dynamic=True,
    )
    group_share_min_assignment_interval_ms: int = setting(
        0,
        Kind.INT,
        "Least time between two assignments that a share group may be given.",
        unit="ms",
        rule=at_least(0),
    )
    group_share_max_assignment_interval_ms: int = setting(
        15000,
        Kind.INT,
        "Longest time between two assignments that a share group may be given.",
        unit="ms",
        rule=at_least(0),
    )
    group_share_max_size: int = setting(
        200, Kind.INT, "Most members of one share group.", rule=between(1, 1000)
    )
    group_share_max_share_sessions: int = setting(
        2000, Kind.INT, "Most share sessions on this broker.", rule=at_least(1)
    )
    group_share_delivery_count_limit: int = setting(
        5,
        Kind.INT,
        "How often a record is delivered to members of a share group before it is given up.",
        rule=between(2, 10),
    )
    group_share_min_delivery_count_limit: int = setting(
        2, Kind.INT, "Lowest delivery limit that a share group may be given.", rule=at_least(2)
    )
    group_share_max_delivery_count_limit: int = setting(
        10, Kind.INT, "Highest delivery limit that a share group may be given.", rule=between(2, 100)
    )
    group_share_partition_max_record_locks: int = setting(
        2000,
        Kind.INT,
        "Most records of a partition that members of a share group hold at a time; a batch more, to end with one.",
        rule=between(100, 10000),
    )
    group_share_min_partition_max_record_locks: int = setting(
        100, Kind.INT, "Least number of records that a share group may be given to hold.", rule=at_least(100)
    )
    group_share_max_partition_max_record_locks: int = setting(
        4000,
        Kind.INT,
        "Greatest number of records that a share group may be given to hold.",
        rule=at_least(100),
    )
    group_share_record_lock_duration_ms: int = setting(
        30000,
        Kind.INT,
        "How long a member of a share group holds a record that it does not acknowledge.",
        unit="ms",
        rule=between(1000, 3600000),
    )
    group_share_min_record_lock_duration_ms: int = setting(
        15000,
        Kind.INT,
        "Shortest time of holding records that a share group may be given.",
        unit="ms",
        rule=between(1000, 30000),
    )
    group_share_max_record_lock_duration_ms: int = setting(
        60000,
        Kind.INT,
        "Longest time of holding records that a share group may be given.",
        unit="ms",
        rule=between(30000, 3600000),
    )
    share_auto_offset_reset: str = setting(
        "latest",
        Kind.STRING,
        "Where a share group begins in a partition: latest, earliest, or by_duration: and a time as in PT1H.",
        rule=Rule("Must be latest, earliest, or by_duration: and an ISO 8601 duration", is_reset),
    )
    share_isolation_level: str = setting(
        "read_uncommitted",
        Kind.STRING,
        "Whether members of share groups are given records of open and aborted transactions.",
        rule=one_of("read_uncommitted", READ_COMMITTED),
    )
    errors_deadletterqueue_topic_name: str = setting(
        "",
        Kind.STRING,
        "Topic that gets what share groups give up, rejected or delivered too often (KIP-1191); without one it is done "
        "with. The topic must have errors.deadletterqueue.group.enable=true.",
    )
    errors_deadletterqueue_copy_record_enable: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether dead letters bring their records' keys, values and headers; otherwise they only tell where those lie.",
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether a share group's dead-letter queue is made if there is no such topic.",
        dynamic=True,
    )
    errors_deadletterqueue_topic_name_prefix: str = setting(
        "dlq.",
        Kind.STRING,
        "How the names of share groups' dead-letter queues must begin; empty for any name.",
        dynamic=True,
    )
    share_renew_acknowledge_enable: bool = setting(
        True, Kind.BOOLEAN, "Whether members of share groups may hold a record for longer (KIP-1222)."
    )
