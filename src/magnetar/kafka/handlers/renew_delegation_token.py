"""RenewDelegationToken: a token ends later, but never after the longest that it may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.errors import REFUSALS, code_for
from magnetar.kafka.handlers.delegation_tokens import asker
from magnetar.ledger.port import wall_clock_ms
from magnetar.wire.kafka.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from magnetar.wire.kafka.messages.renew_delegation_token_response import RenewDelegationTokenResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """Do so for its owner, who asked for it, and its renewers."""
    tokens = context.kafka.broker.security.delegation_tokens
    try:
        ends_ms = await tokens.renew(
            bytes(request.hmac), asker(context), request.renew_period_ms, wall_clock_ms()
        )
    except REFUSALS as error:
        return RenewDelegationTokenResponse(error_code=code_for(error), expiry_timestamp_ms=-1)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=ends_ms)
