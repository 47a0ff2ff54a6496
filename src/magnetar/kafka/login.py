"""How one Kafka client comes to be known: by its certificate, or by SASL PLAIN with a token or password, as in KoP.

    SaslHandshake(PLAIN)  ->  SaslAuthenticate(user, "token:<JWT>")  ->  anything, until the token ends
                                                                         (KIP-368: both again, by the same client)

The user's name is a tenant, or ``tenant/namespace``; who the client is stands in the token alone, or in what follows
``basic:``, which is a user and a password of Pulsar's basic authentication. Before all this only
ApiVersions is answered, and what else is asked closes the connection, as with Kafka.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from magnetar.broker.auth import Access, AuthenticationFailed, Principal, Right, Tenant, may
from magnetar.broker.auth.authentication import BASIC, TOKEN
from magnetar.broker.core import Broker
from magnetar.broker.errors import InvalidTopic
from magnetar.broker.listeners import Listener
from magnetar.kafka.settings import KafkaSettings
from magnetar.kafka.tenancy import Home, Tenancy

SERVED_MECHANISMS = ("PLAIN",)
_FORMS = {TOKEN: "token:<JSON Web Token>", BASIC: "basic:<user>:<password>"}
"""What a password of SASL PLAIN looks like, by the method of authentication that it stands for."""
_API_VERSIONS, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = 18, 17, 36
_log = logging.getLogger("magnetar.kafka")


class AuthenticationRequired(Exception):
    """The client asks for something before it has said who it is, or after its proof has ended."""


class Login:
    """What one connection has proved so far."""

    __slots__ = (
        "_broker",
        "_clock",
        "_ends_at_s",
        "_handshake",
        "_listener",
        "_tenancy",
        "access",
        "failure",
        "home",
        "principal",
        "takes_raw",
        "user",
    )

    def __init__(
        self,
        broker: Broker,
        listener: Listener,
        principal: Principal | None,
        clock: Callable[[], float] = time.time,
        tenancy: Tenancy | None = None,
    ) -> None:
        self._broker = broker
        self._tenancy = tenancy
        self._listener = listener
        self._clock = clock
        self._ends_at_s: float | None = None
        self._handshake = ""
        """The mechanism, between SaslHandshake and SaslAuthenticate."""
        self.takes_raw = False
        """Whether the next frame is SASL's own, without a header."""
        self.failure: str | None = None
        """Why the connection must be closed once its last answer is sent."""
        self.user = ""
        self.home: Home | None = None
        """Where the client's short names lie, if that is not where everybody's do."""
        self.principal: Principal | None = None
        self.access: Access | None = None
        if principal is not None:
            self._be(principal)

    @property
    def is_done(self) -> bool:
        """Whether it is known who the client is."""
        return self.principal is not None

    @property
    def mechanisms(self) -> list[str]:
        """What a client may choose from."""
        allowed = self._broker.settings.of(KafkaSettings).sasl_enabled_mechanisms
        return [each for each in SERVED_MECHANISMS if each in allowed]

    def check(self, api_key: int) -> None:
        """Raise `AuthenticationRequired` unless the client may ask for this now."""
        if self._handshake:
            if api_key != _SASL_AUTHENTICATE:
                raise AuthenticationRequired(f"API key {api_key} between SaslHandshake and SaslAuthenticate")
            return
        if api_key in (_API_VERSIONS, _SASL_HANDSHAKE):
            return
        if self.principal is None:
            raise AuthenticationRequired(f"API key {api_key} before authentication")
        if self._ends_at_s is not None and self._clock() >= self._ends_at_s:
            raise AuthenticationRequired("the session has ended, and the client has not authenticated again")

    def begin(self, mechanism: str, *, raw: bool) -> bool:
        """Take SaslHandshake; tell whether the mechanism is served, without which it is over."""
        if mechanism not in self.mechanisms:
            self.failure = f"SASL mechanism {mechanism!r} is not served"
            return False
        self._handshake, self.takes_raw = mechanism, raw
        return True

    @property
    def is_asked_for(self) -> bool:
        """Whether SASL may be spoken here at all."""
        return self._listener.sasl

    async def authenticate(self, said: bytes, address: str = "") -> int:
        """Take what SASL PLAIN says; give how long the session lasts in ms, 0 for as long as the client likes.

        A refusal (`AuthenticationFailed`) comes only after ``connection.failed.authentication.delay.ms``.
        """
        if not self._handshake:
            self.failure = "SaslAuthenticate without SaslHandshake"
            raise AuthenticationFailed(self.failure)
        self._handshake, self.takes_raw = "", False
        try:
            user, password = parse_plain(said)
            authentication = self._broker.security.authentication
            principal = await authentication.prove(
                *_proof_of(password, authentication.methods), address=address
            )
            self._check_same(principal, user)
            home = await self._home_of(principal, user)
        except AuthenticationFailed as error:
            delay_ms = self._broker.settings.security.connection_failed_authentication_delay_ms
            await asyncio.sleep(delay_ms / 1000)
            self.failure = f"authentication failed: {error}"
            raise
        self.user, self.home = user, home
        self._be(principal)
        return self._session_ms()

    async def _home_of(self, principal: Principal, user: str) -> Home | None:
        if self._tenancy is None:
            return None
        access = self._broker.security.authorization.access(principal.role)
        # Whose grants end at other tenants has nothing to do with the groups of this one.
        if not may(access, Right.enter, Tenant(user.partition("/")[0])):
            raise AuthenticationFailed(
                f"Authentication failed: {principal.role} has no grant in tenant of {user}"
            )
        try:
            return await self._tenancy.home(user)
        except InvalidTopic:
            raise AuthenticationFailed(
                f"Authentication failed: there is no tenant or namespace {user}"
            ) from None

    def _check_same(self, principal: Principal, user: str) -> None:
        before = self.principal
        if before is not None and (before.role, self.user) != (principal.role, user):
            raise AuthenticationFailed(
                f"Cannot change principals during re-authentication from {before.role}: {principal.role}"
            )

    def _be(self, principal: Principal) -> None:
        self.principal = principal
        self.access = self._broker.security.authorization.access(principal.role)
        ends = [principal.expires_at_s] if principal.expires_at_s is not None else []
        longest_ms = self._broker.settings.of(KafkaSettings).connections_max_reauth_ms
        if longest_ms and self._listener.sasl:
            ends.append(self._clock() + longest_ms / 1000)
        self._ends_at_s = min(ends, default=None)

    def _session_ms(self) -> int:
        if self._ends_at_s is None:
            return 0
        return max(int((self._ends_at_s - self._clock()) * 1000), 1)


