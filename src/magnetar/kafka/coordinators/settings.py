"""The settings of Kafka consumer groups and their offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from magnetar.base.setting import HandlerSettings, setting
from magnetar.base.values import MAX_INT, Kind, at_least, one_of


class MigrationPolicy(NamedTuple):
    """The migrations that ``group.consumer.migration.policy`` allows."""

    upgrades: bool
    downgrades: bool

    @property
    def lets_classic_members_in(self) -> bool:
        """True if classic members may join a consumer group that has members."""
        return self.upgrades or self.downgrades


_POLICIES = {
    "bidirectional": MigrationPolicy(True, True),
    "upgrade": MigrationPolicy(True, False),
    "downgrade": MigrationPolicy(False, True),
    "disabled": MigrationPolicy(False, False),
}


@dataclass(frozen=True, slots=True)
class GroupSettings(HandlerSettings):
    """Kafka consumer groups and their offsets."""

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
    group_consumer_session_timeout_ms: int = setting(
        45000,
        Kind.INT,
        "How long a member of the consumer protocol (KIP-848) may be silent.",
        unit="ms",
        rule=at_least(1),
    )
    group_consumer_min_session_timeout_ms: int = setting(
        45000,
        Kind.INT,
        "Shortest session timeout that a group of the consumer protocol may be given.",
        unit="ms",
        rule=at_least(1),
    )
    group_consumer_max_session_timeout_ms: int = setting(
        60000,
        Kind.INT,
        "Longest session timeout that a group of the consumer protocol may be given.",
        unit="ms",
        rule=at_least(1),
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        5000,
        Kind.INT,
        "Interval of heartbeats of members with the consumer protocol.",
        unit="ms",
        rule=at_least(1),
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        5000,
        Kind.INT,
        "Shortest heartbeat interval that a group of the consumer protocol may be given.",
        unit="ms",
        rule=at_least(1),
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        15000,
        Kind.INT,
        "Longest heartbeat interval that a group of the consumer protocol may be given.",
        unit="ms",
        rule=at_least(1),
    )
    group_consumer_max_size: int = setting(
        MAX_INT, Kind.INT, "Most members of one group of the consumer protocol.", rule=at_least(1)
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        ("classic", "consumer", "streams"),
        Kind.LIST,
        "Protocols of groups that are served; classic always is. Share groups have share.version.",
        rule=one_of("classic", "consumer", "streams"),
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        ("uniform", "range"),
        Kind.LIST,
        "Assignors that members of the consumer protocol may ask for; the first one is the default.",
        rule=one_of("uniform", "range"),
    )
    group_consumer_migration_policy: str = setting(
        "bidirectional",
        Kind.STRING,
        "Whether groups with members may go over from the classic protocol to the consumer protocol (upgrade), back "
        "(downgrade), both (bidirectional) or neither (disabled).",
        rule=one_of(*_POLICIES),
    )
    group_consumer_assignment_interval_ms: int = setting(
        1000,
        Kind.INT,
        "Least time between two new assignments of one group of the consumer protocol.",
        unit="ms",
        rule=at_least(0),
        dynamic=True,
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        0,
        Kind.INT,
        "Least time between two assignments that a group of the consumer protocol may be given.",
        unit="ms",
        rule=at_least(0),
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        15000,
        Kind.INT,
        "Longest time between two assignments that a group of the consumer protocol may be given.",
        unit="ms",
        rule=at_least(0),
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        600000,
        Kind.INT,
        "Time after which the topics that subscribed patterns mean are looked for again, whatever has changed.",
        unit="ms",
        rule=at_least(10000),
    )
    offset_metadata_max_bytes: int = setting(
        4096,
        Kind.INT,
        "Longest metadata text of a committed offset.",
        unit="bytes",
        rule=at_least(0),
        pulsar=("offsetMetadataMaxSize",),
    )
    offsets_retention_minutes: int = setting(
        10080,
        Kind.INT,
        "How long offsets of a group without members are retained.",
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
        "How long a commit may take to become durable before the client gets a retriable error.",
        unit="ms",
        rule=at_least(1),
        pulsar=("offsetCommitTimeoutMs",),
    )

    @property
    def migration(self) -> MigrationPolicy:
        """Return the migrations that the policy allows."""
        return _POLICIES[self.group_consumer_migration_policy]

    @property
    def offsets_retention_ms(self) -> int:
        """The retention in the unit of timestamps."""
        return self.offsets_retention_minutes * 60_000
