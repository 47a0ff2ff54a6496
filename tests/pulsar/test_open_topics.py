"""What is done now and then looks at what changed, not at what is there; what nobody uses is let go of."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from magnetar.ledger.cursors.cursor import Start
from magnetar.ledger.errors import StorageFailed
from magnetar.ledger.port import Position
from magnetar.logs.backlogs import Backlogs
from magnetar.pulsar import backlog
from magnetar.pulsar import topics as module
from magnetar.pulsar.backlog import EVICTION
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.wanted import Wanted
from magnetar.pulsar.producers import Producer
from magnetar.pulsar.topic import PulsarTopic
from magnetar.pulsar.topics import PulsarTopics
from magnetar.topics.limits import Limits, Quota
from tests.admin.house import House
from tests.pulsar.raw import entry

TOPICS = 40


class Street:
    """Many open topics, and how often each was looked at."""

    def __init__(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        self.house = house
        self.now_ms = 1000
        self.topics = PulsarTopics(house.services.broker, lambda: self.now_ms)
        broker = house.services.broker
        backlogs = Backlogs(lambda: broker.settings, lambda: self.now_ms)
        broker.logs = replace(broker.logs, backlogs=backlogs)
        self.all: list[PulsarTopic] = []
        self.looks: Counter[tuple[str, str]] = Counter()
        for name in ("settle", "expire"):
            monkeypatch.setattr(PulsarTopic, name, self._counted(name, getattr(PulsarTopic, name)))
        monkeypatch.setattr(backlog, "enforce", self._counted("enforce", backlog.enforce))

    def _counted(self, what: str, work: Any) -> Any:
        def counting(topic: PulsarTopic, *args: Any) -> Any:
            self.looks[what, topic.topic.kafka_name] += 1
            return work(topic, *args)

        return counting

    async def build(self) -> None:
        for number in range(TOPICS):
            partition = await self.house.topic(f"t{number}")
            self.all.append(await self.topics.open(partition.topic, 0))

    async def sweeps(self, count: int = 1) -> Counter[tuple[str, str]]:
        """Sweep, and give what was looked at."""
        self.looks.clear()
        for _ in range(count):
            await self.topics._sweep()
            await self.house.services.broker.logs.backlogs.look()
        return self.looks

    async def write(self, topic: PulsarTopic) -> None:
        durable = topic.log.append((entry(b"x"),), messages=1, timestamp_ms=self.now_ms).done
        if durable is not None:
            await durable


@pytest.fixture
async def street(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Street]:
    async with House(tmp_path / "data") as house:
        broker = house.services.broker
        # As often as the sweep is.
        often = {"message_expiry_check_interval_seconds": 1, "backlog_quota_check_interval_in_seconds": 1}
        broker.settings = broker.settings.with_fields(often)
        made = Street(house, monkeypatch)
        await made.build()
        yield made
        await made.topics.close()


async def test_only_topics_that_something_was_done_to_are_looked_at(street: Street) -> None:
    await street.sweeps()
    assert not await street.sweeps(5)
    written, acknowledged = street.all[3], street.all[5]
    subscription = await acknowledged.subscription(Wanted("s", SubType.Shared, start=Start.earliest))
    await street.write(acknowledged)
    await street.sweeps(2)
    await street.write(written)
    subscription.cursor.mark_delete(Position(acknowledged.log.ledgers()[-1].ledger_id, 0))
    assert await street.sweeps(5) == {("settle", "t3"): 1, ("settle", "t5"): 1}
    assert not acknowledged.cursors.unsaved


async def test_what_could_not_be_kept_is_tried_again(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = street.all[0]
    subscription = await topic.subscription(Wanted("s", SubType.Shared, start=Start.earliest))
    await street.write(topic)
    await street.sweeps()
    failures, save = [StorageFailed("for a test")] * 2, topic.cursors.save

    async def fails() -> None:
        if failures:
            raise failures.pop()
        await save()

    monkeypatch.setattr(topic.cursors, "save", fails)
    subscription.cursor.mark_delete(Position(topic.log.ledgers()[-1].ledger_id, 0))
    assert await street.sweeps(5) == {("settle", "t0"): 3}


async def test_only_backlogs_that_limits_concern_are_held_to_them(street: Street) -> None:
    """A topic comes to be looked at when it has a limit and a backlog, whichever is there first, until it has none."""
    await street.sweeps()
    ttl, quota, free = street.all[:3]
    ttl.apply(Limits(message_ttl_ms=5000))
    quota.apply(Limits(size_quota=Quota(1 << 30, EVICTION)))
    assert not [each for each in await street.sweeps(3) if each[0] != "settle"]
    for topic in (ttl, quota, free):
        await street.write(topic)
        await topic.subscription(Wanted("s", SubType.Exclusive, start=Start.earliest))
    looks = await street.sweeps(3)
    assert {each[1] for each in looks if each[0] != "settle"} == {"t0", "t1"}
    street.now_ms = 10**13
    await street.sweeps()
    assert ttl.subscriptions["s"].backlog == 0
    looks = await street.sweeps(3)
    assert {each[1] for each in looks if each[0] != "settle"} == {"t1"}
    free.apply(Limits(message_ttl_ms=5000))
    await street.sweeps()
    assert free.subscriptions["s"].backlog == 0


async def test_a_sweep_of_everything_lets_others_have_their_turn(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.base.slices.SLICE_S", -1.0)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.get_running_loop().create_task(other())
    assert len(await street.sweeps()) == TOPICS
    others.cancel()
    assert turns >= TOPICS


async def test_what_nobody_uses_is_let_go_of_and_opened_again(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    produced, subscribed, watched, asked = street.all[:4]
    made = Producer(cast(Any, None), 1, "p")
    produced.producers.add(made)
    await subscribed.subscription(Wanted("s", SubType.Exclusive))
    reader = await watched.subscription(Wanted("r", SubType.Exclusive, durable=False))
    await street.sweeps()
    assert street.topics.all_open() == street.all
    monkeypatch.setattr(module, "_UNUSED_S", -1.0)
    street.topics._note_unused(asked)
    del street.topics._unused[asked]  # somebody looked it up a moment ago
    await street.sweeps()
    assert street.topics.all_open() == [produced, subscribed, watched, asked]
    produced.producers.remove(made)
    watched.left(reader)
    await street.sweeps()
    assert street.topics.all_open() == [subscribed, asked]
    again = await street.topics.open(produced.topic, 0)
    assert again is not produced
    assert again.log is produced.log
    await street.write(again)
    assert again in street.topics._stirred
    assert produced not in street.topics._stirred


async def test_who_looks_a_topic_up_keeps_it_open_for_a_while(street: Street) -> None:
    await street.sweeps()
    first, second = street.all[:2]
    assert list(street.topics._unused)[:2] == [first, second]
    await street.topics.open(first.topic, 0)
    assert next(iter(street.topics._unused)) is second
    assert list(street.topics._unused)[-1] is first


async def test_what_is_deleted_is_looked_at_no_more(street: Street) -> None:
    await street.sweeps()
    await street.house.services.broker.delete_topic("t0")
    street.all[0].stir()
    assert street.all[0] not in street.topics._unused
    assert not await street.sweeps(2)
