"""Groups and cursors that follow each other lose nothing when one of them cannot be moved for a while."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.errors import BrokerError
from magnetar.cluster.ownership import BrokerInfo, NotOwned, Owned
from magnetar.coordination.progress import GroupIsActive, GroupStanding, Read
from magnetar.ledger.cursors.cursor import Start
from magnetar.ledger.errors import StorageFailed
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.wanted import Wanted
from magnetar.pulsar.group_cursors import GroupCursors
from magnetar.pulsar.topic import PulsarTopic
from magnetar.pulsar.topics import PulsarTopics
from tests.admin.house import House
from tests.ledger.cursors import kept
from tests.pulsar.raw import entry

GROUP = "g"


class Groups:
    """Kafka's side: what groups committed, whether they have members, and what it says next when it is to move one."""

    def __init__(self) -> None:
        self.active = False
        self.offsets: dict[Read, int] = {}
        self.refusals: list[Exception] = []
        self.asked = 0

    async def look(self, read: Read) -> GroupStanding:
        return GroupStanding(self.active, is_share=False, committed=self.offsets.get(read))

    async def move(self, read: Read, offset: int, *, though_active: bool = False) -> None:
        self.asked += 1
        if self.refusals:
            raise self.refusals.pop(0)
        self.offsets[read] = offset

    async def forget(self, read: Read) -> None:
        self.offsets.pop(read, None)


class Both:
    """One topic of five entries, and what is on both sides of it."""

    def __init__(self, house: House, topics: PulsarTopics, topic: PulsarTopic) -> None:
        self.progress = house.services.broker.coordination.progress
        self.progress._linked = frozenset([GROUP])
        self.cursors = GroupCursors(house.services.broker, topics)
        house.services.broker.cluster.between._is_alone = lambda: False
        self.groups = self.progress.groups = Groups()
        self.topic = topic
        self.read = Read(GROUP, topic.topic.kafka_name, 0)

    async def acknowledge(self, entries: int) -> None:
        subscription = await self.topic.subscription(Wanted(GROUP, SubType.Exclusive, start=Start.earliest))
        ledger = self.topic.log.ledgers()[-1].ledger_id
        for entry_id in range(entries):
            subscription.acks.done((ledger, entry_id))
        subscription.flush_acks()

    async def rounds(self, count: int) -> None:
        for _ in range(count):
            await self.cursors.synchronise()


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    async with House(tmp_path / "data") as house:
        partition = await house.topic()
        topics = PulsarTopics(house.services.broker, lambda: 1000)
        topic = await topics.open(partition.topic, 0)
        for number in range(5):
            durable = topic.log.append((entry(b"%d" % number),), messages=1, timestamp_ms=1).done
            if durable is not None:
                await durable
        yield Both(house, topics, topic)
        await topics.close()


@pytest.mark.parametrize("refusal", [GroupIsActive("loading"), StorageFailed("for a test")])
async def test_what_was_refused_once_is_told_again(both: Both, refusal: Exception) -> None:
    """Loading, or a write that failed: it is told all the same, though nothing more is acknowledged."""
    await both.acknowledge(3)
    both.groups.refusals = [refusal]
    await both.rounds(1)
    assert both.groups.offsets == {}
    await both.rounds(1)
    assert both.groups.offsets == {both.read: 3}
    await both.rounds(3)
    assert both.groups.asked == 2


async def test_what_is_refused_again_and_again_is_asked_less_often_and_logged_once(
    both: Both, caplog: pytest.LogCaptureFixture
) -> None:
    await both.acknowledge(3)
    both.groups.refusals = [GroupIsActive("loading") for _ in range(5)]
    await both.rounds(60)
    assert both.groups.offsets == {both.read: 3}
    assert both.groups.asked == 6
    assert len([each for each in caplog.records if "cannot follow" in each.getMessage()]) == 1


