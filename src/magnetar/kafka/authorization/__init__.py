"""Before each handler, where clients need grants: a guard that answers what the asker may not do.

Guards stand beside handlers and not in them, so that a broker without authorization does nothing for it. An API that is
neither guarded nor named as open to all is for super users alone.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from magnetar.broker.auth import Access
from magnetar.kafka.authorization.checks import Checks

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

Handler = Callable[[Any, Any], Coroutine[Any, Any, Any]]
Guard = Callable[[Any, Any, Checks, Handler], Coroutine[Any, Any, Any]]

GUARDS = {
    "topics": (
        "produce",
        "list_offsets",
        "metadata",
        "create_topics",
        "delete_topics",
        "delete_records",
        "describe_producers",
        "offset_for_leader_epoch",
        "create_partitions",
        "describe_topic_partitions",
    ),
    "groups": (
        "offset_commit",
        "offset_fetch",
        "find_coordinator",
        "join_group",
        "heartbeat",
        "leave_group",
        "sync_group",
        "describe_groups",
        "list_groups",
        "delete_groups",
        "offset_delete",
    ),
    "cluster": (
        "init_producer_id",
        "describe_configs",
        "alter_configs",
        "incremental_alter_configs",
        "describe_log_dirs",
        "describe_cluster",
        "list_config_resources",
        "elect_leaders",
        "alter_partition_reassignments",
        "list_partition_reassignments",
    ),
}
"""By module, the handlers that have a guard of the same name."""

OPEN = (
    "api_versions",
    "sasl_handshake",
    "sasl_authenticate",
    "fetch",
    "describe_acls",
    "create_acls",
    "delete_acls",
)
"""Handlers that everybody may ask. Fetch looks for itself: its sessions outlive a grant. ACLs are nobody's."""

_MODULES = {handler: module for module, handlers in GUARDS.items() for handler in handlers}


def guarded(name: str, handler: Handler, access: Access) -> Handler:
    """Give what answers instead of ``handler``, the handler of this name, for a client with this access."""
    if name in OPEN:
        return handler
    guard = _guard(name)

    async def answer(request: Any, context: RequestContext) -> Any:
        return await guard(request, context, Checks(access, context), handler)

    return answer


@cache
def _guard(name: str) -> Guard:
    module = _MODULES.get(name)
    if module is None:
        return _for_super_users
    guard: Guard = getattr(import_module(f"magnetar.kafka.authorization.{module}"), name)
    return guard


async def _for_super_users(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    if not checks.operates():
        raise ConnectionAbortedError(f"{type(request).__name__} is for super users alone")
    return await answer(request, context)
