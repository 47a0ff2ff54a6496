"""DescribeUserScramCredentials: who may log in by SCRAM, and how much work that is; nothing secret (KIP-554)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.auth.scram import MECHANISMS
from magnetar.auth.scram_users import ScramUsers
from magnetar.serving.pace import firsts, paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
)
from magnetar.wire.kafka.messages.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


MOST_USERS = 10_000
"""Ten times as many bytes as a name takes are kept of each until all are told of."""


async def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Tell of each user that is named, at most `MOST_USERS`, or of all."""
    if len(request.users or ()) > MOST_USERS:
        return DescribeUserScramCredentialsResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"At most {MOST_USERS} users are named at once.",
        )
    users = context.kafka.broker.security.scram
    named, again = await firsts(request.users or (), lambda each: each.name)
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[_told(user, users, twice=user in again) async for user in paced(named or users.names())],
    )


def _told(user: str, users: ScramUsers, *, twice: bool) -> DescribeUserScramCredentialsResult:
    if twice:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    found = users.of(user)
    if not found:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
    return DescribeUserScramCredentialsResult(
        user=user,
        error_message=None,
        credential_infos=[
            CredentialInfo(mechanism=MECHANISMS[name].number, iterations=each.iterations)
            for name, each in found.items()
        ],
    )
