"""Authentication: Pulsar's methods, which Kafka's SASL PLAIN carries, too."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from magnetar.auth.certificates import distinguished_name, role_of
from magnetar.base.errors import BrokerError, InvalidConfig
from magnetar.base.setting import plain
from magnetar.settings.principal_rules import principal_of, rules_of
from magnetar.settings.security import SecuritySettings

if TYPE_CHECKING:
    from magnetar.auth.basic import Passwords, WrongPassword
    from magnetar.auth.tokens import TokenVerifier

TOKEN, TLS, BASIC = "token", "tls", "basic"
METHODS = (TOKEN, TLS, BASIC)
_CLASSES = {
    "org.apache.pulsar.broker.authentication.authenticationprovidertoken": TOKEN,
    "org.apache.pulsar.broker.authentication.authenticationprovidertls": TLS,
    "org.apache.pulsar.broker.authentication.authenticationproviderbasic": BASIC,
    "org.apache.pulsar.broker.authentication.oidc.authenticationprovideropenid": TOKEN,
} | {method: method for method in METHODS}
_log = logging.getLogger("magnetar.auth")


class AuthenticationFailed(BrokerError):
    """The client did not authenticate; the message is for the log, and reveals nothing secret."""


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated client. ``expires_at_s`` (since 1970) is when its credentials expire; None is never."""

    role: str
    method: str
    expires_at_s: float | None = None
    by_token: bool = False
    """Whether it authenticated with a delegation token: such a client may not create tokens."""
    proxy: str = ""
    """The role of the proxy that authenticated instead of the client; empty if the client did."""


class Authentication:
    """Checks the credentials of clients. ``enabled``: whether every client must show some."""

    def __init__(
        self,
        settings: SecuritySettings,
        given: frozenset[str] = frozenset(),
        by_listener: Mapping[str, SecuritySettings] | None = None,
    ) -> None:
        """``by_listener`` are the settings of Kafka listeners that have some of their own, by folded names.

        Raise `InvalidConfig` for invalid keys and providers.
        """
        self.enabled = settings.knows_clients
        everywhere = (settings, *(by_listener or {}).values())
        # The modules that check tokens and passwords are loaded only where there are some.
        self._tokens: TokenVerifier | None = None
        if _takes_tokens(settings):
            from magnetar.auth.tokens import TokenVerifier

            self._tokens = TokenVerifier(settings, given)
        self._passwords: Passwords | None = None
        if settings.takes_passwords:
            from magnetar.auth.basic import Passwords
            from magnetar.auth.jaas import users_of

            jaas = settings.plain_sasl_jaas_config
            self._passwords = Passwords(settings.basic_auth_conf, users_of(jaas) if jaas else {})
        self.methods = self._methods(settings, trusts=any(each.trusts_clients for each in everywhere))
        self._anonymous = settings.unnamed_role
        self._at_listeners = {name: _OfListener(own, settings) for name, own in (by_listener or {}).items()}
        self._at_all = _OfListener(settings)
        takes_scram = any(each.takes_scram for each in everywhere)
        if self.enabled and not (self.methods or self._anonymous or takes_scram):
            raise InvalidConfig(
                "authentication.enabled asks for a way to authenticate: set token.secret.key, token.public.key or "
                "token.jwks, basic.auth.conf or plain.sasl.jaas.config, tls.trust.certs.file.path for client "
                "certificates, or name a mechanism of SCRAM in sasl.enabled.mechanisms"
            )

    def _methods(self, settings: SecuritySettings, *, trusts: bool) -> tuple[str, ...]:
        named = [_method(name) for name in settings.authentication_providers]
        has_keys = self._tokens is not None and self._tokens.has_keys
        if TOKEN in named and not has_keys:
            raise InvalidConfig(
                "authentication.providers names tokens, but no key of theirs is set: "
                "token.secret.key, token.public.key, token.jwks or token.issuers"
            )
        if BASIC in named and self._passwords is None:
            raise InvalidConfig(
                "authentication.providers names basic, but neither basic.auth.conf nor plain.sasl.jaas.config is set"
            )
        possible = {TOKEN: has_keys, TLS: trusts, BASIC: self._passwords is not None}
        return tuple(method for method in METHODS if (method in named if named else possible[method]))

    def authenticate(
        self, method: str, data: str | bytes, certificate: Mapping[str, Any] | None = None
    ) -> Principal:
        """Return who the client is, or raise `AuthenticationFailed`.

        ``method`` and ``data`` are those of Pulsar's CONNECT (``token``: the token; ``tls``: nothing; ``basic``:
        ``user:password``, which may take long: see `prove`).
        ``certificate`` is what the TLS layer verified, as ``ssl.SSLSocket.getpeercert()`` gives it.
        """
        if method in ("", "none"):
            return self.anonymous()
        if method not in self.methods:
            raise AuthenticationFailed(f"authentication method {method!r} is not served")
        if method == TLS:
            return self.by_certificate(certificate)
        if method == BASIC:
            return self._by_password(data)
        from magnetar.auth.tokens import TokenInvalid

        assert self._tokens is not None
        try:
            token = self._tokens.verify(_token(data))
        except TokenInvalid as error:
            raise AuthenticationFailed(f"invalid token: {error}") from None
        return Principal(token.role, TOKEN, token.expires_at_s)

    def takes_time(self, method: str, data: str | bytes) -> bool:
        """True if `prove` has to wait: for a password's hash, or for the keys of a token's issuer."""
        if method != TOKEN or TOKEN not in self.methods:
            return method == BASIC
        try:
            return self._tokens is not None and self._tokens.is_coming(_token(data))
        except AuthenticationFailed:
            return False

    async def prove(
        self,
        method: str,
        data: str | bytes,
        certificate: Mapping[str, Any] | None = None,
        *,
        address: str = "",
    ) -> Principal:
        """Return who the client is, or raise `AuthenticationFailed`; other clients do not wait meanwhile.

        ``address`` is the client's host: slow checks are shared fairly between hosts.
        """
        passwords = self._passwords
        if method == TOKEN and TOKEN in self.methods and self._tokens is not None:
            await self._tokens.prepare(_token(data))
        if method != BASIC or passwords is None or BASIC not in self.methods:
            return self.authenticate(method, data, certificate)
        from magnetar.auth.basic import WrongPassword

        try:
            return Principal(await passwords.prove(_text(data), address), BASIC)
        except WrongPassword as error:
            raise _wrong(error) from None

    async def of_header(
        self,
        given: str,
        certificate: Mapping[str, Any] | None = None,
        *,
        method: str = "",
        address: str = "",
    ) -> Principal:
        """Return the client of an HTTP request, by its Authorization header or a verified certificate.

        Where the client names its ``method``, one that is not served is refused, as for the binary protocol.
        """
        if method not in ("", "none", *self.methods):
            raise AuthenticationFailed(f"authentication method {method!r} is not served")
        scheme, _, proof = given.partition(" ")
        if scheme.lower() == "bearer" and proof:
            return await self.prove(TOKEN, proof)
        if scheme.lower() == "basic" and proof:
            try:
                said = base64.b64decode(proof, validate=True)
            except ValueError:
                raise AuthenticationFailed("an Authorization header that is not base64") from None
            return await self.prove(BASIC, said, address=address)
        if certificate and TLS in self.methods:
            return self.by_certificate(certificate)
        return self.anonymous()

    def _by_password(self, data: str | bytes) -> Principal:
        from magnetar.auth.basic import WrongPassword

        assert self._passwords is not None
        try:
            return Principal(self._passwords.check(_text(data)), BASIC)
        except WrongPassword as error:
            raise _wrong(error) from None

    def users_at(self, listener: str) -> Mapping[str, str] | None:
        """Return the passwords by user for SASL PLAIN at a Kafka listener; None: those for all listeners."""
        own = self._at_listeners.get(plain(listener))
        return None if own is None else own.users

    def by_certificate(self, certificate: Mapping[str, Any] | None, listener: str = "") -> Principal:
        """Return the client that a verified certificate names: by its common name, as in Pulsar, or by Kafka's rules.

        ``listener`` is a Kafka listener, which may have rules of its own.
        """
        if not self.takes_certificates:
            raise AuthenticationFailed("client certificates are not among authentication.providers")
        if not certificate:
            raise AuthenticationFailed("the client has shown no certificate")
        rules = self._at_listeners.get(plain(listener), self._at_all).rules
        if not rules:
            role = role_of(certificate)
            if role is None:
                raise AuthenticationFailed("the client has shown no certificate with a common name")
            return Principal(role, TLS)
        name = distinguished_name(certificate)
        role = principal_of(name, rules)
        if not role:
            raise AuthenticationFailed(f"no rule of ssl.principal.mapping.rules fits {name!r}")
        return Principal(role, TLS)

    @property
    def takes_certificates(self) -> bool:
        """True if clients may authenticate with certificates."""
        return not self.enabled or TLS in self.methods

    @property
    def takes_anonymous(self) -> bool:
        """True if clients without credentials have a role."""
        return bool(self._anonymous)

    def anonymous(self) -> Principal:
        """Return the principal of clients without credentials; raise `AuthenticationFailed` if they are refused."""
        if self.enabled and not self._anonymous:
            raise AuthenticationFailed("the client does not say who it is")
        return Principal(self._anonymous, "")


