"""Limits of one heartbeat of a group's member: all of it is processed at one stretch of the event loop."""

from __future__ import annotations

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.wire.kafka.errors import ErrorCode

MOST_TOPICS = 10_000
"""The most topics that a member may name, 5 us each. For more, it subscribes with a regular expression."""


def check_topics(count: int) -> None:
    """Refuse a member that names too many topics."""
    if count > MOST_TOPICS:
        raise CoordinatorRefused(
            ErrorCode.INVALID_REQUEST, f"A member names at most {MOST_TOPICS} topics, not {count}."
        )
