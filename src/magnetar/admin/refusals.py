"""Kafka's error codes as an operator should hear them: what it means, and what to do next."""

from __future__ import annotations

from magnetar.admin.errors import AdminError, Declined, NotThere
from magnetar.kafka.wire.errors import ErrorCode

_NOT_THERE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ("does not exist", "See 'magnetar topic list'."),
    ErrorCode.UNKNOWN_TOPIC_ID: ("does not exist", "See 'magnetar topic list'."),
    ErrorCode.GROUP_ID_NOT_FOUND: ("does not exist", "See 'magnetar group list'."),
}
_DECLINED = {
    ErrorCode.TOPIC_ALREADY_EXISTS: (
        "exists already",
        "'magnetar topic describe' shows it; 'topic alter' and 'topic add-partitions' change it.",
    ),
    ErrorCode.NON_EMPTY_GROUP: (
        "has members",
        "Stop its consumers first; 'magnetar group describe' names them.",
    ),
    ErrorCode.UNKNOWN_MEMBER_ID: (
        "has members, and only they may move it",
        "Stop its consumers first; 'magnetar group describe' names them.",
    ),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        "still has members that read the topic",
        "Stop them first; 'magnetar group describe' names them.",
    ),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ("is still being loaded", "Try again in a moment."),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ("has no coordinator yet", "Try again in a moment."),
    ErrorCode.OFFSET_OUT_OF_RANGE: ("has no such offset", "'magnetar topic describe' shows what it holds."),
    ErrorCode.KAFKA_STORAGE_ERROR: ("cannot be stored or read", "'magnetar why TOPIC-PARTITION' says why."),
}


def check(code: int, message: str | None, what: str) -> None:
    """Raise what an error code means for ``what``; 0 is no error."""
    if code:
        raise refusal(code, message, what)


def refusal(code: int, message: str | None, what: str) -> AdminError:
    """Give what an error code means for ``what``, with the broker's own words where it has some."""
    known = code in ErrorCode._value2member_map_
    for table, kind in ((_NOT_THERE, NotThere), (_DECLINED, Declined)):
        if known and ErrorCode(code) in table:
            says, next_step = table[ErrorCode(code)]
            return kind(f"{what} {says}", next_step)
    name = ErrorCode(code).name if known else f"error {code}"
    return Declined(f"{what}: {message or name}" + (f" ({name})" if message else ""))
