"""Who asks for delegation tokens, as their four requests have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.errors import InvalidPrincipalType, TokenRequestNotAllowed

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

USER = "User"


def asker(context: RequestContext) -> str:
    """Return the role that asks; raise `TokenRequestNotAllowed` for nobody, and who came by a token himself."""
    principal = None if context.login is None else context.login.principal
    if principal is None or not principal.method or principal.by_token:
        raise TokenRequestNotAllowed(
            "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on delegation token "
            "authenticated channels."
        )
    return principal.role


def role_of(kind: str | None, name: str | None) -> str:
    """Return the role that a principal is; raise `InvalidPrincipalType`."""
    if kind != USER or not name:
        raise InvalidPrincipalType("Supplied principalType is not supported.")
    return name
