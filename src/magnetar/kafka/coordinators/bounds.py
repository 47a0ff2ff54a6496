"""How much a member of a group may say in one heartbeat: all of it is taken in at one stretch of the event loop."""

from __future__ import annotations

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.wire.kafka.errors import ErrorCode

MOST_TOPICS = 10_000
"""That a member names one by one: 5 us each. Who wants more subscribes with a regular expression."""


def check_topics(count: int) -> None:
    """Refuse who names too many topics."""
    if count > MOST_TOPICS:
        raise CoordinatorRefused(
            ErrorCode.INVALID_REQUEST, f"A member names at most {MOST_TOPICS} topics, not {count}."
        )
