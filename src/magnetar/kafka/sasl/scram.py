"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (KIP-84) with the users that AlterUserScramCredentials keeps (KIP-554)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from magnetar.broker.auth import AuthenticationFailed, Principal
from magnetar.broker.auth.scram import MECHANISMS, Credential, ScramExchange, ScramRefused
from magnetar.kafka.sasl.exchange import Proof

if TYPE_CHECKING:
    from magnetar.broker.core import Broker

_log = logging.getLogger("magnetar.auth")


class ScramLogin:
    """Two messages: whom the client wants to be, and its proof. Whether there is such a user shows with neither."""

    def __init__(self, broker: Broker, mechanism: str) -> None:
        self._users = broker.security.scram
        self._mechanism = MECHANISMS[mechanism]
        self._exchange = ScramExchange(self._mechanism, self._credential)
        self._challenged = False
        self.proof: Proof | None = None

    async def take(self, said: bytes, address: str) -> bytes:
        """Take the next message, and return the challenge, or the broker's own proof."""
        try:
            if not self._challenged:
                self._challenged = True
                return self._exchange.first(said)
            answer = self._exchange.final(said)
        except ScramRefused as error:
            user = self._exchange.user
            _log.warning("%s of user %r failed: %s", self._mechanism.name, user, error)
            # Clients are told this, too, and must not learn who is a user.
            raise AuthenticationFailed(
                f"Authentication failed during authentication due to invalid credentials with SASL mechanism "
                f"{self._mechanism.name}"
            ) from None
        self.proof = Proof(Principal(self._exchange.user, self._mechanism.name), self._exchange.user)
        return answer

    def _credential(self, user: str, by_token: bool) -> Credential:
        found = None if by_token else self._users.credential(self._mechanism, user)
        return self._users.stand_in(self._mechanism, user) if found is None else found
