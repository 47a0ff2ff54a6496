"""SASL PLAIN (RFC 4616): a user and a password, as in Kafka, or KoP's convention.

There the user is a tenant, and the password says by which of Pulsar's methods: a token, or a user with a password.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from magnetar.auth import AuthenticationFailed, Principal
from magnetar.auth.authentication import BASIC, TOKEN
from magnetar.kafka.sasl.exchange import Proof

if TYPE_CHECKING:
    from magnetar.auth.security import Security

_FORMS = {TOKEN: "token:<JSON Web Token>", BASIC: "basic:<user>:<password>"}
"""What a password of SASL PLAIN looks like, by the method of authentication that it stands for."""
_TOKEN_FORM = f"{TOKEN}:"
_log = logging.getLogger("magnetar.auth")


class PlainExchange:
    """One message: who, and the proof."""

    def __init__(self, security: Security, mechanism: str, listener: str = "") -> None:
        self._authentication = security.authentication
        self._users = self._authentication.users_at(listener)
        self.proof: Proof | None = None

    async def take(self, said: bytes, address: str) -> bytes:
        """Take user and password; there is nothing to answer."""
        user, password = parse_plain(said)
        if self._users is not None and not password.startswith(_TOKEN_FORM):
            self.proof = self._by_own_users(user, password, self._users)
            return b""
        method, proof, home = _proof_of(user, password, self._authentication.methods)
        principal = await self._authentication.prove(method, proof, address=address)
        self.proof = Proof(principal, home or principal.role, home)
        return b""

    def _by_own_users(self, user: str, password: str, users: Mapping[str, str]) -> Proof:
        """Where a listener has users of its own, only those are let in by a password."""
        known = users.get(user, "")
        if not known or not hmac.compare_digest(known.encode(), password.encode()):
            _log.warning("SASL PLAIN failed: wrong password or unknown user %r of this listener", user)
            raise AuthenticationFailed("Authentication failed: unknown user or wrong password")
        return Proof(Principal(user, BASIC), user, "")


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


def _proof_of(user: str, password: str, served: Collection[str]) -> tuple[str, str, str]:
    """Return the method of authentication, what is shown by it, and the tenant, which only KoP's convention names."""
    method, separator, proof = password.partition(":")
    if separator and method in _FORMS:
        if method in served:
            return method, proof, user
    elif BASIC in served:
        return BASIC, f"{user}:{password}", ""
    forms = [form for each, form in _FORMS.items() if each in served] or [_FORMS[TOKEN]]
    raise AuthenticationFailed(f"Authentication failed: the password must be {' or '.join(forms)}")
