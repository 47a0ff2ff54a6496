"""DescribeDelegationToken: the tokens that somebody owns or may renew, and others' with DESCRIBE on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.auth import Right, may
from magnetar.auth.delegation_tokens import DelegationToken
from magnetar.auth.errors import TokensDisabled
from magnetar.auth.rights import TokenId, TokenOwner
from magnetar.kafka.errors import REFUSALS, code_for
from magnetar.kafka.handlers.delegation_tokens import USER, asker
from magnetar.ledger.port import wall_clock_ms
from magnetar.serving.pace import paced
from magnetar.wire.kafka.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from magnetar.wire.kafka.messages.describe_delegation_token_response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """Tell of the tokens of these owners, of all owners if the request says None, that may be seen."""
    tokens = context.kafka.broker.security.delegation_tokens
    try:
        role = asker(context)
        if not tokens.enabled:
            raise TokensDisabled("Delegation Token feature is not enabled.")
    except REFUSALS as error:
        return DescribeDelegationTokenResponse(error_code=code_for(error))
    owners = request.owners
    wanted = (
        None if owners is None else {each.principal_name for each in owners if each.principal_type == USER}
    )
    return DescribeDelegationTokenResponse(
        tokens=[
            _told(each, tokens.proof(each))
            async for each in paced(tokens.all(wall_clock_ms()))
            if (wanted is None or each.owner in wanted) and _sees(role, each, context)
        ]
    )


def _sees(role: str, token: DelegationToken, context: RequestContext) -> bool:
    return (
        token.is_of(role)
        or may(context.access, Right.see, TokenId(token.id))
        or may(context.access, Right.describe_tokens, TokenOwner(token.owner))
    )


def _told(token: DelegationToken, proof: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=USER,
        principal_name=token.owner,
        token_requester_principal_type=USER,
        token_requester_principal_name=token.requester,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=proof,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=USER, principal_name=each)
            for each in token.renewers
        ],
    )
