"""Before each handler, where clients need grants: a guard that answers what the asker may not do.

Guards stand beside handlers and not in them, so that a broker without authorization does nothing for it. What an API
needs stands in its route: as rights (`magnetar.kafka.rights`), which `declared` asks for, or as the file that has a
guard written for it (`magnetar.kafka.route.Guard`).
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from magnetar.auth import Access
from magnetar.kafka.authorization.checks import Checks, GuardFunction, may_write_all
from magnetar.kafka.authorization.declared import declared
from magnetar.kafka.rights import Rights
from magnetar.kafka.route import Guard, Handler, Route

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_PRODUCE = 0


def guarded(route: Route, handler: Handler, access: Access, request: Any) -> Handler:
    """Return what answers instead of ``handler``, the route's, for a client with this access."""
    if route.rights is Guard.OPEN or (route.api_key == _PRODUCE and may_write_all(request, access)):
        return handler
    guard = guard_of(route)

    async def answer(request: Any, context: RequestContext) -> Any:
        return await guard(request, context, Checks(access, context), handler)

    return answer


@cache
def guard_of(route: Route) -> GuardFunction:
    """Return the function that answers what may not be asked of an API that is not open to all."""
    if isinstance(route.rights, Rights):
        return declared(route, route.rights)
    if route.rights is Guard.SUPER_USERS:
        return _for_super_users
    if route.rights is Guard.OWN:
        module, name = f"magnetar.kafka.handlers.{route.handler}", "guard"
    else:
        module, name = f"magnetar.kafka.authorization.{route.rights}", route.handler
    found: GuardFunction = getattr(import_module(module), name)
    return found


async def _for_super_users(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    if not checks.operates():
        raise ConnectionAbortedError(f"{type(request).__name__} is for super users alone")
    return await answer(request, context)
