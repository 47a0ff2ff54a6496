"""Share groups when the first client asks for them: most brokers never have any, and go without their modules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.kafka.apart import load_apart
from magnetar.serving.memory import Account

if TYPE_CHECKING:
    from magnetar.kafka.shares.shares import Shares
    from magnetar.topics.topic import Topic


class LazyShares:
    """The share groups of one broker's clients, or of one tenant's; made when they are first asked for."""

    __slots__ = ("_is_kept", "_make", "_making", "made")

    def __init__(self, make: Callable[[], Shares], is_kept: Callable[[], bool]) -> None:
        """``is_kept`` tells whether anything may be stored of share groups."""
        self._make = make
        self._is_kept = is_kept
        self._making: asyncio.Lock | None = None
        self.made: Shares | None = None

    async def get(self) -> Shares:
        """Return them."""
        if self.made is None:
            if self._making is None:
                self._making = asyncio.Lock()
            async with self._making:
                if self.made is None:
                    await load_apart("magnetar.kafka.shares.shares")
                    made = self._make()
                    await made.start()
                    self.made = made
        return self.made

    async def kept(self) -> Shares | None:
        """Return them, None where nobody has ever asked for them."""
        return await self.get() if self.made is not None or self._is_kept() else None

    def desert(self, owner: Account) -> None:
        """Nobody listens to a connection's answers any more: what waits for records on it gives up."""
        if self.made is not None:
            self.made.sessions.desert(owner)

    def forget(self, owner: Account) -> None:
        """A connection has ended: so have its sessions."""
        if self.made is not None:
            self.made.sessions.forget(owner)

    async def close(self) -> None:
        """Finish what is in hand."""
        if self.made is not None:
            await self.made.close()

    async def forget_topic(self, topic: Topic) -> None:
        """A topic is gone: so is what groups have of it."""
        if (shares := await self.kept()) is not None:
            await shares.forget_topic(topic)

    async def follow_ownership(self) -> None:
        """Follow what has come to this broker or gone."""
        if self.made is not None:
            await self.made.states.follow_ownership()
