"""A topic's new partitions begin with the subscriptions that it has, at their first message.

As with Pulsar: what a producer sends there before the consumers have found the partition waits for them. Which
subscriptions there are, the first partition tells. Each partition is asked of the broker that has it:

    asked     [topic, partition, [[subscription, {property: value}], ...]]    what it is to have; nothing to be told
    answered  [[subscription, {property: value}], ...]    what it has by then; null if it is another broker's, and
              {"refused": why} if they cannot be made
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from magnetar.base.errors import BrokerError
from magnetar.base.slices import batched
from magnetar.cluster.asking_owners import ask_owners
from magnetar.cluster.ownership import NotOwned
from magnetar.ledger.cursors.cursor import Start
from magnetar.ledger.errors import LedgerError
from magnetar.metadata import MetadataError
from magnetar.node.broker import Broker
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.wanted import Wanted
from magnetar.pulsar.errors import PulsarError
from magnetar.pulsar.topics import PulsarTopics
from magnetar.topics.topic import Topic

_ABOUT = "topics.grown"
_AT_ONCE = 20
_Begun = Sequence[tuple[str, dict[str, str]]]
"""Subscriptions with their properties."""


class SubscriptionsMissing(BrokerError):
    """A topic has its new partitions, and they not yet the subscriptions that they are to begin with."""


class GrownTopics:
    """Gives new partitions their subscriptions before whoever asked for them is answered."""

    def __init__(self, broker: Broker, topics: PulsarTopics) -> None:
        self._broker = broker
        self._topics = topics
        broker.events.topic_grown.append(self._grown)
        broker.cluster.between.answer(_ABOUT, _read, self._of_another)

    async def _grown(self, topic: Topic, before: int) -> None:
        """Raise ``BrokerError``, or what opening a partition raises, where not all are made."""
        await self._begin(topic, range(before, topic.partitions), (await self._ask(topic, [0]))[0])

    async def complete(self, topic: Topic) -> None:
        """Do what was not done when the topic grew: partitions that have no subscription get those of the first."""
        if begun := (await self._ask(topic, [0]))[0]:
            found = await self._ask(topic, range(1, topic.partitions))
            await self._begin(topic, [index for index, has in found.items() if not has], begun)

    async def _begin(self, topic: Topic, partitions: Sequence[int], begun: _Begun) -> None:
        if begun:
            await self._ask(topic, partitions, begun)

    async def _ask(self, topic: Topic, partitions: Sequence[int], begun: _Begun = ()) -> dict[int, _Begun]:
        """Have partitions begin with subscriptions, wherever they are; return those that each has."""
        ownership = self._broker.cluster.ownership

        async def ask(node_id: int, indices: Sequence[int]) -> list[Any]:
            found: list[Any] = []
            for some in batched(indices, _AT_ONCE):
                asking = (self._one(node_id, topic, index, begun) for index in some)
                found += await asyncio.gather(*asking, return_exceptions=True)
            return found

        found = await ask_owners(ownership, partitions, lambda index: ownership.owner(topic.name, index), ask)
        for index, has in found.items():
            if isinstance(has, NotOwned):
                raise self._missing(topic, index, "no broker has it")
            if isinstance(has, BaseException):
                raise has
        return found

    async def _one(self, node_id: int, topic: Topic, index: int, begun: _Begun) -> _Begun:
        if node_id == self._broker.cluster.ownership.node_id:
            found: Any = await self._here(topic.kafka_name, index, begun)
        else:
            try:
                found = await self._broker.cluster.between.ask(
                    node_id, _ABOUT, [topic.kafka_name, index, list(begun)]
                )
            except BrokerError as error:
                raise self._missing(topic, index, str(error)) from error
        if isinstance(found, dict):
            raise self._missing(topic, index, found["refused"])
        if found is None:
            raise NotOwned(f"partition {index} of {topic.kafka_name}", None)
        return cast(_Begun, found)

    def _missing(self, topic: Topic, index: int, why: str) -> SubscriptionsMissing:
        return SubscriptionsMissing(
            f"{topic.kafka_name} has {topic.partitions} partitions now, but the subscriptions of partition {index} "
            f"cannot be seen to: {why}; ask for as many partitions again"
        )

    async def _here(self, name: str, index: int, begun: _Begun) -> _Begun | None:
        topic = self._broker.get(name)
        if topic is None or index >= topic.partitions:
            return None
        try:
            opened = await self._topics.open(topic, index)
            for subscription, properties in begun:
                if subscription not in opened.subscriptions:
                    await opened.subscription(
                        Wanted(subscription, SubType.Exclusive, start=Start.earliest, properties=properties)
                    )
        except NotOwned:
            return None
        except PulsarError as error:  # there are as many subscriptions as there may be
            raise BrokerError(str(error)) from error
        return [
            (each.name, dict(each.properties))
            for each in opened.subscriptions.values()
            if each.cursor.is_durable and not self._topics.is_groups(opened, each.name)
        ]

    async def _of_another(self, asked: tuple[str, int, _Begun]) -> _Begun | dict[str, str] | None:
        try:
            return await self._here(*asked)
        except (BrokerError, LedgerError, MetadataError) as error:
            return {"refused": str(error)}


def _read(asked: Any) -> tuple[str, int, _Begun]:
    try:
        name, index, rows = asked
        begun = [(str(subscription), dict(properties)) for subscription, properties in rows]
    except (TypeError, ValueError):
        raise ValueError("what a partition is to begin with has other fields") from None
    if not isinstance(name, str) or type(index) is not int or index < 0:
        raise ValueError("there is no such partition")
    return name, index, begun
