"""Kafka's ACLs as its three requests have them: what cannot be, what a filter means, and Pulsar's grants among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from magnetar.auth.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from magnetar.kafka.errors import InvalidRequest, SecurityDisabled

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_MESSAGE: Final = (
    "No Authorizer is configured: set authorization.enabled, or authorizer.class.name as Kafka has it."
)
_LONGEST_NAME: Final = 4096


def check_enabled(context: RequestContext) -> None:
    """Raise `SecurityDisabled` where nobody is refused anything, so that no ACL would be obeyed."""
    if not context.kafka.broker.security.authorization.enabled:
        raise SecurityDisabled(_MESSAGE)


def acl_of(row: Any) -> Acl:
    """Return the entry that a request wants to be made; raise `InvalidRequest` for what cannot be."""
    kind = _known(ResourceType, row.resource_type, "resourceType")
    pattern = _known(PatternType, row.resource_pattern_type, "patternType")
    operation = _known(Operation, row.operation, "operation")
    permission = _known(Permission, row.permission_type, "permissionType")
    if pattern is PatternType.MATCH:
        raise InvalidRequest("Invalid patternType MATCH")
    if not row.resource_name:
        raise InvalidRequest("Invalid empty resource name")
    if kind is ResourceType.CLUSTER and row.resource_name != CLUSTER_NAME:
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if ":" not in row.principal:
        raise InvalidRequest(
            f"Could not parse principal from `{row.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    if max(map(len, (row.resource_name, row.principal, row.host))) > _LONGEST_NAME:
        raise InvalidRequest(f"A name of more than {_LONGEST_NAME} characters")
    if not row.host:
        raise InvalidRequest("Invalid empty host")
    name = _canonical(kind, row.resource_name)
    return Acl(kind, name, pattern, row.principal, row.host, operation, permission)


def filter_of(row: Any) -> AclFilter:
    """Return which entries a request means; raise `InvalidRequest` for a type that nobody knows."""
    kind = _parsed(ResourceType, row.resource_type_filter, "resourceType")
    name = row.resource_name_filter
    return AclFilter(
        kind,
        name if name is None else _canonical(kind, name),
        _parsed(PatternType, row.pattern_type_filter, "patternType"),
        row.principal_filter,
        row.host_filter,
        _parsed(Operation, row.operation, "operation"),
        _parsed(Permission, row.permission_type, "permissionType"),
    )


def _canonical(kind: ResourceType, name: str) -> str:
    """Leave out what Pulsar's names of topics begin with, which Kafka's do not."""
    return name.removeprefix("persistent://") if kind in (ResourceType.TOPIC, ResourceType.ANY) else name


def _known(kind: Any, number: int, field: str) -> Any:
    found = _parsed(kind, number, field)
    if found == kind.ANY:
        raise InvalidRequest(f"Invalid {field} ANY")
    return found


def _parsed(kind: Any, number: int, field: str) -> Any:
    try:
        found = kind(number)
    except ValueError:
        found = kind.UNKNOWN
    if found == kind.UNKNOWN:
        raise InvalidRequest(f"Invalid {field} UNKNOWN")
    return found
