"""Which operations the asker may do, as the bit fields of KIP-430."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from magnetar.auth import Right
from magnetar.auth.acls import Operation
from magnetar.kafka.authorization.checks import Checks

_TOPIC: Mapping[Operation, Callable[[Checks, str], bool]] = {
    Operation.READ: Checks.reads,
    Operation.WRITE: Checks.writes,
    Operation.CREATE: Checks.creates,
    Operation.DELETE: Checks.deletes,
    Operation.ALTER: Checks.alters,
    Operation.DESCRIBE: Checks.sees,
    Operation.DESCRIBE_CONFIGS: Checks.sees_configs,
    Operation.ALTER_CONFIGS: Checks.alters_configs,
}
_GROUP: Mapping[Operation, Callable[[Checks, str], bool]] = {
    Operation.READ: Checks.uses,
    Operation.DELETE: Checks.deletes_group,
    Operation.DESCRIBE: Checks.sees_group,
    Operation.DESCRIBE_CONFIGS: Checks.sees_group_configs,
    Operation.ALTER_CONFIGS: Checks.alters_group_configs,
}
_CLUSTER = {
    Operation.CREATE: Right.create_on_cluster,
    Operation.ALTER: Right.alter_cluster,
    Operation.DESCRIBE: Right.describe_cluster,
    Operation.CLUSTER_ACTION: Right.act_for_cluster,
    Operation.DESCRIBE_CONFIGS: Right.see_cluster_configs,
    Operation.ALTER_CONFIGS: Right.alter_cluster_configs,
    Operation.IDEMPOTENT_WRITE: Right.produce,
}


def of_topic(checks: Checks, name: str | None) -> int:
    """Return what may be done with a topic."""
    if not name or checks.named(name) is None:
        return 0
    return _bits(operation for operation, may in _TOPIC.items() if may(checks, name))


def of_group(checks: Checks, group: str) -> int:
    """Return what may be done with a group."""
    return _bits(operation for operation, may in _GROUP.items() if may(checks, group))


def of_cluster(checks: Checks) -> int:
    """Return what may be done with the cluster."""
    return _bits(operation for operation, right in _CLUSTER.items() if checks.on_cluster(right))


def _bits(operations: Iterable[int]) -> int:
    return sum(1 << operation for operation in operations)
