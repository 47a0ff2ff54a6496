"""SaslHandshake: the client names the mechanism it wants, and is told those that are served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from magnetar.wire.kafka.messages.sasl_handshake_response import SaslHandshakeResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_LAST_BEFORE_AUTHENTICATE = 0


async def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Begin; after version 0 what SASL says comes without Kafka's header, otherwise in SaslAuthenticate (KIP-152)."""
    login = context.login
    if login is None or not login.is_asked_for(request.mechanism):
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    raw = context.api_version <= _LAST_BEFORE_AUTHENTICATE
    served = login.begin(request.mechanism, raw=raw)
    code = ErrorCode.NONE if served else ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return SaslHandshakeResponse(error_code=code, mechanisms=login.mechanisms)
