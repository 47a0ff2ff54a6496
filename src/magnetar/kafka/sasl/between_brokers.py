"""How one broker of a cluster proves to another that it is one: by a password that only the metadata store tells."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from magnetar.auth import AuthenticationFailed, Principal
from magnetar.auth.authorization import OtherBroker
from magnetar.auth.scram import MECHANISMS, ScramExchange, ScramRefused
from magnetar.kafka.sasl.exchange import Proof
from magnetar.wire.kafka.mechanisms import BETWEEN_BROKERS

if TYPE_CHECKING:
    from magnetar.auth.security import Security

_MECHANISM = MECHANISMS["SCRAM-SHA-256"]


class BrokerLogin:
    """SCRAM-SHA-256 with the one password. Whoever has it may do what brokers ask of each other, and nothing else.

    A name with a slash is the namespace where those are at home whom it asks for.
    """

    def __init__(self, security: Security, mechanism: str, listener: str = "") -> None:
        assert mechanism == BETWEEN_BROKERS
        self._users = security.scram
        self._exchange = ScramExchange(_MECHANISM)
        self._challenged = False
        self.proof: Proof | None = None

    async def take(self, said: bytes, address: str) -> bytes:
        """Take the next message, and return the challenge, or this broker's own proof."""
        try:
            if not self._challenged:
                self._challenged = True
                self._exchange.begin(said)
                # Made once: strangers must not have it made again and again.
                credential = await asyncio.to_thread(self._users.credential_of_brokers)
                return self._exchange.challenge(credential)
            answer = self._exchange.final(said)
        except ScramRefused:
            raise AuthenticationFailed("Authentication failed: this is no broker of the cluster") from None
        user = self._exchange.user
        home = user if "/" in user else ""
        self.proof = Proof(Principal(OtherBroker.ROLE, BETWEEN_BROKERS), user, home)
        return answer
