"""Brokers of one metadata store divide bundles, and partitions, evenly: when one goes, and when it comes back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from magnetar.cluster.cluster_ownership import BrokerIdTaken, ClusterOwnership
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.serving.listeners import Endpoint
from magnetar.topics.names import TopicName
from magnetar.topics.topic import Topic

BUNDLES = 16
NAMESPACE = "public/default"


class Brokers:
    """Those that live, over one store."""

    def __init__(self, topics: Sequence[Topic] = ()) -> None:
        self.tree = MemoryTree()
        self.living: dict[int, ClusterOwnership] = {}
        self._topics = list(topics)

    async def begin(self, number: int) -> ClusterOwnership:
        made = self.living[number] = ClusterOwnership(MemoryStore(self.tree), "c", number, None, BUNDLES, 4.0)
        await made.start()
        made.listens("http", Endpoint("127.0.0.1", 8000 + number))
        await made.begin(lambda: [NAMESPACE], lambda most: (1, self._topics))
        return made

    def bundles(self) -> list[int]:
        """Return how many each living broker has."""
        return sorted(len(each.mine()) for each in self.living.values())

    def partitions(self, topic: Topic) -> list[int]:
        """Return how many of a topic's partitions each living broker has."""
        has = Counter(
            {
                each.node_id: sum(each.is_mine(topic.name, index) for index in range(topic.partitions))
                for each in self.living.values()
            }
        )
        return sorted(has.values())


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not is_so():  # noqa: ASYNC110 - what changes tells nobody
            await asyncio.sleep(0.02)


@pytest.fixture
async def brokers() -> AsyncIterator[Brokers]:
    made = Brokers([Topic(TopicName("public", "default", "sales"), "sales", bytes(16), 8)])
    for number in (1, 2, 3):
        await made.begin(number)
    yield made
    for each in made.living.values():
        await each.close()


async def test_a_broker_goes_and_comes_back(brokers: Brokers) -> None:
    (topic,) = brokers._topics
    await until(lambda: brokers.bundles() == [5, 5, 6] and max(brokers.partitions(topic)) <= 4)
    gone = brokers.living.pop(2)
    await gone.close()
    await gone._store.close()
    await until(lambda: brokers.bundles() == [8, 8])
    await brokers.begin(2)
    await until(lambda: brokers.bundles() == [5, 5, 6])
    await until(lambda: max(brokers.partitions(topic)) - min(brokers.partitions(topic)) <= 2)


async def test_a_second_broker_of_one_number_is_told_at_once(brokers: Brokers) -> None:
    twin = ClusterOwnership(MemoryStore(brokers.tree), "c", 2, None, BUNDLES, 3600.0)
    with pytest.raises(BrokerIdTaken, match="another broker of cluster c has the number 2"):
        await twin.start()


async def test_one_that_ends_does_not_answer(brokers: Brokers) -> None:
    """The next one waits for its end, and has the number then."""
    ending = brokers.living.pop(2)
    ending._is_closing = True
    coming = ClusterOwnership(MemoryStore(brokers.tree), "c", 2, None, BUNDLES, 3600.0)
    starting = asyncio.ensure_future(coming.start())
    await asyncio.sleep(1.0)
    assert not starting.done()
    await ending.close()
    await ending._store.close()
    await starting
    await coming.close()


async def test_one_that_ends_hands_over_while_it_still_serves(brokers: Brokers) -> None:
    await until(lambda: brokers.bundles() == [5, 5, 6])
    leaving = brokers.living.pop(2)
    without_owner = asyncio.ensure_future(_longest_without_owner(brokers))
    await leaving.leave()
    assert not leaving.mine()
    assert sorted(len(each.mine()) for each in brokers.living.values()) == [8, 8], "all have owners already"
    assert {each.node_id for each in brokers.living[1].brokers()} == {1, 2, 3}, "it is told of until its end"
    bundle = brokers.living[1].mine()[0]
    assert leaving.owner_of(bundle) == brokers.living[1].owner_of(bundle), "and tells clients where it is"
    assert not without_owner.done(), without_owner.exception()
    without_owner.cancel()
    await leaving.close()
    await leaving._store.close()


async def _longest_without_owner(brokers: Brokers) -> None:
    """Look that never more bundles are on their way than are handed over at once."""
    first = brokers.living[1]
    while True:
        missing = [each for each in first.bundles(NAMESPACE) if first.owner_of(each) is None]
        assert len(missing) <= 4
        await asyncio.sleep(0.001)


async def test_the_last_broker_that_ends_hands_over_to_nobody(brokers: Brokers) -> None:
    await until(lambda: brokers.bundles() == [5, 5, 6])
    await asyncio.gather(*(each.leave() for each in brokers.living.values()))
