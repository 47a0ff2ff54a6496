"""Whom one of Pulsar's proxies asks for: its ``original_principal`` in CONNECT, ``X-Original-Principal`` over HTTP.

    the connection's role     names another          names itself           names nobody
    one of ``proxyRoles``     both are asked about    refused                refused
    any other                 refused                 it is itself           it is itself

With ``authenticateOriginalAuthData`` the client's own proof comes with CONNECT, and what that proves is its name.

As in Pulsar, only where there is authorization; and no proxy speaks for a proxy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from magnetar.auth.authentication import AuthenticationFailed, Principal
from magnetar.settings.security import SecuritySettings

ORIGINAL_PRINCIPAL_HEADER = "x-original-principal"


class OriginalProof(NamedTuple):
    """What a proxy forwards of its client: by which method it proves who it is, and with what."""

    method: str
    data: str


class InvalidOriginalPrincipal(AuthenticationFailed):
    """A role that may not speak for whom it names, or names nobody and must."""


def behind(principal: Principal, original: str, settings: SecuritySettings) -> Principal:
    """Return who asks, if ``principal`` has proved itself and names ``original``; raise `InvalidOriginalPrincipal`."""
    if not settings.authorization_enabled:
        return principal
    original = original.strip()
    if principal.role in settings.proxy_roles:
        if not original:
            raise InvalidOriginalPrincipal(
                f"{principal.role} is a proxy's role, and names no original principal"
            )
        if original in settings.proxy_roles:
            raise InvalidOriginalPrincipal(f"{principal.role} names {original}, a proxy's role")
        return replace(principal, role=original, proxy=principal.role)
    if original not in ("", principal.role):
        raise InvalidOriginalPrincipal(f"{principal.role} is no proxy's role, and names {original}")
    return principal
