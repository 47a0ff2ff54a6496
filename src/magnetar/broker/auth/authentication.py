"""Who somebody is: Pulsar's authentication methods, which Kafka's SASL PLAIN carries too."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from magnetar.broker.auth.certificates import role_of
from magnetar.broker.auth.tokens import TokenInvalid, TokenVerifier
from magnetar.broker.errors import BrokerError, InvalidConfig
from magnetar.broker.security_settings import SecuritySettings

TOKEN, TLS = "token", "tls"
METHODS = (TOKEN, TLS)
_CLASSES = {
    "org.apache.pulsar.broker.authentication.authenticationprovidertoken": TOKEN,
    "org.apache.pulsar.broker.authentication.authenticationprovidertls": TLS,
} | {method: method for method in METHODS}
_log = logging.getLogger("magnetar.auth")


class AuthenticationFailed(BrokerError):
    """The client did not prove who it is; the message is for the log, and tells nothing secret."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who proved it. ``expires_at_s`` (since 1970) is when the proof ends; None is never."""

    role: str
    method: str
    expires_at_s: float | None = None


class Authentication:
    """Checks what clients show. ``enabled`` tells whether everybody must show something."""

    def __init__(self, settings: SecuritySettings) -> None:
        """Raise `InvalidConfig` for keys and providers that cannot be."""
        self.enabled = settings.authentication_enabled
        self.tokens = TokenVerifier(settings)
        self.methods = self._methods(settings)
        self._anonymous = settings.anonymous_user_role
        if self.enabled and not self.methods and not self._anonymous:
            raise InvalidConfig(
                "authentication.enabled asks for a way to authenticate: set token.secret.key, token.public.key or "
                "token.jwks, or tls.trust.certs.file.path for client certificates"
            )

    def _methods(self, settings: SecuritySettings) -> tuple[str, ...]:
        named = [_method(name) for name in settings.authentication_providers]
        if TOKEN in named and not self.tokens.has_keys:
            raise InvalidConfig(
                "authentication.providers names tokens, but no key of theirs is set: "
                "token.secret.key, token.public.key or token.jwks"
            )
        trusts = (
            settings.tls_trust_certs_file_path
            or settings.ssl_truststore_location
            or settings.ssl_truststore_certificates
        )
        possible = {TOKEN: self.tokens.has_keys, TLS: bool(trusts)}
        return tuple(method for method in METHODS if (method in named if named else possible[method]))

    def authenticate(
        self, method: str, data: str | bytes, certificate: Mapping[str, Any] | None = None
    ) -> Principal:
        """Give who the client is, or raise `AuthenticationFailed`.

        ``method`` and ``data`` are those of Pulsar's CONNECT (``token``: the token; ``tls``: nothing).
        ``certificate`` is what the TLS layer verified, as ``ssl.SSLSocket.getpeercert()`` gives it.
        """
        if method in ("", "none"):
            return self.anonymous()
        if method not in self.methods:
            raise AuthenticationFailed(f"authentication method {method!r} is not served")
        if method == TLS:
            return self.by_certificate(certificate)
        try:
            text = data if isinstance(data, str) else data.decode()
            token = self.tokens.verify(text.removeprefix("token:").strip())
        except (TokenInvalid, UnicodeDecodeError) as error:
            raise AuthenticationFailed(f"invalid token: {error}") from None
        return Principal(token.role, TOKEN, token.expires_at_s)

    def by_certificate(self, certificate: Mapping[str, Any] | None) -> Principal:
        """Give whom a verified client certificate names: its common name is the role, as in Pulsar."""
        role = role_of(certificate) if certificate else None
        if role is None:
            raise AuthenticationFailed("the client has shown no certificate with a common name")
        return Principal(role, TLS)

    def anonymous(self) -> Principal:
        """Give who clients are that show nothing, or raise `AuthenticationFailed` if they are not let in."""
        if self.enabled and not self._anonymous:
            raise AuthenticationFailed("the client does not say who it is")
        return Principal(self._anonymous, "")


def _method(name: str) -> str:
    found = _CLASSES.get(name.lower())
    if found is None:
        raise InvalidConfig(
            f"Invalid value {name} for configuration authentication.providers: served are token and tls "
            "(org.apache.pulsar.broker.authentication.AuthenticationProviderToken, ...AuthenticationProviderTls)"
        )
    return found
