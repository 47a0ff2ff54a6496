"""ExpireDelegationToken: a token ends after a period, or at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.errors import REFUSALS, code_for
from magnetar.kafka.handlers.delegation_tokens import asker
from magnetar.ledger.port import wall_clock_ms
from magnetar.wire.kafka.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from magnetar.wire.kafka.messages.expire_delegation_token_response import ExpireDelegationTokenResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Do so for its owner, who asked for it, and its renewers."""
    tokens = context.kafka.broker.security.delegation_tokens
    try:
        ends_ms = await tokens.expire(
            bytes(request.hmac), asker(context), request.expiry_time_period_ms, wall_clock_ms()
        )
    except REFUSALS as error:
        return ExpireDelegationTokenResponse(error_code=code_for(error), expiry_timestamp_ms=-1)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=ends_ms)
