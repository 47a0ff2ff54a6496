"""The target of a group with thousands of partitions is made in a thread, and stored when it is done."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.kafka.coordinators.actions import TargetAction
from magnetar.kafka.coordinators.consumer.members import Beating
from magnetar.kafka.coordinators.decider import GroupsDecider
from magnetar.kafka.coordinators.kinds import CONSUMER, SHARE, GroupKind
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.kafka.coordinators.topics import NoTopics
from magnetar.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from magnetar.wire.kafka.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from tests.coordinators.consumer.test_history import World

PARTITIONS = 2_500
CALLER = Beating("client", "/host", 1)


def joined(kind: GroupKind) -> tuple[GroupsDecider, TargetAction]:
    """Return a decider whose one member has joined, and what it asks for."""
    world = World()
    world.sizes["t"] = PARTITIONS
    decider = GroupsDecider(GroupSettings(), lambda: "id", world)
    if kind is CONSUMER:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        decision = decider.heartbeat(request, CALLER, 0)
    else:
        decision = decider.share_heartbeat(
            ShareGroupHeartbeatRequest(group_id="g", member_id="m", subscribed_topic_names=["t"]), CALLER, 0
        )
    (action,) = decision.actions
    assert isinstance(action, TargetAction)
    return decider, action


@pytest.mark.parametrize("kind", [CONSUMER, SHARE], ids=lambda kind: kind.name)
async def test_it_counts_from_the_moment_that_it_is_made(kind: GroupKind) -> None:
    decider, action = joined(kind)
    group = decider.groups["g"]
    assert group.assigning
    assert not group.targets
    made = await asyncio.ensure_future(action.carry_out(NoTopics()))  # type: ignore[arg-type]
    facts = decider.done(action, made, 0).facts
    assert not group.assigning
    assert group.assignment_epoch == action.epoch
    assert {each: len(numbers) for each, numbers in group.targets["m"].items()} == {b"t" * 16: PARTITIONS}
    again = GroupsDecider(GroupSettings(), lambda: "id")
    for fact in facts:
        again.replay(fact)
    assert kind.own(again.groups["g"]).targets == group.targets


@pytest.mark.parametrize("kind", [CONSUMER, SHARE], ids=lambda kind: kind.name)
def test_one_that_could_not_be_made_is_made_again(kind: GroupKind) -> None:
    decider, action = joined(kind)
    assert decider.done(action, RuntimeError("no thread"), 0).facts == ()
    assert not decider.groups["g"].assigning
    assert decider.groups["g"].epoch > decider.groups["g"].assignment_epoch
