"""SASL OAUTHBEARER (RFC 7628, KIP-255): a token, as Pulsar's clients show, in SASL's words.

    client  n,,^Aauth=Bearer <token>^A^A                      ^A is the byte 1
    broker                                                    nothing: it is let in
    broker  {"status":"invalid_token"}                        or why it is not, which the client confirms with ^A

Where clients have tenants for homes, the extension ``tenant`` names one (``tenant=red^A`` before the end), or KoP's
``__with_tenant_red`` behind the token.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING

from magnetar.auth import AuthenticationFailed
from magnetar.auth.authentication import TOKEN
from magnetar.kafka.sasl.exchange import Proof

if TYPE_CHECKING:
    from magnetar.auth.security import Security

_FIRST = re.compile(
    rb"n,(?:a=(?P<behalf>(?:[^=,\0\x01]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*)\x01"
)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
_CONFIRMED = b"\x01"
_TENANT, _KOP_TENANT = "tenant", "__with_tenant_"
_log = logging.getLogger("magnetar.auth")


class BearerLogin:
    """One message with the token; a refused one is answered first, and refused once the client has seen that."""

    def __init__(self, security: Security, mechanism: str, listener: str = "") -> None:
        self._security = security
        self._refusal = ""
        self.proof: Proof | None = None

    async def take(self, said: bytes, address: str) -> bytes:
        """Take a token and return nothing, or why it is not taken."""
        if self._refusal:
            raise AuthenticationFailed(self._refusal)
        behalf, token, tenant = parse_bearer(said)
        authentication = self._security.authentication
        try:
            principal = await authentication.prove(TOKEN, token, address=address)
        except AuthenticationFailed as error:
            _log.warning("OAUTHBEARER: %s", error)
            self._refusal = self._invalid()
            return self._refusal.encode()
        if behalf not in ("", principal.role):
            raise AuthenticationFailed(
                f"Authentication failed: Client requested an authorization id ({behalf}) that is different from the "
                f"token's principal name ({principal.role})"
            )
        self.proof = Proof(principal, principal.role, tenant)
        return b""

    def _invalid(self) -> str:
        """Return the answer of RFC 7628, 3.2.2. It says no more, for nobody knows who asks."""
        scopes = " ".join(self._security.token_scopes)
        told = {"status": "invalid_token"} | ({"scope": scopes} if scopes else {})
        return json.dumps(told, separators=(",", ":"))


def parse_bearer(said: bytes) -> tuple[str, str, str]:
    """Return on whose behalf (empty for the token's own), the token and the tenant; raise `AuthenticationFailed`."""
    found = _FIRST.fullmatch(said)
    if found is None:
        raise AuthenticationFailed("Invalid OAUTHBEARER client first message")
    pairs: dict[str, str] = {}
    for pair in found["pairs"].split(_CONFIRMED)[:-1]:
        name, _, value = pair.decode().partition("=")
        pairs[name] = value
    auth = _AUTH.fullmatch(pairs.pop("auth", ""))
    if auth is None:
        raise AuthenticationFailed("Invalid OAUTHBEARER client first message: 'auth' not specified")
    if auth["scheme"].lower() != "bearer":
        raise AuthenticationFailed(
            f"Invalid scheme in OAUTHBEARER client first message: {auth['scheme'][:40]}"
        )
    token, _, tenant = auth["token"].partition(_KOP_TENANT)
    try:
        behalf = (found["behalf"] or b"").decode().replace("=2C", ",").replace("=3D", "=")
    except UnicodeDecodeError:
        raise AuthenticationFailed("Invalid OAUTHBEARER client first message: not UTF-8") from None
    return behalf, token, pairs.get(_TENANT, tenant)
