"""What can be set about groups, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass

_MAX_INT = 2**31 - 1
_WEEK_MINUTES = 7 * 24 * 60


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Settings of the group coordinator; each default is Kafka's."""

    group_min_session_timeout_ms: int = 6_000
    """The shortest session a member may ask for, ms."""
    group_max_session_timeout_ms: int = 1_800_000
    """The longest session a member may ask for, ms."""
    group_initial_rebalance_delay_ms: int = 3_000
    """How long a group that was empty waits for more members before its first assignment, ms."""
    group_max_size: int = _MAX_INT
    """The most members a group may have."""
    offset_metadata_max_bytes: int = 4_096
    """The longest text a commit may carry beside an offset, characters."""
    offsets_retention_minutes: int = _WEEK_MINUTES
    """How long offsets outlive their group's last member, or their last commit if nobody ever joined."""
    offsets_retention_check_interval_ms: int = 600_000
    """How often expired offsets are looked for, ms."""

    offsets_commit_timeout_ms: int = 5_000
    """How long a commit may take to become durable before the client is told to try again, ms."""

    @property
    def offsets_retention_ms(self) -> int:
        """The retention in the unit of timestamps."""
        return self.offsets_retention_minutes * 60_000
