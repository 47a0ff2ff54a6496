"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (KIP-84) with the users that AlterUserScramCredentials keeps (KIP-554)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from magnetar.auth import AuthenticationFailed, Principal
from magnetar.auth.delegation_tokens import DelegationToken
from magnetar.auth.scram import MECHANISMS, Credential, ScramExchange, ScramRefused
from magnetar.kafka.sasl.exchange import Proof
from magnetar.ledger.port import wall_clock_ms

if TYPE_CHECKING:
    from magnetar.auth.security import Security

_log = logging.getLogger("magnetar.auth")


class ScramLogin:
    """Two messages: whom the client wants to be, and its proof. Whether there is such a user shows with neither."""

    def __init__(self, security: Security, mechanism: str, listener: str = "") -> None:
        self._users = security.scram
        self._mechanism = MECHANISMS[mechanism]
        self._tokens = security.delegation_tokens
        self._token: DelegationToken | None = None
        self._exchange = ScramExchange(self._mechanism)
        self._challenged = False
        self.proof: Proof | None = None

    async def take(self, said: bytes, address: str) -> bytes:
        """Take the next message, and return the challenge, or the broker's own proof."""
        try:
            if not self._challenged:
                self._challenged = True
                self._exchange.begin(said)
                return self._exchange.challenge(await self._credential())
            answer = self._exchange.final(said)
        except ScramRefused as error:
            user = self._exchange.user
            _log.warning("%s of user %r failed: %s", self._mechanism.name, user, error)
            # Clients are told this, too, and must not learn who is a user.
            raise AuthenticationFailed(
                f"Authentication failed during authentication due to invalid credentials with SASL mechanism "
                f"{self._mechanism.name}"
            ) from None
        principal = self._principal()
        # By another token of the same owner it is the same client that authenticates again, as with Kafka.
        self.proof = Proof(principal, principal.role)
        return answer

    def _principal(self) -> Principal:
        token = self._token
        if token is None:
            return Principal(self._exchange.user, self._mechanism.name)
        if self._tokens.by_id(token.id, wall_clock_ms()) is None:
            raise AuthenticationFailed("Authentication failed: the delegation token has ended")
        return Principal(token.owner, self._mechanism.name, token.expires_ms / 1000, by_token=True)

    async def _credential(self) -> Credential:
        user, mechanism = self._exchange.user, self._mechanism
        if not self._exchange.by_token:
            return self._users.credential(mechanism, user) or self._users.stand_in(mechanism, user)
        self._token = self._tokens.by_id(user, wall_clock_ms())
        if self._token is None:
            return self._users.stand_in(mechanism, user)
        return await asyncio.to_thread(self._tokens.credential, self._token, mechanism)