async def test_one_that_is_refused_holds_up_no_other(both: Both) -> None:
    other = Read("h", both.read.topic, 0)
    both.progress._linked = frozenset([GROUP, "h"])
    await both.acknowledge(2)
    await both.topic.subscription(Wanted("h", SubType.Exclusive))  # from the end on
    both.groups.refusals = [GroupIsActive("loading")]
    await both.rounds(1)
    assert both.groups.offsets == {other: 5}


async def test_members_that_come_while_it_cannot_be_told_go_on_from_there_in_the_end(both: Both) -> None:
    await both.acknowledge(3)
    await both.rounds(1)
    assert both.groups.offsets == {both.read: 3}
    await both.acknowledge(5)
    both.groups.refusals = [GroupIsActive("loading")]
    both.groups.active = True
    both.progress.joining_group(GROUP)
    await asyncio.gather(*both.cursors._urgent)
    assert both.topic.subscriptions[GROUP].paused
    assert both.groups.offsets == {both.read: 3}
    await both.rounds(2)
    assert both.groups.offsets == {both.read: 5}


async def test_a_cursor_that_could_not_follow_follows_later(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a group committed is not forgotten when its cursor cannot be moved; a newer commit takes its place."""
    failing, put = [StorageFailed("for a test")] * 2, both.cursors._put

    async def fails(*args: Any) -> None:
        if failing:
            raise failing.pop()
        await put(*args)

    monkeypatch.setattr(both.cursors, "_put", fails)
    both.groups.active = True
    both.progress.committed(GROUP, both.read.topic, 0, 2)
    await both.rounds(1)
    assert failing == [failing[0]]
    both.progress.committed(GROUP, both.read.topic, 0, 4)
    await both.rounds(2)
    subscription = both.topic.subscriptions[GROUP]
    assert await both.cursors.offset_of(both.topic, subscription) == 4
    assert not both.cursors._behind


async def test_very_many_commits_let_others_have_their_turn(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.base.slices.SLICE_S", -1.0)
    turns, commits = 0, 300
    for number in range(commits):
        both.progress.committed(f"other-{number}", both.read.topic, 0, 1)

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.get_running_loop().create_task(other())
    await both.rounds(1)
    others.cancel()
    assert turns >= commits
    assert len(both.topic.subscriptions) == commits


async def test_a_group_commits_inside_a_batch_of_very_many_messages(both: Both) -> None:
    """Where it is within a million messages takes a bit for each of them, and nothing beyond."""
    messages = 1 << 20
    body = entry(b"x", num_messages_in_batch=messages)
    durable = both.topic.log.append((body,), messages=messages, timestamp_ms=1).done
    if durable is not None:
        await durable
    inside = 5 + messages // 2
    both.groups.active = True
    both.progress.committed(GROUP, both.read.topic, 0, inside)
    await both.rounds(1)
    subscription = both.topic.subscriptions[GROUP]
    assert await both.cursors.offset_of(both.topic, subscription) == inside
    ((place, remaining),) = subscription.acks.partly.items()
    assert place[1] == 5
    assert remaining.bit_length() == messages
    assert remaining.bit_count() == messages - messages // 2
    await both.topic.cursors.save()
    again = await (await kept(both.topic.log, both.topic._store)).open(GROUP)
    assert again.partly == {place: remaining}


class Others:
    """Another broker, 7, as far as it is asked; silent while ``error`` is set."""

    def __init__(self, both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[int, str, bytes]] = []
        self.error: Exception | None = None
        broker = both.cursors._broker
        known = [*broker.cluster.ownership.brokers(), BrokerInfo(7)]
        monkeypatch.setattr(broker.cluster.ownership, "brokers", lambda: known)
        monkeypatch.setattr(broker.cluster.between, "way", self._ask)

    async def _ask(self, node_id: int, about: str, asked: bytes) -> bytes:
        self.asked.append((node_id, about, asked))
        if self.error is not None:
            raise self.error
        return b"null"


async def test_a_member_that_joins_is_told_of_to_all_brokers(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have consumers of its partitions, too, and these stop before the member asks where to begin."""
    others = Others(both, monkeypatch)
    others.error = BrokerError("it has just died")  # and sees the member itself when it is back
    await both.acknowledge(3)
    both.groups.active = True
    both.progress.joining_group(GROUP)
    await asyncio.gather(*both.cursors._urgent)
    assert others.asked == [(7, "groups.joining", b'"g"')]
    assert both.topic.subscriptions[GROUP].paused


async def test_consumers_stop_for_a_member_of_another_brokers_group(both: Both) -> None:
    await both.acknowledge(3)
    both.groups.active = True
    await both.cursors._broker.cluster.between.answered("groups.joining", b'"g"')
    await asyncio.gather(*both.cursors._urgent)
    assert both.topic.subscriptions[GROUP].paused
    assert both.groups.offsets == {both.read: 3}


async def test_a_member_that_joins_while_others_are_seen_to_keeps_its_consumers_stopped(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was seen of its group before says that nobody is there."""
    both.progress._linked = frozenset(["a", GROUP])
    for name in ("a", GROUP):
        await both.topic.subscription(Wanted(name, SubType.Exclusive, start=Start.earliest))
    move = both.groups.move

    async def joined_meanwhile(read: Read, offset: int, *, though_active: bool = False) -> None:
        if read.group == "a":
            both.groups.active = True
            both.progress.joining_group(GROUP)
            while both.cursors._urgent:
                await asyncio.gather(*both.cursors._urgent)
        await move(read, offset, though_active=though_active)

    both.groups.offsets = {Read("a", both.read.topic, 0): 5}
    monkeypatch.setattr(both.groups, "move", joined_meanwhile)
    await both.cursors.synchronise()
    assert both.groups.active
    assert both.topic.subscriptions[GROUP].paused


async def test_consumers_of_a_name_that_is_not_linked_do_not_stop(both: Both) -> None:
    await both.topic.subscription(Wanted("apart", SubType.Exclusive))
    await both.cursors._broker.cluster.between.answered("groups.joining", b'"apart"')
    assert not both.cursors._urgent
    assert not both.topic.subscriptions["apart"].paused


async def test_what_is_committed_for_another_brokers_partition_is_told_there_until_it_hears(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = Others(both, monkeypatch)

    async def away(topic: Any, index: int) -> Any:
        raise NotOwned("it", Owned(7, 1))

    monkeypatch.setattr(both.cursors._topics, "open", away)
    both.progress.committed(GROUP, both.read.topic, 0, 2)
    both.progress.committed("h", both.read.topic, 0, None)
    others.error = BrokerError("silent")
    await both.rounds(1)
    others.error = None
    both.progress.committed(GROUP, both.read.topic, 0, 4)
    await both.rounds(3)
    told = [json.loads(asked) for _, _, asked in others.asked]
    assert [each[:2] for each in others.asked] == [(7, "groups.committed")] * 2
    assert sorted(told[-1]) == [["g", both.read.topic, 0, 4], ["h", both.read.topic, 0, None]]
    assert not both.cursors._behind


async def test_cursors_follow_what_another_brokers_groups_commit(both: Both) -> None:
    rows = [["g", both.read.topic, 0, 4], ["gone", both.read.topic, 0, None]]
    both.groups.active = True
    await both.cursors._broker.cluster.between.answered("groups.committed", json.dumps(rows).encode())
    await both.rounds(1)
    subscription = both.topic.subscriptions[GROUP]
    assert await both.cursors.offset_of(both.topic, subscription) == 4


@pytest.mark.parametrize(
    "asked",
    [
        b"",
        b"{}",
        b"1",
        b"[1]",
        b'[["g", "t"]]',
        b'[["g", "t", "0", 1]]',
        b'[["g", "t", true, 1]]',
        b'[["g", "t", 0]' + b', ["g", "t", 0]' * 500 + b"]",
        b"\xff",
    ],
)
async def test_what_cannot_be_read_ends_the_connection(both: Both, asked: bytes) -> None:
    between = both.cursors._broker.cluster.between
    for about in ("groups.committed", "groups.joining", "groups.look", "groups.move", "groups.forget"):
        with pytest.raises(ConnectionAbortedError):
            await between.answered(about, asked)
