"""FindCoordinator: the broker that has the partition in which a group is kept (KIP-699: many keys at once).

The key of a share partition's state is ``group:topic id:partition`` (KIP-932).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from magnetar.cluster.ownership import Owned
from magnetar.kafka.handlers.leaders import endpoint_of
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from magnetar.wire.kafka.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_SHARE_KEY = re.compile(r".+:[A-Za-z0-9_-]{22}:\d{1,10}", re.ASCII | re.DOTALL)
_FIRST_WITH_KEYS = 4
_FIRST_WITH_SHARES = 6


async def find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Name the coordinator of each key; there is none for kinds that do not exist."""
    if context.api_version >= _FIRST_WITH_KEYS:
        keys = paced(request.coordinator_keys)
        return FindCoordinatorResponse(
            coordinators=[await _found(key, request.key_type, context) async for key in keys]
        )
    one = await _found(request.key, request.key_type, context)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or ErrorCode(one.error_code).name,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _found(key: str, key_type: int, context: RequestContext) -> Coordinator:
    if key_type not in (_GROUP, _TRANSACTION, _SHARE) or (
        key_type == _SHARE and (context.api_version < _FIRST_WITH_SHARES or not _SHARE_KEY.fullmatch(key))
    ):
        message = f"no coordinator for such keys of type {key_type}"
        return Coordinator(
            key=key, node_id=-1, port=-1, error_code=ErrorCode.INVALID_REQUEST, error_message=message
        )
    owner = await _owner(key, key_type, context)
    endpoint = None if owner is None else endpoint_of(context, owner.node_id)
    if owner is None or endpoint is None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=None)
    return Coordinator(key=key, node_id=owner.node_id, host=endpoint.host, port=endpoint.port)


async def _owner(key: str, key_type: int, context: RequestContext) -> Owned | None:
    if key_type == _GROUP:
        return context.kafka.groups.owner_of(key)
    if key_type == _TRANSACTION:
        return (await context.kafka.transactions.get()).owner_of(key)
    return (await context.kafka.shares.get()).states.owner_of(key)
