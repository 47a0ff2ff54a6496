"""The client behind a Pulsar proxy: ``original_principal`` in CONNECT, ``X-Original-Principal`` over HTTP.

    the connection's role     names another          names itself           names no role
    one of ``proxyRoles``     both are checked       refused                refused
    any other                 refused                 it is itself           it is itself

With ``authenticateOriginalAuthData`` the client's own credentials come with CONNECT, and they determine its role.

As in Pulsar, only where there is authorization; and no proxy speaks for a proxy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from magnetar.auth.authentication import AuthenticationFailed, Principal
from magnetar.settings.security import SecuritySettings

ORIGINAL_PRINCIPAL_HEADER = "x-original-principal"


class OriginalProof(NamedTuple):
    """The credentials of a client that a proxy forwards, and their authentication method."""

    method: str
    data: str


class InvalidOriginalPrincipal(AuthenticationFailed):
    """A role that may not act for the role it names, or names none and must."""


def behind(principal: Principal, original: str, settings: SecuritySettings) -> Principal:
    """Return the client, if ``principal`` is authenticated and names ``original``; raise `InvalidOriginalPrincipal`."""
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
