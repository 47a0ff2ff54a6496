"""Subscriptions as linked share groups find them: see `magnetar.coordination.shares.linked`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from magnetar.coordination.shares.linked import LinkedQueues, QueueBusy, Workers, WorkQueue
from magnetar.ledger.cursors.cursor import Start
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.shared import Shared
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.dispatch.wanted import Wanted
from magnetar.pulsar.errors import ConsumerBusy
from magnetar.pulsar.topic import PulsarTopic
from magnetar.pulsar.topics import PulsarTopics
from magnetar.topics.topic import Topic


class LinkedShares:
    """One broker's."""

    def __init__(
        self,
        links: LinkedQueues,
        topics: PulsarTopics,
        offset_of: Callable[[PulsarTopic, Subscription], Awaitable[int]],
        put: Callable[[PulsarTopic, Subscription, int], Awaitable[None]],
    ) -> None:
        """``offset_of`` tells the first offset that a subscription is not done with, ``put`` sets it to one."""
        self._links = links
        self._topics = topics
        self._offset_of = offset_of
        self._put = put
        self._links.subscriptions = self
        topics.book_finders.append(self._find_books)

    # -- asked by Kafka's side

    async def _find(self, name: str, topic: Topic, index: int) -> tuple[PulsarTopic, Subscription | None]:
        opened = await self._topics.open(topic, index)
        found = opened.subscriptions.get(name)
        return opened, found if found is not None and found.is_durable else None

    async def beginning(self, name: str, topic: Topic, index: int) -> int | None:
        opened, found = await self._find(name, topic, index)
        return None if found is None else await self._offset_of(opened, found)

    async def join(self, name: str, topic: Topic, index: int, queue: WorkQueue) -> Workers | None:
        opened, found = await self._find(name, topic, index)
        if found is None:
            return None
        if found.sub_type != SubType.Shared:
            if found.consumers:
                kind = SubType.Name(found.sub_type)
                raise QueueBusy(f"{kind} consumers of the linked subscription {name} read {opened.name}")
            found = await opened.subscription(Wanted(name, SubType.Shared))
        if not isinstance(found, Shared) or found.link is None:
            return None
        await found.link.join(queue)
        return found.link

    def is_used(self, name: str, topic: Topic, index: int) -> bool:
        opened = self._topics.opened(topic, index)
        found = None if opened is None else opened.subscriptions.get(name)
        return found is not None and bool(found.consumers)

    @asynccontextmanager
    async def moving_with_group(
        self, name: str, topic: Topic, index: int, offset: int
    ) -> AsyncIterator[None]:
        opened, found = await self._find(name, topic, index)
        async with _apart(found):
            yield
            if found is not None:
                await self._put(opened, found, offset)
                await opened.save()

    # -- asked by Pulsar's side

    def _find_books(self, topic: PulsarTopic, name: str) -> Callable[[], Awaitable[bool]] | None:
        """Return what has the books of a linked subscription at work; None for one that is not linked."""
        if not self._links.is_linked(name):
            return None

        async def find() -> bool:
            shares = self._links.shares
            return shares is not None and await shares.open(name, topic.topic, topic.index)

        return find

    async def _has_books(self, topic: PulsarTopic, name: str) -> bool:
        shares = self._links.shares
        if shares is None or not self._links.is_linked(name):
            return False
        return await shares.has_books(name, topic.topic, topic.index)

    async def as_linked(self, topic: object, wanted: Wanted) -> Wanted:
        """Return what a consumer asks for: of a share group's queue only its kind can be had, and where it is now.

        Raises ``ConsumerBusy``.
        """
        name = wanted.subscription
        if not isinstance(topic, PulsarTopic) or not wanted.durable or not await self._has_books(topic, name):
            return wanted
        if wanted.sub_type != SubType.Shared:
            raise ConsumerBusy(
                f"Subscription {name} is linked to a Kafka share group, and can only be Shared"
            )
        if name in topic.subscriptions:
            return wanted
        # What the group is done with the cursor learns; it must not pass over anything else.
        return replace(wanted, start=Start.earliest, start_place=None, rollback_ms=0)

    @asynccontextmanager
    async def moving(self, topic: PulsarTopic, subscription: Subscription) -> AsyncIterator[None]:
        """Somebody moves a cursor: the books of its share group, if it has any, begin there as well, durable then."""
        shares, name = self._links.shares, subscription.name
        if shares is None or not subscription.is_durable or not await self._has_books(topic, name):
            yield
            return
        async with _apart(subscription):
            yield
            await topic.save()
            offset = await self._offset_of(topic, subscription)
            await shares.move(name, topic.topic, topic.index, offset)

    async def deleted(self, topic: PulsarTopic, name: str) -> None:
        """An operator ends a subscription: so do the books of its share group."""
        shares = self._links.shares
        if shares is not None and await self._has_books(topic, name):
            await shares.forget(name, topic.topic, topic.index)


@asynccontextmanager
async def _apart(subscription: Subscription | None) -> AsyncIterator[None]:
    link = subscription.link if isinstance(subscription, Shared) else None
    if link is None:
        yield
        return
    async with link.moving():
        yield
