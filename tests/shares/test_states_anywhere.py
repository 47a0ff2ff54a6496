"""States of share partitions that another broker keeps: in which order they are written, and what a reader finds."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.base.background import Background
from magnetar.cluster.ownership import Owned
from magnetar.coordination.log import MemoryOffsetsLog
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shares.runs import RecordState
from magnetar.coordination.shares.share_partition import ShareChanges, StateBatch
from magnetar.kafka.handlers.delete_share_group_state import delete_share_group_state
from magnetar.kafka.handlers.initialize_share_group_state import initialize_share_group_state
from magnetar.kafka.handlers.read_share_group_state import read_share_group_state
from magnetar.kafka.handlers.read_share_group_state_summary import read_share_group_state_summary
from magnetar.kafka.handlers.write_share_group_state import write_share_group_state
from magnetar.kafka.other_brokers import OtherBrokerSilent
from magnetar.kafka.shares.state import ShareKey
from magnetar.kafka.shares.state_coordinator import ShareCoordinator
from magnetar.kafka.shares.state_decider import ShareStates
from magnetar.kafka.shares.states_anywhere import StatesAnywhere
from magnetar.wire.kafka.errors import ErrorCode

KEY = ShareKey("crew", bytes(15) + b"\1", 3)
HANDLERS: dict[str, Any] = {
    "InitializeShareGroupStateRequest": initialize_share_group_state,
    "ReadShareGroupStateRequest": read_share_group_state,
    "WriteShareGroupStateRequest": write_share_group_state,
    "DeleteShareGroupStateRequest": delete_share_group_state,
    "ReadShareGroupStateSummaryRequest": read_share_group_state_summary,
}


class Log(MemoryOffsetsLog):
    """A log of which each broker knows the same owner."""

    def __init__(self, node_id: int, house: House) -> None:
        super().__init__(8, "__share_group_state")
        self.node_id = node_id
        self.house = house

    def owner(self, partition: int) -> Owned | None:
        return None if self.house.owner is None else Owned(self.house.owner, 0)

    def is_mine(self, partition: int) -> bool:
        return self.house.owner == self.node_id


class House:
    """Broker 1, which is asked, and broker 2."""

    def __init__(self) -> None:
        self.owner: int | None = 2
        self.asked: list[Any] = []
        self.silent = 0
        """How many requests get lost after they were carried out."""
        self.open = asyncio.Event()
        self.open.set()
        self.background = Background()
        self.brokers = {
            node: ShareCoordinator(Log(node, self), self.background, lambda: 0) for node in (1, 2)
        }
        self.states = StatesAnywhere(
            self.brokers[1],
            self,  # type: ignore[arg-type]
            SimpleNamespace(node_id=1),  # type: ignore[arg-type]
            self.background,
        )

    async def start(self) -> House:
        for each in self.brokers.values():
            await each.follow_ownership()
            await each.loaded()
        return self

    async def ask(self, node_id: int, request: Any, home: str = "") -> Any:
        self.asked.append(request)
        await self.open.wait()
        shares = SimpleNamespace(states=self.brokers[node_id], forget=lambda key: None)

        async def get() -> Any:
            return shares

        broker = SimpleNamespace(get_by_id=lambda topic_id: SimpleNamespace(partitions=8))
        kafka = SimpleNamespace(shares=SimpleNamespace(get=get), broker=broker)
        answer = await HANDLERS[type(request).__name__](request, SimpleNamespace(kafka=kafka))
        if self.silent:
            self.silent -= 1
            raise OtherBrokerSilent("lost")
        return answer


def changes(start: int, *offsets: int, state: RecordState = RecordState.ACKNOWLEDGED) -> ShareChanges:
    return ShareChanges(start, 0, tuple(StateBatch(offset, offset, state, 1) for offset in offsets))


async def test_what_comes_meanwhile_goes_in_one_request_in_its_order() -> None:
    house = await House().start()
    await house.states.initialize(KEY, 0, 0)
    house.open.clear()
    first = house.states.write(KEY, 0, 5, changes(0, 7))
    while len(house.asked) < 2:  # noqa: ASYNC110 - it takes a few turns
        await asyncio.sleep(0)
    more = [
        house.states.write(KEY, 0, 5, changes(0, 9, state=RecordState.AVAILABLE)),
        house.states.write(KEY, 0, 5, changes(0, 9)),
        house.states.write(KEY, 0, 5, changes(1, 11)),
    ]
    house.open.set()
    await asyncio.gather(first, *more)
    assert len(house.asked) == 3
    state = await house.states.read(KEY, 5)
    assert (state.start_offset, [(each.first, each.state) for each in state.batches]) == (
        1,
        [(offset, RecordState.ACKNOWLEDGED) for offset in (7, 9, 11)],
    )


async def test_who_reads_finds_what_was_written_before() -> None:
    house = await House().start()
    await house.states.initialize(KEY, 0, 0)
    house.open.clear()
    written = house.states.write(KEY, 0, 5, changes(0, 7))
    reading = asyncio.ensure_future(house.states.read(KEY, 5))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(house.asked) == 2, "it asked before what was written had arrived"
    house.open.set()
    assert [each.first for each in (await reading).batches] == [7]
    assert written.done()


async def test_a_request_whose_answer_is_lost_is_sent_again() -> None:
    house = await House().start()
    house.silent = 1
    await house.states.initialize(KEY, 1, 4)
    house.silent = 1
    await house.states.write(KEY, 1, 5, changes(4, 7))
    house.silent = 1
    assert [each.first for each in (await house.states.read(KEY, 5)).batches] == [7]
    assert len(house.asked) == 6


async def test_what_was_to_go_to_another_broker_stays_here_once_the_state_has_come() -> None:
    house = await House().start()
    house.owner = None
    written = house.states.write(KEY, 1, 5, changes(4, 7))
    await asyncio.sleep(0)
    house.owner = 1
    await house.brokers[1].follow_ownership()
    await house.states.initialize(KEY, 1, 4)
    await written
    assert [each.first for each in (await house.states.read(KEY, 5)).batches] == [7]
    assert not house.asked


async def test_who_led_before_can_neither_write_nor_begin_anew() -> None:
    house = await House().start()
    await house.states.initialize(KEY, 0, 4)
    await house.states.read(KEY, 6)
    await house.states.write(KEY, 0, 6, changes(5))
    await house.states.initialize(KEY, 0, 0)
    assert (await house.states.read(KEY, 6)).start_offset == 5
    with pytest.raises(CoordinatorRefused) as refused:
        await house.states.write(KEY, 0, 5, changes(9))
    assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH


async def test_a_group_is_all_that_brokers_have_of_it_and_refused_while_something_moves() -> None:
    house = await House().start()
    keys = [ShareKey("crew", KEY.topic_id, index) for index in range(8)]
    for key in keys:
        await house.states.initialize(key, 1, key.partition)
    await house.states.initialize(ShareKey("others", KEY.topic_id, 0), 1, 0)
    found = await house.states.of_group("crew")
    assert {key: state.start_offset for key, state in found.items()} == {key: key.partition for key in keys}
    await house.states.delete(keys[0])
    assert set(await house.states.of_group("crew")) == set(keys[1:])
    house.owner = None
    with pytest.raises(CoordinatorRefused) as refused:
        await house.states.of_group("crew")
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_of_many_groups_each_has_its_own_and_one_that_is_forgotten_has_nothing() -> None:
    house = await House().start()
    for group in ("crew", "guests"):
        await house.states.initialize(ShareKey(group, KEY.topic_id, 2), 1, 0)
    found = await house.states.of_groups(["crew", "guests", "nobody"])
    assert {group: [key.partition for key in states] for group, states in found.items()} == {
        "crew": [2],
        "guests": [2],
        "nobody": [],
    }
    await house.states.delete(ShareKey("crew", KEY.topic_id, 2))
    house.brokers[2].forget_topic(bytes(16))
    found = await house.states.of_groups(["crew", "guests"])
    assert (len(found["crew"]), len(found["guests"])) == (0, 1)
    house.brokers[2].forget_topic(KEY.topic_id)
    assert not any((await house.states.of_groups(["crew", "guests"])).values())


async def test_a_broker_is_asked_for_many_groups_side_by_side_and_not_for_all_at_once() -> None:
    house = await House().start()
    groups = [f"g{number}" for number in range(100)]
    for number, group in enumerate(groups):
        await house.states.initialize(ShareKey(group, KEY.topic_id, 2), 1, number)
    house.asked.clear()
    house.open.clear()
    asking = asyncio.ensure_future(house.states.of_groups(groups))
    for _ in range(200):
        await asyncio.sleep(0)
    assert 2 <= len(house.asked) < 50
    house.open.set()
    found = await asking
    assert len(house.asked) == len(groups)
    assert [state.start_offset for group in groups for state in found[group].values()] == list(range(100))


async def test_of_many_groups_none_is_asked_for_when_one_was_refused() -> None:
    house = await House().start()
    house.silent = 1
    with pytest.raises(CoordinatorRefused):
        await house.states.of_groups([f"g{number}" for number in range(1000)])
    asked = len(house.asked)
    assert asked < 100
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(house.asked) == asked


def test_what_is_replayed_is_found_by_its_group_too() -> None:
    before, after = ShareStates(lambda: 0), ShareStates(lambda: 0)
    other = KEY._replace(group_id="guests")
    facts = [*before.initialize(KEY, 1, 7).facts, *before.initialize(other, 1, 8).facts]
    for fact in (*facts, *before.delete(other).facts):
        after.replay(fact)
    assert {key: state.start_offset for key, state in after.of_group("crew").items()} == {KEY: 7}
    assert after.of_group("guests") == {}
