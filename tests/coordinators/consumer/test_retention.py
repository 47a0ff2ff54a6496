"""How long offsets are kept of groups that the coordinator assigns: while a member reads the topic, then a while."""

from __future__ import annotations

import pytest

from magnetar.coordination.caller import Caller
from magnetar.coordination.decision import Decision
from magnetar.kafka.coordinators.consumer.members import Beating
from magnetar.kafka.coordinators.decider import GroupsDecider
from magnetar.kafka.coordinators.facts import Committer, OffsetCommit
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.wire.kafka.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from magnetar.wire.kafka.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from tests.coordinators.consumer.test_history import World

RETENTION_MS = 60 * 60_000
SETTINGS = GroupSettings(offsets_retention_minutes=60)


class Kept:
    """A group with one member and offsets of the topic that it reads, and of one that it does not."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        world = World()
        world.sizes = {"a": 1, "b": 1}
        self.decider = GroupsDecider(SETTINGS, lambda: "unused", world)  # type: ignore[arg-type]
        self.epoch = self.beat(0, 0)
        rows = [OffsetCommit(name, name.encode() * 16, 0, 5, -1, "") for name in "ab"]
        self.decider.offsets.commit("g", Committer(is_broker=True), rows, 9, 0)

    def beat(self, epoch: int, now_ms: int) -> int:
        if self.kind == "consumer":
            request = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                member_epoch=epoch,
                rebalance_timeout_ms=1000 if epoch == 0 else -1,
                subscribed_topic_names=["a"] if epoch == 0 else None,
                topic_partitions=[] if epoch == 0 else None,
            )
            decision: Decision = self.decider.heartbeat(request, Beating("c", "/h", 1), now_ms)  # type: ignore[type-arg]
            return decision.answer.member_epoch  # type: ignore[union-attr]
        streams = StreamsGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=epoch,
            rebalance_timeout_ms=1000 if epoch == 0 else -1,
            topology=Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=["a"])])
            if epoch == 0
            else None,
            process_id="p",
        )
        answer = self.decider.streams_heartbeat(streams, Caller("c", "/h", 1), now_ms).answer
        return answer.response.member_epoch  # type: ignore[union-attr]

    def topics(self, now_ms: int) -> list[str]:
        self.decider.offsets.expire(now_ms)
        return sorted(self.decider.offsets.fetch("g"))


@pytest.mark.parametrize("kind", ["consumer", "streams"])
def test_offsets_are_kept_while_somebody_reads_the_topic(kind: str) -> None:
    kept = Kept(kind)
    assert kept.topics(RETENTION_MS - 1) == ["a", "b"]
    assert kept.topics(RETENTION_MS) == ["a"], "nobody reads b"
    assert kept.topics(9 * RETENTION_MS) == ["a"]
    kept.beat(-1, 9 * RETENTION_MS)
    assert kept.topics(9 * RETENTION_MS) == [], "it was committed long ago"
    assert "g" not in kept.decider.groups, "nobody is in it, and it has nothing"


@pytest.mark.parametrize("kind", ["consumer", "streams"])
def test_offsets_of_a_group_that_was_left_are_kept_for_a_while(kind: str) -> None:
    kept = Kept(kind)
    kept.beat(-1, 1)
    assert kept.topics(RETENTION_MS - 1) == ["a", "b"]
    assert kept.topics(RETENTION_MS) == []
    assert "g" not in kept.decider.groups
