"""The cluster as one client sees it that has logged in by SCRAM, of which nothing can be said again.

The connection on which it was let in is its own. When it needs another one, a delegation token (KIP-48) is asked for
there, in its name, and opens that. A token lasts for minutes and is not renewed: who still needs one when half of its
time has passed is given another, and the one before is ended. So nothing that is left behind outlives those minutes,
and nobody but this client's connections ever has it.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any, NamedTuple

from magnetar.client.errors import BrokerRefused, BrokerUnreachable, ClientError, check
from magnetar.client.forwarding import ForwardingConnection
from magnetar.client.security import ClientSecurity
from magnetar.proxy.kafka.brokers import Brokers
from magnetar.proxy.kafka.routes import Address, Routes
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.create_delegation_token_request import CreateDelegationTokenRequest
from magnetar.wire.kafka.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from magnetar.wire.kafka.messages.expire_delegation_token_request import ExpireDelegationTokenRequest

GONE = "the broker that has let it in has gone, it must log in anew"
_AT_ONCE_MS = -1
_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_KNOWN_EVERYWHERE_S = 5.0
"""A broker that refuses a token that is older knows that it has been ended; before that it may not have heard of it."""


class LoginEnded(ClientError):
    """There is no way to further brokers for this client: it has to log in anew."""


class _Token(NamedTuple):
    id: str
    hmac: bytes
    made_s: float
    half_s: float
    ends_s: float
    """By the loop's clock."""


class DelegatedBrokers(Brokers):
    """Of one client, whose ``own`` connection ends with it. ``on_end`` is told why it cannot go on."""

    def __init__(
        self,
        likeness: Brokers,
        security: ClientSecurity,
        own: ForwardingConnection,
        routes: Routes,
        lifetime_ms: int,
    ) -> None:
        """``security`` has the mechanism; ``likeness`` are the same brokers as others see them."""
        super().__init__(
            likeness._bootstrap,
            security,
            connect_s=likeness.connect_s,
            request_s=likeness.request_s,
            idle=0,
            opened=likeness._opened,
            routes=routes,
        )
        self.own = own
        self.on_end: Callable[[str], None] = _nobody
        self._asker = own
        self._lifetime_ms = lifetime_ms
        self._token: _Token | None = None
        self._making = asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    async def security(self) -> ClientSecurity:
        """Return what a token opens connections with. Raises `LoginEnded`."""
        return self._by(await self._token_now())

    def _by(self, token: _Token) -> ClientSecurity:
        own = self._settings.security
        return ClientSecurity(
            tls=own.tls,
            trusted=own.trusted,
            certificate=own.certificate,
            key=own.key,
            any_name=own.any_name,
            mechanism=own.mechanism,
            username=token.id,
            password=base64.b64encode(token.hmac).decode(),
            tokenauth=True,
        )

    async def connect(self, address: Address) -> ForwardingConnection:
        """Return a connection to a broker, which may have to hear of the token first."""
        give_up_s, pause_s = self._loop.time() + self.connect_s, _PAUSE_S
        while True:
            try:
                return await self._open(address)
            except BrokerRefused as error:
                now, token = self._loop.time(), self._token
                if error.code != ErrorCode.SASL_AUTHENTICATION_FAILED or now > give_up_s:
                    raise
                if token is not None and now > token.made_s + _KNOWN_EVERYWHERE_S:
                    self._end_token()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def give_back(self, connection: ForwardingConnection, address: Address, now: float) -> None:
        """Close a connection: nobody else may have it. With the client's own ends the token, too."""
        if connection is self.own:
            self._end_token()
        connection.finish()

    def _end_token(self) -> None:
        if self._token is not None:
            self.own.tell(_ending(self._token))
            self._token = None

    def close(self) -> None:
        """The connections are the client's; nothing is kept."""

    # -- tokens

    async def _token_now(self) -> _Token:
        """Return a token of which half the time is left; raise `LoginEnded` where none can be had."""
        async with self._making:
            before = self._token
            now = self._loop.time()
            if before is not None and now < before.half_s:
                return before
            try:
                self._token = await self._make()
            except BrokerUnreachable:
                # The client's own connection has gone, not the client: what it has lasts for a while.
                if before is not None and now < before.ends_s:
                    return before
                raise self._ended(GONE) from None
            except BrokerRefused as error:
                raise self._ended(str(error)) from None
            if before is not None:
                self.own.tell(_ending(before))
            return self._token

    async def _make(self) -> _Token:
        now = self._loop.time()
        made: Any = await self._own_answer(CreateDelegationTokenRequest(max_lifetime_ms=self._lifetime_ms))
        check(made.error_code, f"a delegation token of {self.own.place}")
        lasts_s = (made.expiry_timestamp_ms - made.issue_timestamp_ms) / 1000
        return _Token(made.token_id, bytes(made.hmac), now, now + lasts_s / 2, now + lasts_s)

    async def _own_answer(self, request: Any) -> Any:
        self.own.read(True)  # reading may have been stopped; this answer is small
        return await self.own.call(request)

    def _ended(self, why: str) -> LoginEnded:
        self.on_end(why)
        return LoginEnded(why)


async def are_made_by(connection: ForwardingConnection) -> bool:
    """Whether a broker makes delegation tokens; asked on the connection of somebody who has logged in."""
    told: Any = await connection.call(DescribeDelegationTokenRequest(owners=[]))
    return bool(told.error_code != ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)


def _ending(token: _Token) -> ExpireDelegationTokenRequest:
    return ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=_AT_ONCE_MS)


def _nobody(why: str) -> None:
    """Nobody wants to know."""