def login_for(
    broker: Broker,
    listener: Listener,
    certificate: Mapping[str, Any] | None,
    tenancy: Tenancy | None = None,
) -> Login | None:
    """Return where a new connection stands; None if no client needs to say who it is, and all may do everything."""
    authentication = broker.security.authentication
    try:
        if certificate and authentication.takes_certificates and not listener.protocol.startswith("SASL_"):
            return Login(broker, listener, authentication.by_certificate(certificate))
        if authentication.enabled and not listener.sasl:
            return Login(broker, listener, authentication.anonymous())
    except AuthenticationFailed as error:
        _log.warning("a client is not let in: %s", error)
        return Login(broker, listener, None)
    return Login(broker, listener, None, tenancy=tenancy) if listener.sasl else None


def parse_plain(said: bytes) -> tuple[str, str]:
    """Return user and password of SASL PLAIN (RFC 4616); raise `AuthenticationFailed`."""
    try:
        parts = said.decode().split("\0")
    except UnicodeDecodeError:
        raise AuthenticationFailed("Invalid SASL/PLAIN response: not UTF-8") from None
    if len(parts) != 3:
        raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    behalf, user, password = parts
    if not user:
        raise AuthenticationFailed("Authentication failed: username not specified")
    if not password:
        raise AuthenticationFailed("Authentication failed: password not specified")
    if behalf not in ("", user):
        raise AuthenticationFailed(
            "Authentication failed: Client requested an authorization id that is different from username"
        )
    return user, password


def _proof_of(password: str, served: Collection[str]) -> tuple[str, str]:
    method, separator, proof = password.partition(":")
    if method not in _FORMS or method not in served or not separator:
        forms = [form for each, form in _FORMS.items() if each in served] or [_FORMS[TOKEN]]
        raise AuthenticationFailed(f"Authentication failed: the password must be {' or '.join(forms)}")
    return method, proof
