"""Share groups as linked subscriptions find them: implements `magnetar.coordination.shares.linked.ShareQueues`."""

from __future__ import annotations

from magnetar.base.errors import BrokerError
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.partitions.registry import Partitions
from magnetar.kafka.shares.lazy import LazyShares
from magnetar.kafka.shares.shares import Shares
from magnetar.kafka.shares.state import UNSET, ShareKey
from magnetar.topics.topic import Topic


class BooksUnready(BrokerError):
    """A share group's books cannot be read or written now."""


class ShareLinks:
    """See the module; raises `BooksUnready`."""

    def __init__(self, shares: LazyShares, partitions: Partitions) -> None:
        self._shares = shares
        self._partitions = partitions

    async def open(self, name: str, topic: Topic, index: int) -> bool:
        """Have the books at work, if there are any."""
        shares = await self._shares.kept()
        if shares is None:
            return False
        key = ShareKey(name, topic.topic_id, index)
        try:
            if shares.served(key) is None and not await self._has_books(shares, key):
                return False
            served = await shares.get(name, topic, await self._partitions.get(topic, index))
            await served.lend()
        except CoordinatorRefused as refused:
            raise _unready(refused) from refused
        return True

    @staticmethod
    async def _has_books(shares: Shares, key: ShareKey) -> bool:
        """Whether there are some, whichever broker keeps them."""
        return (await shares.anywhere.read(key)).start_offset != UNSET

    async def has_books(self, name: str, topic: Topic, index: int) -> bool:
        """Whether a share group has worked through a partition."""
        shares = await self._shares.kept()
        if shares is None:
            return False
        try:
            return await self._has_books(shares, ShareKey(name, topic.topic_id, index))
        except CoordinatorRefused as refused:
            raise _unready(refused) from refused

    async def move(self, name: str, topic: Topic, index: int, offset: int) -> None:
        """Begin them anew at an offset, if there are any."""
        shares = await self._shares.kept()
        if shares is None:
            return
        key = ShareKey(name, topic.topic_id, index)
        try:
            if await self._has_books(shares, key):
                await shares.begin_at(key, offset)
        except CoordinatorRefused as refused:
            raise _unready(refused) from refused

    async def forget(self, name: str, topic: Topic, index: int) -> None:
        """Forget them, if there are any."""
        shares = await self._shares.kept()
        if shares is None:
            return
        key = ShareKey(name, topic.topic_id, index)
        try:
            if await self._has_books(shares, key):
                await shares.anywhere.delete(key)
                shares.forget(key)
        except CoordinatorRefused as refused:
            raise _unready(refused) from refused


def _unready(refused: CoordinatorRefused) -> BooksUnready:
    return BooksUnready(f"the share group's books: {refused}")
