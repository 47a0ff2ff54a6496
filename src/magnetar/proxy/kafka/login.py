"""Who a client is, found out by a broker: what SASL says is passed on to one, and so are its answers.

What the client has said by PLAIN or OAUTHBEARER opens further connections, to other brokers, in its name. Of SCRAM each
exchange is another one: there a delegation token does, which is asked for on the connection of the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from magnetar.auth.scram import MECHANISMS as SCRAM
from magnetar.auth.scram import ScramExchange, ScramRefused
from magnetar.client.forwarding import ForwardingConnection, answer_to
from magnetar.proxy.kafka.brokers import Brokers
from magnetar.proxy.kafka.delegated import GONE, LoginEnded, are_made_by
from magnetar.proxy.kafka.listing import listed
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

SAID_AGAIN = ("PLAIN", "OAUTHBEARER")
MECHANISMS = (*SAID_AGAIN, *SCRAM)
_MAX_WORDS = 8
_NO_TOKENS = (
    "SCRAM passes through a proxy only where brokers make delegation tokens: set delegation.token.secret.key on each "
    "of them"
)
_BY_TOKEN = (
    "a delegation token lets in at brokers and not at a proxy, which would have to make others of it (KIP-48): log in "
    "as its owner, or directly"
)


class _Refused(Exception):
    """The proxy does not let in whoever a broker may let in."""


def not_asked_for(header: RequestHeader, body: memoryview) -> Sequence[Buffer]:
    """Return Kafka's response to requests of SASL on a listener without it; raise ``WireError``."""
    if header.api_key == ApiKey.SASL_HANDSHAKE:
        SaslHandshakeRequest.decode(body, header.api_version)
        return written(header, SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
    SaslAuthenticateRequest.decode(body, header.api_version)
    refused = SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received on a listener without SASL",
    )
    return written(header, refused)


