"""What was acknowledged is kept on every way out, though it waits a moment in memory."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.ledger.cursors.cursor import Start
from magnetar.ledger.formats.cursor_info import cursor_path, decode_cursor
from magnetar.metadata import MetadataStore
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.dispatch.wanted import Wanted
from magnetar.pulsar.names import PulsarName
from magnetar.pulsar.rest import topics as rest_topics
from magnetar.pulsar.topic import PulsarTopic
from magnetar.pulsar.topics import PulsarTopics
from tests.admin.house import House
from tests.ledger.cursors import mark_of
from tests.process import BrokerProcess
from tests.pulsar import raw
from tests.pulsar.conftest import PULSAR
from tests.pulsar.raw import Raw, entry


class Acknowledged:
    """A topic of four entries, of which a subscription acknowledged two a moment ago."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.store: MetadataStore = house.services.broker.store

    async def begin(self, partitions: int = 1) -> None:
        self.topics = PulsarTopics(self.house.services.broker, lambda: 1000)
        made = (await self.house.topic(partitions=partitions)).topic
        self.topic: PulsarTopic = await self.topics.open(made, 0)
        wanted = Wanted("s", SubType.Shared, start=Start.earliest)
        self.subscription: Subscription = await self.topic.subscription(wanted)
        for number in range(4):
            durable = self.topic.log.append((entry(b"%d" % number),), messages=1, timestamp_ms=1).done
            if durable is not None:
                await durable
        ledger = self.topic.log.ledgers()[-1].ledger_id
        for entry_id in (0, 1):
            self.subscription.acks.done((ledger, entry_id))
        assert await self.kept() == -1

    async def kept(self) -> int:
        """Return what a broker would find that starts now."""
        return (await mark_of(self.topic.log, self.store, "s")).entry_id


@pytest.fixture
async def acknowledged(tmp_path: Path) -> Any:
    async with House(tmp_path / "data") as house:
        made = Acknowledged(house)
        await made.begin()
        yield made


async def test_when_the_broker_ends(acknowledged: Acknowledged) -> None:
    await acknowledged.topics.close()
    assert await acknowledged.kept() == 1


async def test_when_the_topic_is_unloaded(acknowledged: Acknowledged) -> None:
    services = SimpleNamespace(broker=acknowledged.house.services.broker, topics=acknowledged.topics)
    name = PulsarName(acknowledged.topic.topic.name)
    await rest_topics.unload(cast(Any, SimpleNamespace(services=services, topic=name)))
    assert acknowledged.topic.log not in services.broker.engine.opened()
    assert await acknowledged.kept() == 1


async def test_when_the_topic_gets_partitions_and_with_them_another_name(acknowledged: Acknowledged) -> None:
    topic = acknowledged.topic.topic
    await acknowledged.house.services.broker.grow_topic(topic.kafka_name, 2)
    assert await acknowledged.kept() == 1


async def test_when_a_subscription_gets_another_type(acknowledged: Acknowledged) -> None:
    await acknowledged.topic.subscription(Wanted("s", SubType.Exclusive))
    await acknowledged.topic.save()
    assert await acknowledged.kept() == 1


async def test_a_topic_that_is_deleted_takes_its_cursors_along(acknowledged: Acknowledged) -> None:
    path = f"/managed-ledgers/{acknowledged.topic.log.name}"
    assert acknowledged.store.blocking.children(path)
    await acknowledged.house.services.broker.delete_topic(acknowledged.topic.topic.kafka_name)
    assert not acknowledged.store.blocking.children(path)
    acknowledged.subscription.flush_acks()
    assert not acknowledged.store.blocking.children(path)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], BrokerProcess]]:
    started: list[BrokerProcess] = []

    def begin() -> BrokerProcess:
        started.append(BrokerProcess(tmp_path / "data", *PULSAR))
        return started[-1]

    yield begin
    for process in started:
        process.kill()


def kept(broker: BrokerProcess) -> int:
    """Return what the metadata store has of the cursor, seen from outside."""
    path = cursor_path("public/default/persistent/t-partition-0", "s")
    with sqlite3.connect(f"file:{broker.data}/metadata.sqlite?mode=ro", uri=True) as store:
        (value,) = store.execute("SELECT value FROM node WHERE path = ?", (path,)).fetchone()
    return decode_cursor(bytes(value)).mark_delete.entry_id


@pytest.mark.parametrize("way", ["end", "kill"])
def test_when_the_process_goes(start: Callable[[], BrokerProcess], way: str) -> None:
    """Asked to, at once after the acknowledgement; killed, a moment later."""
    topic = "persistent://public/default/t"
    broker = start()
    with Raw(broker) as client:
        client.ask(raw.subscribe(topic, subType=1, initialPosition=1))
        client.ask(raw.producer(topic))
        places = [client.ask(raw.send(sequence_id=n), entry(b"%d" % n)) for n in range(4)]
        client.send(raw.frame(raw.flow(10)))
        for _ in range(4):
            client.hear()
        for place in places[:2]:
            message_id = place.send_receipt.message_id
            client.ask(raw.ack(message_id.ledgerId, message_id.entryId))
    if way == "end":
        broker.end()
    else:
        while kept(broker) < 1:  # cursors are kept each second
            time.sleep(0.05)
        broker.kill()
    with Raw(start()) as client:
        client.ask(raw.subscribe(topic, subType=1))
        client.send(raw.frame(raw.flow(10)))
        heard = [client.hear()[1][-1:] for _ in range(2)]
        assert heard == [b"2", b"3"]
