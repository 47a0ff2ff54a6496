"""CreateDelegationToken: a password for workers, in one's own name or, with CREATE_TOKENS, in another's (KIP-373)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.auth import Right, may
from magnetar.auth.rights import TokenOwner
from magnetar.kafka.errors import REFUSALS, TokenAuthorizationFailed, code_for
from magnetar.kafka.handlers.delegation_tokens import USER, asker, role_of
from magnetar.ledger.port import wall_clock_ms
from magnetar.wire.kafka.messages.create_delegation_token_request import CreateDelegationTokenRequest
from magnetar.wire.kafka.messages.create_delegation_token_response import CreateDelegationTokenResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Make a token and tell its proof, for the last time but to who may see it."""
    tokens = context.kafka.broker.security.delegation_tokens
    try:
        requester = owner = asker(context)
        if request.owner_principal_name:
            owner = role_of(request.owner_principal_type, request.owner_principal_name)
        if owner != requester and not may(context.access, Right.create_tokens, TokenOwner(owner)):
            raise TokenAuthorizationFailed(f"{requester} makes no delegation tokens for {owner}")
        renewers = [role_of(each.principal_type, each.principal_name) for each in request.renewers]
        made = await tokens.create(owner, requester, renewers, request.max_lifetime_ms, wall_clock_ms())
    except REFUSALS as error:
        return CreateDelegationTokenResponse(
            error_code=code_for(error),
            issue_timestamp_ms=-1,
            expiry_timestamp_ms=-1,
            max_timestamp_ms=-1,
        )
    return CreateDelegationTokenResponse(
        principal_type=USER,
        principal_name=made.owner,
        token_requester_principal_type=USER,
        token_requester_principal_name=made.requester,
        issue_timestamp_ms=made.issued_ms,
        expiry_timestamp_ms=made.expires_ms,
        max_timestamp_ms=made.max_ms,
        token_id=made.id,
        hmac=tokens.proof(made),
    )
