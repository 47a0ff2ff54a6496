"""The settings of groups of the streams protocol."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import HandlerSettings, setting
from magnetar.base.values import MAX_INT, Kind, at_least


@dataclass(frozen=True, slots=True)
class StreamsSettings(HandlerSettings):
    """Groups of Kafka Streams applications with ``group.protocol=streams``."""

    group_streams_session_timeout_ms: int = setting(
        45000,
        Kind.INT,
        "How long a member of the streams protocol (KIP-1071) may be silent.",
        unit="ms",
        rule=at_least(1),
    )
    group_streams_min_session_timeout_ms: int = setting(
        45000,
        Kind.INT,
        "Shortest session timeout that a group of the streams protocol may be given.",
        unit="ms",
        rule=at_least(1),
    )
    group_streams_max_session_timeout_ms: int = setting(
        60000,
        Kind.INT,
        "Longest session timeout that a group of the streams protocol may be given.",
        unit="ms",
        rule=at_least(1),
    )
    group_streams_heartbeat_interval_ms: int = setting(
        5000,
        Kind.INT,
        "Interval of heartbeats of members with the streams protocol.",
        unit="ms",
        rule=at_least(1),
    )
    group_streams_min_heartbeat_interval_ms: int = setting(
        5000,
        Kind.INT,
        "Shortest heartbeat interval that a group of the streams protocol may be given.",
        unit="ms",
        rule=at_least(1),
    )
    group_streams_max_heartbeat_interval_ms: int = setting(
        15000,
        Kind.INT,
        "Longest heartbeat interval that a group of the streams protocol may be given.",
        unit="ms",
        rule=at_least(1),
    )
    group_streams_max_size: int = setting(
        MAX_INT, Kind.INT, "Most members of one group of the streams protocol.", rule=at_least(1)
    )
    group_streams_num_standby_replicas: int = setting(
        0, Kind.INT, "How many members stand by for each task with state.", rule=at_least(0)
    )
    group_streams_max_standby_replicas: int = setting(
        2, Kind.INT, "Most members that may stand by for each task of one group.", rule=at_least(0)
    )
    group_streams_initial_rebalance_delay_ms: int = setting(
        3000,
        Kind.INT,
        "Time that a new group of the streams protocol waits for more members.",
        unit="ms",
        rule=at_least(0),
    )
    group_streams_assignment_interval_ms: int = setting(
        1000,
        Kind.INT,
        "Least time between two new assignments of one group of the streams protocol.",
        unit="ms",
        rule=at_least(0),
        dynamic=True,
    )
    group_streams_min_assignment_interval_ms: int = setting(
        0,
        Kind.INT,
        "Least time between two assignments that a group of the streams protocol may be given.",
        unit="ms",
        rule=at_least(0),
    )
    group_streams_max_assignment_interval_ms: int = setting(
        15000,
        Kind.INT,
        "Longest time between two assignments that a group of the streams protocol may be given.",
        unit="ms",
        rule=at_least(0),
    )
