"""New partitions of a topic and the brokers that have them: who has moved, who refuses, and what cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.base.errors import BrokerError
from magnetar.cluster import asking_owners
from magnetar.cluster.between_brokers import BetweenBrokers
from magnetar.cluster.ownership import NotOwned, Owned
from magnetar.pulsar import grown_topics
from magnetar.pulsar.dispatch.wanted import Wanted
from magnetar.pulsar.errors import NotAllowed
from magnetar.pulsar.grown_topics import GrownTopics
from magnetar.pulsar.rest.refusals import refusal_of

ABOUT = grown_topics._ABOUT


class Partition:
    def __init__(self, names: dict[str, dict[str, str]], most: int = 10) -> None:
        self.most = most
        self.subscriptions: dict[str, Any] = {}
        for name, properties in names.items():
            self._make(name, properties)

    def _make(self, name: str, properties: dict[str, str], *, durable: bool = True) -> None:
        cursor = SimpleNamespace(is_durable=durable)
        self.subscriptions[name] = SimpleNamespace(name=name, properties=properties, cursor=cursor)

    async def subscription(self, wanted: Wanted) -> None:
        if len(self.subscriptions) >= self.most:
            raise NotAllowed("Exceed the maximum number of subscriptions of the topic: t")
        assert wanted.start.name == "earliest"
        self._make(wanted.subscription, dict(wanted.properties or {}))


class Broker:
    """One of two, which knows ``owners`` as soon as they change."""

    def __init__(self, number: int, owners: list[int], partitions: list[Partition]) -> None:
        self.number, self.owners, self.partitions = number, owners, partitions
        self.topic: Any = SimpleNamespace(name="t", kafka_name="t", partitions=len(partitions))
        self.between = BetweenBrokers(lambda: False)
        self.ownership = SimpleNamespace(node_id=number, owner=lambda _, index: Owned(owners[index], 1))
        self.cluster = SimpleNamespace(between=self.between, ownership=self.ownership)
        self.events = SimpleNamespace(topic_grown=[])
        self.before_opening: Callable[[int], None] = lambda index: None
        topics = SimpleNamespace(open=self._open, is_groups=lambda topic, name: name == "groups")
        self.grown = GrownTopics(cast(Any, self), cast(Any, topics))

    def get(self, name: str) -> Any:
        return self.topic if name == "t" else None

    async def _open(self, topic: Any, index: int) -> Partition:
        self.before_opening(index)
        if self.owners[index] != self.number:
            raise NotOwned("t", Owned(self.owners[index], 1))
        return self.partitions[index]

    async def grow(self, before: int) -> None:
        for told in self.events.topic_grown:
            await told(self.topic, before)


def two_brokers(owners: list[int], partitions: list[Partition]) -> list[Broker]:
    brokers = [Broker(number, owners, partitions) for number in range(2)]

    async def way(node_id: int, about: str, asked: bytes) -> bytes:
        return await brokers[node_id].between.answered(about, asked)

    for each in brokers:
        each.between.way = way
    return brokers


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking_owners, "_PAUSE_S", 0)


async def test_what_moves_meanwhile_is_asked_of_its_new_broker() -> None:
    first = Partition({"kept": {"a": "b"}, "groups": {}})
    first._make("reader", {}, durable=False)
    partitions = [first, Partition({}), Partition({}), Partition({"kept": {}})]
    owners = [1, 0, 1, 1]
    one, other = two_brokers(owners, partitions)

    def moves(index: int) -> None:
        if index == 2:
            owners[2] = 0

    other.before_opening = moves
    await one.grow(1)
    assert [sorted(each.subscriptions) for each in partitions[1:]] == [["kept"]] * 3
    assert [each.subscriptions["kept"].properties for each in partitions] == [
        {"a": "b"},
        {"a": "b"},
        {"a": "b"},
        {},
    ]


async def test_what_another_broker_refuses_is_told_in_its_words() -> None:
    partitions = [Partition({"one": {}, "two": {}}), Partition({}, most=1)]
    one, _ = two_brokers([0, 1], partitions)
    with pytest.raises(BrokerError, match="maximum number of subscriptions"):
        await one.grow(1)


async def test_a_partition_that_nobody_keeps_is_an_error_that_says_what_to_do() -> None:
    one, other = two_brokers([0, 1], [Partition({"kept": {}}), Partition({})])
    other.topic = SimpleNamespace(kafka_name="t", partitions=1)  # it never hears of the new one
    with pytest.raises(BrokerError, match="ask for as many partitions again"):
        await one.grow(1)


async def test_a_broker_that_cannot_be_asked_is_unavailable_not_a_fault_of_who_asks() -> None:
    one, _ = two_brokers([0, 1], [Partition({"kept": {}}), Partition({})])

    async def gone(node_id: int, about: str, asked: bytes) -> bytes:
        raise BrokerError(f"broker {node_id} hung up")

    one.between.way = gone
    with pytest.raises(BrokerError, match="broker 1 hung up; ask for as many partitions again") as raised:
        await one.grow(1)
    assert refusal_of(raised.value, "grow")[0] == 503


@pytest.mark.parametrize(
    "asked",
    [b"5", b"[]", b'["t", -1, []]', b'["t", true, []]', b"[7, 0, []]", b'["t", 0, [["a"]]]', b'["t", 0, 7]'],
)
async def test_a_question_that_cannot_be_read_ends_its_connection(asked: bytes) -> None:
    _, other = two_brokers([0, 1], [Partition({}), Partition({})])
    with pytest.raises(ConnectionAbortedError):
        await other.between.answered(ABOUT, asked)
