"""How one Kafka client comes to be known: by its certificate, or by one of SASL's mechanisms (`magnetar.kafka.sasl`).

    SaslHandshake(mechanism)  ->  SaslAuthenticate, as often as the mechanism asks  ->  anything, until the proof ends
                                                                         (KIP-368: both again, by the same client)

By PLAIN, as in KoP, the user's name is a tenant, or ``tenant/namespace``; who the client is stands in the token alone,
or in what follows ``basic:``, which is a user and a password of Pulsar's basic authentication. By SCRAM the user is who
the client is, at home in the default tenant. Before all this only ApiVersions is answered, and what else is asked
closes the connection, as with Kafka.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from magnetar.auth import Access, AuthenticationFailed, Principal, Right, Tenant, may
from magnetar.auth.authorization import OtherBroker
from magnetar.auth.errors import AuthenticationRequired
from magnetar.base.errors import InvalidTopic
from magnetar.kafka.sasl import SERVED, Exchange, Proof, begin
from magnetar.kafka.settings import KafkaSettings
from magnetar.kafka.tenancy import Home, Tenancy
from magnetar.node.broker import Broker
from magnetar.serving.listeners import Listener
from magnetar.wire.kafka.mechanisms import BETWEEN_BROKERS

_API_VERSIONS, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = 18, 17, 36
_log = logging.getLogger("magnetar.kafka")


class Answered(NamedTuple):
    """What a client is answered: what its mechanism says, and how long the session lasts, in ms.

    0 is for as long as the client likes, and where the exchange goes on.
    """

    said: bytes
    session_ms: int


class Login:
    """What one connection has proved so far."""

    __slots__ = (
        "_broker",
        "_clock",
        "_ends_at_s",
        "_exchange",
        "_host",
        "_listener",
        "_mechanism",
        "_wanted",
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
        host: str = "",
    ) -> None:
        """``host`` is where the client speaks from."""
        self._host = host
        self._broker = broker
        self._tenancy = tenancy
        self._listener = listener
        self._clock = clock
        self._ends_at_s: float | None = None
        self._mechanism = ""
        """By which the client became known."""
        self._exchange: Exchange | None = None
        """What goes on between SaslHandshake and the last SaslAuthenticate."""
        self._wanted = ""
        """The mechanism of the exchange."""
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
        security = self._broker.settings.at(self._listener.name).security
        return [each for each in security.sasl_enabled_mechanisms if each in SERVED]

    def check(self, api_key: int) -> None:
        """Raise `AuthenticationRequired` unless the client may ask for this now."""
        if self._exchange is not None:
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
        served = self.mechanisms if self._listener.sasl else []
        if mechanism not in (*served, BETWEEN_BROKERS):
            self.failure = f"SASL mechanism {mechanism!r} is not served"
            return False
        self._exchange = begin(self._broker.security, mechanism, self._listener.name)
        self._wanted, self.takes_raw = mechanism, raw
        return True

    def is_asked_for(self, mechanism: str = "") -> bool:
        """Whether SASL may be spoken here at all; brokers know each other by it wherever it matters who a client is."""
        return self._listener.sasl or mechanism == BETWEEN_BROKERS or bool(self._wanted)

    async def authenticate(self, said: bytes, address: str = "") -> Answered:
        """Take what the client says by its mechanism, and return what to answer.

        A refusal (`AuthenticationFailed`) comes only after ``connection.failed.authentication.delay.ms``.
        """
        exchange = self._exchange
        if exchange is None:
            self.failure = "SaslAuthenticate without SaslHandshake"
            raise AuthenticationFailed(self.failure)
        try:
            answer = await exchange.take(said, address)
            if exchange.proof is None:
                return Answered(answer, 0)
            self._check_same(exchange.proof)
            home = await self._home_of(exchange.proof)
        except AuthenticationFailed as error:
            self._exchange, self.takes_raw = None, False
            delay_ms = self._broker.settings.security.connection_failed_authentication_delay_ms
            await asyncio.sleep(delay_ms / 1000)
            self.failure = f"authentication failed: {error}"
            raise
        self._exchange, self.takes_raw = None, False
        self.user, self.home, self._mechanism = exchange.proof.user, home, self._wanted
        self._be(exchange.proof.principal)
        return Answered(answer, self._session_ms())

    async def _home_of(self, proof: Proof) -> Home | None:
        if self._tenancy is None:
            return None
        if proof.principal.method == BETWEEN_BROKERS:
            return await self._tenancy.home(proof.home) if proof.home else None
        role, home = proof.principal.role, proof.home or self._broker.naming.tenant
        access = self._broker.security.authorization.access(role, self._host)
        # Whose grants end at other tenants has nothing to do with the groups of this one.
        if not may(access, Right.enter, Tenant(home.partition("/")[0])):
            raise AuthenticationFailed(f"Authentication failed: {role} has no grant in tenant of {home}")
        try:
            return await self._tenancy.home(home)
        except InvalidTopic:
            raise AuthenticationFailed(
                f"Authentication failed: there is no tenant or namespace {home}"
            ) from None

    def _check_same(self, proof: Proof) -> None:
        before = self.principal
        if before is None or not (self._listener.sasl or before.method):
            return  # nobody yet, or somebody in particular now
        if self._mechanism and self._wanted != self._mechanism:
            raise AuthenticationFailed(
                f"SASL mechanism '{self._wanted}' requested by client is not supported for re-authentication of "
                f"mechanism '{self._mechanism}'"
            )
        if (before.role, self.user) != (proof.principal.role, proof.user):
            raise AuthenticationFailed(
                f"Cannot change principals during re-authentication from {before.role}: {proof.principal.role}"
            )

    def _be(self, principal: Principal) -> None:
        self.principal = principal
        authorization = self._broker.security.authorization
        if principal.method == BETWEEN_BROKERS:
            self.access = OtherBroker(authorization, self._host) if authorization.enabled else None
        else:
            self.access = authorization.access(principal.role, self._host)
        ends = [principal.expires_at_s] if principal.expires_at_s is not None else []
        own = self._broker.settings.at(self._listener.name).of(KafkaSettings)
        longest_ms = own.connections_max_reauth_ms
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
    host: str = "",
) -> Login | None:
    """Return where a new connection stands; None if no client needs to say who it is, and all may do everything."""
    authentication = broker.security.authentication
    try:
        if certificate and authentication.takes_certificates and not listener.protocol.startswith("SASL_"):
            principal = authentication.by_certificate(certificate, listener.name)
            return Login(broker, listener, principal, host=host)
        if authentication.enabled and not listener.sasl:
            return Login(broker, listener, authentication.anonymous(), host=host)
    except AuthenticationFailed as error:
        _log.warning("a client is not let in: %s", error)
        return Login(broker, listener, None)
    return Login(broker, listener, None, tenancy=tenancy, host=host) if listener.sasl else None