class _OfListener:
    """The settings that may differ between listeners."""

    def __init__(self, settings: SecuritySettings, general: SecuritySettings | None = None) -> None:
        self.rules = rules_of(settings.principal_rules)
        self.users: Mapping[str, str] | None = None
        jaas = settings.plain_sasl_jaas_config
        if general is not None and jaas and jaas != general.plain_sasl_jaas_config:
            from magnetar.auth.jaas import users_of

            self.users = users_of(jaas)


def _takes_tokens(settings: SecuritySettings) -> bool:
    """True if any setting of tokens is set; there may still be no keys."""
    return bool(
        settings.token_secret_key
        or settings.token_public_key
        or settings.token_jwks
        or settings.token_issuers
        or settings.token_audience_claim
        or settings.token_audience
    )


def names_certificates(settings: SecuritySettings) -> bool:
    """True if ``authentication.providers`` accepts certificates; an empty list accepts all methods."""
    named = [_method(name) for name in settings.authentication_providers]
    return not named or TLS in named


def _wrong(error: WrongPassword) -> AuthenticationFailed:
    _log.warning("basic authentication failed: %s", error)
    # This text goes to clients, too.
    return AuthenticationFailed("Authentication failed: unknown user or wrong password")


def _token(data: str | bytes) -> str:
    return _text(data).removeprefix("token:").strip()


def _text(data: str | bytes) -> str:
    try:
        return data if isinstance(data, str) else data.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("what the client says is not UTF-8") from None


def _method(name: str) -> str:
    found = _CLASSES.get(name.lower())
    if found is None:
        raise InvalidConfig(
            f"Invalid value {name} for configuration authentication.providers: served are token, tls and basic "
            "(org.apache.pulsar.broker.authentication.AuthenticationProviderToken, ...ProviderTls, ...ProviderBasic)"
        )
    return found
