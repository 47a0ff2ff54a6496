"""DescribeUserScramCredentials: who may log in by SCRAM, and how much work that is; nothing secret (KIP-554)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from magnetar.broker.auth.scram import MECHANISMS
from magnetar.broker.auth.scram_users import ScramUsers
from magnetar.kafka.pace import paced
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


async def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Tell of each user that is named, or of all."""
    users = context.kafka.broker.security.scram
    times = Counter(each.name for each in request.users or ())
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            _told(user, users, twice=times[user] > 1) async for user in paced(list(times) or users.names())
        ],
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
