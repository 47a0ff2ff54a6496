"""Which operations the asker may do, as the bit fields of KIP-430."""

from __future__ import annotations

from magnetar.kafka.authorization.checks import Checks
from magnetar.kafka.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS

_READ, _WRITE, _DESCRIBE, _DESCRIBE_CONFIGS, _IDEMPOTENT_WRITE = 3, 4, 8, 10, 12


def of_topic(checks: Checks, name: str | None) -> int:
    """Return what may be done with a topic."""
    if checks.named(name) is None:
        return 0
    if checks.manages(name):
        return TOPIC_OPERATIONS
    allowed = (
        (checks.reads(name), (_READ, _DESCRIBE, _DESCRIBE_CONFIGS)),
        (checks.writes(name), (_WRITE, _DESCRIBE, _DESCRIBE_CONFIGS)),
    )
    return _bits({each for yes, operations in allowed if yes for each in operations})


def of_cluster(checks: Checks) -> int:
    """Return what may be done with the cluster."""
    if checks.operates():
        return CLUSTER_OPERATIONS
    return _bits({_IDEMPOTENT_WRITE} if checks.produces_somewhere() else set())


def _bits(operations: set[int]) -> int:
    return sum(1 << operation for operation in operations)