class ProxyLogin:
    """One client's. ``strangers`` are brokers as nobody in particular sees them; ``named`` those of who said this.

    ``delegated`` are those of one client, of a mechanism of SCRAM, a user, and the connection that is the client's own.
    """

    def __init__(
        self,
        strangers: Brokers,
        named: Callable[[str, Sequence[bytes]], Brokers],
        delegated: Callable[[str, str, ForwardingConnection], Brokers],
        upstreams: Upstreams,
    ) -> None:
        self._strangers = strangers
        self._named = named
        self._delegated = delegated
        self._upstreams = upstreams
        self._connection: ForwardingConnection | None = None
        self._address: Address = ("", 0)
        self._mechanism = ""
        """By which the client was let in, or wants to be."""
        self._wanted = ""
        self._said: list[bytes] = []
        self._user = ""
        """Of SCRAM."""
        self._ends_s: float | None = None
        self.is_speaking = False
        """Whether SaslHandshake was answered, and what follows it is not over."""
        self.is_done = False
        self.failure: str | None = None
        """Why it is over."""

    def close(self) -> None:
        """Nobody wants to know any more."""
        if self._connection is not None:
            self._connection.finish()
            self._connection = None

    def has_expired(self, now: float) -> bool:
        """Whether the client should have proved again by now who it is (KIP-368), by the loop's clock."""
        return self._ends_s is not None and now >= self._ends_s

    async def answer(self, header: RequestHeader, frame: memoryview, body: memoryview) -> Sequence[Buffer]:
        """Return what a broker answers to ApiVersions, SaslHandshake or SaslAuthenticate."""
        if header.api_key == ApiKey.API_VERSIONS:
            return listed(header, await self._asked(frame))
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            return await self._handshake(header, frame, body)
        try:
            return await self._authenticate(header, frame, body)
        except _Refused as refusal:
            self.failure = f"authentication failed: {refusal}"
            refused = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(refusal)
            )
            return written(header, refused)

    async def _handshake(
        self, header: RequestHeader, frame: memoryview, body: memoryview
    ) -> Sequence[Buffer]:
        request = SaslHandshakeRequest.decode(body, header.api_version)
        own = self._upstreams.own
        if own is not None and own.closed:
            raise LoginEnded(GONE)  # another broker would not know that it has to be the same client
        if self.is_done and own is None:
            self.close()  # it says once more who it is; a connection is somebody's once and for all
        answer: Any = self._decoded(SaslHandshakeResponse, header, await self._asked(frame))
        answer.mechanisms = [each for each in answer.mechanisms if each in MECHANISMS]
        if request.mechanism not in MECHANISMS:
            answer.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if answer.error_code:
            self.failure = f"SASL mechanism {request.mechanism!r} is not passed on"
        self._wanted, self._said, self.is_speaking = request.mechanism, [], not answer.error_code
        return written(header, answer)

    async def _authenticate(
        self, header: RequestHeader, frame: memoryview, body: memoryview
    ) -> Sequence[Buffer]:
        if not self.is_speaking or len(self._said) >= _MAX_WORDS:
            self.failure = "SaslAuthenticate without SaslHandshake"
            refused = SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=self.failure
            )
            return written(header, refused)
        if self.is_done and self._wanted != self._mechanism:
            raise _Refused(
                f"SASL mechanism '{self._wanted}' requested by client is not supported for re-authentication of "
                f"mechanism '{self._mechanism}'"
            )
        self._said.append(bytes(SaslAuthenticateRequest.decode(body, header.api_version).auth_bytes))
        if self._wanted in SCRAM and len(self._said) == 1:
            self._user = _user(self._wanted, self._said[0])
        came = await self._asked(frame)
        answer: Any = self._decoded(SaslAuthenticateResponse, header, came)
        if answer.error_code:
            self.failure = f"authentication failed: {answer.error_message}"
        elif self._is_let_in(bytes(answer.auth_bytes)):
            await self._be(answer.session_lifetime_ms)
        return as_it_came(header, came)

    def _is_let_in(self, told: bytes) -> bool:
        """Whether an answer without error is the last one: by SCRAM a broker proves then who it is, too."""
        return told.startswith(b"v=") if self._wanted in SCRAM else not told

    async def _be(self, session_ms: int) -> None:
        """A broker has let the client in."""
        connection = self._connection
        assert connection is not None
        if connection is not self._upstreams.own:
            if self._wanted in SCRAM:
                await self._check_tokens(connection)
                brokers = self._delegated(self._wanted, self._user, connection)
            else:
                brokers = self._named(self._wanted, self._said)
                connection.keep_logged_in(session_ms, brokers.security)
                self._connection = None
            self._upstreams.belong_to(brokers, connection, self._address)
        self._mechanism, self.is_speaking, self.is_done = self._wanted, False, True
        self._ends_s = asyncio.get_running_loop().time() + session_ms / 1000 if session_ms else None

    async def _check_tokens(self, connection: ForwardingConnection) -> None:
        if not self._strangers.make_tokens:
            self._strangers.make_tokens = await are_made_by(connection)
            if not self._strangers.make_tokens:
                raise _Refused(_NO_TOKENS)

    def _decoded(self, message: Any, header: RequestHeader, came: memoryview) -> Any:
        _, body = decode_response_header(came, header.api_key, header.api_version)
        return message.decode(body, header.api_version)

    async def _asked(self, frame: memoryview) -> memoryview:
        if self._connection is None or (self._connection.closed and not self.is_speaking):
            self._connection, self._address = await self._strangers.connect_anywhere()
        return await answer_to(self._connection, frame, within_s=self._strangers.request_s)


def _user(mechanism: str, first: bytes) -> str:
    """Return whom SCRAM's first message is from, read as brokers read it; raise `_Refused` if it is from a token."""
    exchange = ScramExchange(SCRAM[mechanism])
    try:
        exchange.begin(first)
    except ScramRefused:
        return ""  # the broker says so
    if exchange.by_token:
        raise _Refused(_BY_TOKEN)
    return exchange.user
