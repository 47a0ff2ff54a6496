"""Who a client is, found out by a broker: what SASL says is passed on to one, and so are its answers.

What the client has said opens further connections, to other brokers, in its name. So mechanisms are offered whose words
can be said again: PLAIN and OAUTHBEARER. Of SCRAM each exchange is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from magnetar.client.forwarding import ForwardingConnection, answer_to
from magnetar.proxy.kafka.brokers import Brokers
from magnetar.proxy.kafka.relay import api_versions_told
from magnetar.proxy.kafka.request import as_it_came, written
from magnetar.proxy.kafka.routes import Address
from magnetar.records.compression import Buffer
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.header import RequestHeader, decode_response_header
from magnetar.wire.kafka.messages import ApiKey
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_authenticate_response import SaslAuthenticateResponse
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from magnetar.wire.kafka.messages.sasl_handshake_response import SaslHandshakeResponse

if TYPE_CHECKING:
    from magnetar.proxy.kafka.upstreams import Upstreams

MECHANISMS = ("PLAIN", "OAUTHBEARER")
_MAX_WORDS = 8


class ProxyLogin:
    """One client's. ``strangers`` are brokers as nobody in particular sees them; ``named`` those of who said this."""

    def __init__(
        self,
        strangers: Brokers,
        named: Callable[[str, Sequence[bytes]], Brokers],
        upstreams: Upstreams,
    ) -> None:
        self._strangers = strangers
        self._named = named
        self._upstreams = upstreams
        self._connection: ForwardingConnection | None = None
        self._address: Address = ("", 0)
        self._mechanism = ""
        self._said: list[bytes] = []
        self._is_speaking = False
        self.is_done = False
        self.failure: str | None = None
        """Why it is over."""

    def close(self) -> None:
        """Nobody wants to know any more."""
        if self._connection is not None:
            self._connection.finish()
            self._connection = None

    async def answer(self, header: RequestHeader, frame: memoryview, body: memoryview) -> Sequence[Buffer]:
        """Return what a broker answers to ApiVersions, SaslHandshake or SaslAuthenticate."""
        if header.api_key == ApiKey.API_VERSIONS:
            return api_versions_told(header, await self._asked(frame))
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            return await self._handshake(header, frame, body)
        return await self._authenticate(header, frame, body)

    async def _handshake(
        self, header: RequestHeader, frame: memoryview, body: memoryview
    ) -> Sequence[Buffer]:
        request = SaslHandshakeRequest.decode(body, header.api_version)
        if self.is_done:
            self.close()  # it says once more who it is; a connection is somebody's once and for all
        answer: Any = self._decoded(SaslHandshakeResponse, header, await self._asked(frame))
        answer.mechanisms = [each for each in answer.mechanisms if each in MECHANISMS]
        if request.mechanism not in MECHANISMS:
            answer.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if answer.error_code:
            self.failure = f"SASL mechanism {request.mechanism!r} is not passed on"
        self._mechanism, self._said, self._is_speaking = request.mechanism, [], not answer.error_code
        return written(header, answer)

    async def _authenticate(
        self, header: RequestHeader, frame: memoryview, body: memoryview
    ) -> Sequence[Buffer]:
        if not self._is_speaking or len(self._said) >= _MAX_WORDS:
            self.failure = "SaslAuthenticate without SaslHandshake"
            refused = SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=self.failure
            )
            return written(header, refused)
        self._said.append(bytes(SaslAuthenticateRequest.decode(body, header.api_version).auth_bytes))
        came = await self._asked(frame)
        answer: Any = self._decoded(SaslAuthenticateResponse, header, came)
        if answer.error_code:
            self.failure = f"authentication failed: {answer.error_message}"
        elif not answer.auth_bytes:  # neither mechanism says anything to who is let in
            self._is_speaking, self.is_done = False, True
            assert self._connection is not None
            brokers = self._named(self._mechanism, self._said)
            self._upstreams.belong_to(brokers, self._connection, self._address)
            self._connection = None
        return as_it_came(header, came)

    def _decoded(self, message: Any, header: RequestHeader, came: memoryview) -> Any:
        _, body = decode_response_header(came, header.api_key, header.api_version)
        return message.decode(body, header.api_version)

    async def _asked(self, frame: memoryview) -> memoryview:
        if self._connection is None or self._connection.closed:
            self._connection, self._address = await self._strangers.connect_anywhere()
        return await answer_to(self._connection, frame, within_s=self._strangers.request_s)
