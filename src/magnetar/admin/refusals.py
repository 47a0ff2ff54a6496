"""Kafka's error codes as an operator should hear them: what it means, and what to do next."""

from __future__ import annotations

from magnetar.admin.errors import AdminError, Declined, Forbidden, NotThere
from magnetar.wire.kafka.errors import ErrorCode

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
_GRANTS = (
    "'magnetar permission' shows and grants what roles may do; MAGNETAR_COMMAND_CONFIG says who you are."
)
_NEXT_STEPS = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Choose another name: a short one, or persistent://tenant/namespace/topic.",
    ErrorCode.INVALID_CONFIG: (
        "'magnetar topic describe' shows all there are; docs/configuration.md tells what they take."
    ),
    ErrorCode.INVALID_PARTITIONS: "'magnetar topic describe' shows how many there are; a topic only ever gets more.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "Omit it or set it to 1: copies are made by bookies, not by brokers.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "Try again in a moment.",
    ErrorCode.REQUEST_TIMED_OUT: "Try again in a moment; 'magnetar why TOPIC-PARTITION' says what it waits for.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Start the broker with delete.topic.enable=true.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _GRANTS,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _GRANTS,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _GRANTS,
}
_LOOK = "The broker's log may say more."


def check(code: int, message: str | None, what: str, next_step: str = _LOOK) -> None:
    """Raise what an error code means for ``what``; 0 is no error."""
    if code:
        raise refusal(code, message, what, next_step)


def refusal(code: int, message: str | None, what: str, next_step: str = _LOOK) -> AdminError:
    """Return what an error code means for ``what``, with the broker's own words where it has some.

    ``next_step`` is what to do about a code that does not say so itself.
    """
    known = code in ErrorCode._value2member_map_
    for table, kind in ((_NOT_THERE, NotThere), (_DECLINED, Declined)):
        if known and ErrorCode(code) in table:
            says, then = table[ErrorCode(code)]
            return kind(f"{what} {says}", then)
    name = ErrorCode(code).name if known else f"error {code}"
    next_step = _NEXT_STEPS.get(ErrorCode(code), next_step) if known else next_step
    refused = Forbidden if name.endswith("AUTHORIZATION_FAILED") else Declined
    return refused(f"{what}: {message or name}" + (f" ({name})" if message else ""), next_step)
