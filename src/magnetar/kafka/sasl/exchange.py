"""What the mechanisms of SASL have in common."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from magnetar.auth import Principal


class Proof(NamedTuple):
    """What a client has proved by SASL."""

    principal: Principal
    user: str
    """The name it goes by, which stays the same when it authenticates again."""
    home: str = ""
    """The tenant, or ``tenant/namespace``, that it calls its home; empty for the default one."""


class Exchange(Protocol):
    """One authentication by one mechanism."""

    proof: Proof | None
    """Set when the client needs to say nothing more."""

    async def take(self, said: bytes, address: str) -> bytes:
        """Take what the client says and return what to answer; raise `AuthenticationFailed`.

        ``address`` is the host that the client speaks from.
        """
