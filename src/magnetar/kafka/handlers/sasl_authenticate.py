"""SaslAuthenticate: what SASL says, and for how long it holds (KIP-152, KIP-368)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.auth import AuthenticationFailed
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_authenticate_response import SaslAuthenticateResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def sasl_authenticate(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """Answer who is let in at once, and others late; then their connection is closed."""
    login = context.login
    if login is None or not login.is_asked_for():
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received on a listener without SASL",
        )
    try:
        answer = await login.authenticate(bytes(request.auth_bytes), context.client_host.removeprefix("/"))
    except AuthenticationFailed as error:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error)
        )
    return SaslAuthenticateResponse(
        error_message=None, auth_bytes=answer.said, session_lifetime_ms=answer.session_ms
    )
