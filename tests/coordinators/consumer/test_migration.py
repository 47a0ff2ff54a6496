"""What of a group that goes over to the other protocol is told, refused, and there again after a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from magnetar.coordination.caller import Caller
from magnetar.coordination.decision import Decision, Stated
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.consumer.embedded import read_assignment, subscription_of
from magnetar.kafka.coordinators.consumer.group import ConsumerGroup
from magnetar.kafka.coordinators.consumer.members import Beating
from magnetar.kafka.coordinators.consumer.views import described
from magnetar.kafka.coordinators.decider import GroupsDecider
from magnetar.kafka.coordinators.facts import Committer, OffsetCommit
from magnetar.kafka.coordinators.group import ClassicGroup, GroupState
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from magnetar.wire.kafka.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from magnetar.wire.kafka.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from magnetar.wire.kafka.messages.consumer_protocol_subscription import TopicPartition as Owns
from magnetar.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinators.consumer.test_history import World

E = ErrorCode
A = b"a" * 16
SETTINGS = GroupSettings(group_initial_rebalance_delay_ms=0, group_consumer_assignment_interval_ms=0)


class Played:
    """One group of which member ``c`` is a classic one with partitions 0 to 3 of topic ``a``."""

    def __init__(
        self, settings: GroupSettings = SETTINGS, user_data: bytes | None = None, kind: str = "consumer"
    ):
        self.settings = settings
        self.world = World()
        self.world.sizes = {"a": 4}
        self.facts: list[Stated] = []
        self.now_ms = 1_000
        self.decider = self._fresh()
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            protocol_type=kind,
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription_of(["a"]))],
        )
        self.take(self.decider.join(request, Caller("c", "/h", 3), "join", self.now_ms))
        self.take(self.decider.expire(self.now_ms + 1))
        (self.member_id,) = self.decider.groups["g"].members
        given = ConsumerProtocolAssignment(
            assigned_partitions=[TopicPartition(topic="a", partitions=[0, 1, 2, 3])], user_data=user_data
        )
        part = SyncGroupRequestAssignment(member_id=self.member_id, assignment=bytes(2) + given.encode(0))
        sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=self.member_id, assignments=[part])
        self.take(self.decider.sync(sync, "sync", self.now_ms))

    def _fresh(self) -> GroupsDecider:
        return GroupsDecider(self.settings, lambda: "made", self.world)  # type: ignore[arg-type]

    def take(self, decision: Decision) -> object:  # type: ignore[type-arg]
        self.facts += decision.facts
        for action in decision.actions:
            self.take(self.decider.done(action, None, self.now_ms))
        return decision.answer

    def restart(self) -> None:
        self.decider = self._fresh()
        for fact in self.facts:
            self.decider.replay(fact)
        self.take(self.decider.resume(self.now_ms))

    def beat(self, member: str, epoch: int, owned: list[int] | None = None) -> object:
        rows = None if owned is None else [TopicPartitions(topic_id=A, partitions=owned)] if owned else []
        return self.take(
            self.decider.heartbeat(
                ConsumerGroupHeartbeatRequest(
                    group_id="g",
                    member_id=member,
                    member_epoch=epoch,
                    rebalance_timeout_ms=20_000 if epoch == 0 else -1,
                    subscribed_topic_names=["a"] if epoch == 0 else None,
                    topic_partitions=[] if epoch == 0 else rows,
                ),
                Beating("n", "/h", 1),
                self.now_ms,
            )
        )

    def classic(self, generation: int) -> int:
        request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=self.member_id)
        return self.take(self.decider.classic_heartbeat(request, self.now_ms)).error_code  # type: ignore[attr-defined]

    def rejoin(self) -> tuple[int, list[int]]:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription_of(["a"]))],
        )
        joined = self.take(self.decider.join(request, Caller("c", "/h", 9), "join", self.now_ms))
        sync = SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,  # type: ignore[attr-defined]
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
        )
        synced = self.take(self.decider.sync(sync, "sync", self.now_ms))
        rows = read_assignment(bytes(synced.assignment)).assigned_partitions  # type: ignore[attr-defined]
        return joined.generation_id, [index for row in rows for index in row.partitions]  # type: ignore[attr-defined]


def test_a_classic_member_goes_on_and_makes_room() -> None:
    played = Played()
    joined = played.beat("n", 0)
    assert joined.member_epoch == 2  # type: ignore[attr-defined]
    assert joined.assignment.topic_partitions == [], "what the other has it cannot have yet"  # type: ignore[attr-defined]
    group = played.decider.groups["g"]
    assert isinstance(group, ConsumerGroup)
    told = described(group, played.world, SETTINGS)  # type: ignore[arg-type]
    assert (told.group_state, [each.member_type for each in told.members]) == ("Reconciling", [0, 1])
    assert played.classic(1) == E.REBALANCE_IN_PROGRESS
    epoch, has = played.rejoin()
    assert (epoch, len(has)) == (2, 2)
    assert played.classic(2) == E.NONE
    answer = played.beat("n", 2)
    (row,) = answer.assignment.topic_partitions  # type: ignore[attr-defined]
    assert sorted(row.partitions + has) == [0, 1, 2, 3]
    assert played.decider.groups["g"].state == "Stable"


def test_a_member_is_taken_over_by_what_it_says_for_the_protocol_that_was_chosen() -> None:
    """It may say other topics for another one that it would have preferred."""
    played = Played()
    group = played.decider.groups["g"]
    assert isinstance(group, ClassicGroup)
    member = group.members[played.member_id]
    member.protocols = [("preferred", subscription_of(["b"])), *member.protocols]
    played.beat("n", 0)
    upgraded = played.decider.groups["g"]
    assert isinstance(upgraded, ConsumerGroup)
    assert list(upgraded.members[played.member_id].topics) == ["a"]


def test_a_transaction_may_commit_for_a_group_with_members_without_naming_one() -> None:
    """So do producers that know nothing of their consumer's group; those that do are held to what they say."""
    group = Played().decider.groups["g"]
    assert isinstance(group, ClassicGroup)
    group.check_committer(Committer(), [], 5, in_transaction=True)
    with pytest.raises(CoordinatorRefused) as refused:
        group.check_committer(Committer(), [], 5, in_transaction=False)
    assert refused.value.code == E.UNKNOWN_MEMBER_ID
    with pytest.raises(CoordinatorRefused):
        group.check_committer(Committer("other"), [], 5, in_transaction=True)


def test_of_what_several_claim_the_leader_disposes_then_the_latest_generation() -> None:
    """A consumer group knows one owner of a partition: who has missed a generation may claim what it has no more."""
    world = World()
    world.sizes = {"a": 4}
    names = iter("xyz")
    decider = GroupsDecider(SETTINGS, lambda: next(names), world)  # type: ignore[arg-type]
    claims = {"c-x": (5, [0, 1, 2]), "c-y": (7, [1, 2, 3]), "c-z": (6, [1, 7])}
    for generation, owned in claims.values():
        rows = [Owns(topic="a", partitions=owned), Owns(topic="gone", partitions=[0])]
        said = ConsumerProtocolSubscription(topics=["a"], owned_partitions=rows, generation_id=generation)
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="p", metadata=b"\0\2" + said.encode(2))],
        )
        decider.join(request, Caller("c", "/h", 3), "join", 1_000)
    decider.expire(1_001)
    given = {"c-x": [3], "c-y": [], "c-z": []}
    parts = []
    for member_id, partitions in given.items():
        made = ConsumerProtocolAssignment(
            assigned_partitions=[TopicPartition(topic="a", partitions=partitions)]
        )
        parts.append(SyncGroupRequestAssignment(member_id=member_id, assignment=bytes(2) + made.encode(0)))
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="c-x", assignments=parts)
    for action in decider.sync(sync, "sync", 1_002).actions:
        decider.done(action, None, 1_002)
    decider.heartbeat(
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="n",
            rebalance_timeout_ms=20_000,
            subscribed_topic_names=["a"],
            topic_partitions=[],
        ),
        Beating("n", "/h", 1),
        1_003,
    )
    group = decider.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert {each: dict(group.members[each].assigned) for each in claims} == {
        "c-x": {A: frozenset({0, 3})},
        "c-y": {A: frozenset({1, 2})},
        "c-z": {A: frozenset({7})},
    }
    assert group.members["n"].assigned == {}
    assert group.members["c-x"].has_had(A, 0, 1), "it may commit what it reads"


def test_who_is_a_classic_member_is_so_after_a_restart() -> None:
    played = Played()
    played.beat("n", 0)
    played.rejoin()
    played.restart()
    assert played.classic(2) == E.NONE
    group = played.decider.groups["g"]
    side = group.members[played.member_id].classic  # type: ignore[union-attr]
    assert side is not None
    assert (side.session_timeout_ms, side.protocols) == (10_000, (("range", subscription_of(["a"])),))
    played.now_ms += 10_001  # its own session, not the broker's 45 s
    played.take(played.decider.expire(played.now_ms))
    assert list(played.decider.groups["g"].members) == ["n"]


@pytest.mark.parametrize("by", ["heartbeat", "LeaveGroup", "silence"])
@pytest.mark.parametrize("restarts", [False, True])
def test_without_its_last_consumer_it_is_a_classic_group_and_rebalances(by: str, restarts: bool) -> None:
    played = Played()
    played.beat("n", 0)
    played.rejoin()
    played.beat("n", 2)
    if by == "heartbeat":
        played.beat("n", -1)
    elif by == "LeaveGroup":
        leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="n")])
        played.take(played.decider.leave(leave, played.now_ms))
    else:
        for _ in range(6):
            played.now_ms += 9_000
            played.take(played.decider.expire(played.now_ms))
            if isinstance(played.decider.groups["g"], ConsumerGroup):
                assert played.classic(2) == E.NONE
    group = played.decider.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert list(group.members) == [played.member_id]
    if not restarts:
        assert group.state is GroupState.PREPARING_REBALANCE
        assert played.classic(2) == E.REBALANCE_IN_PROGRESS
        return
    played.restart()  # before the next generation: whoever has left is not forgotten, or nobody got what it had
    passed_ms = 0
    while played.classic(2) == E.NONE:
        assert passed_ms < 60_000
        passed_ms += 9_000
        played.now_ms += 9_000
        played.take(played.decider.expire(played.now_ms))
    assert played.classic(2) == E.REBALANCE_IN_PROGRESS
    assert list(played.decider.groups["g"].members) == [played.member_id]


@pytest.mark.parametrize(
    ("policy", "up", "down"),
    [
        ("bidirectional", True, True),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("disabled", False, False),
    ],
)
def test_the_policy_says_what_is_done(policy: str, up: bool, down: bool) -> None:
    played = Played(replace(SETTINGS, group_consumer_migration_policy=policy))
    if not up:
        with pytest.raises(CoordinatorRefused, match="online upgrade is disabled") as refused:
            played.beat("n", 0)
        assert refused.value.code == E.GROUP_ID_NOT_FOUND
        assert played.classic(1) == E.NONE, "nothing has changed"
        return
    played.beat("n", 0)
    played.rejoin()
    played.beat("n", -1)
    assert isinstance(played.decider.groups["g"], ClassicGroup) == down
    if not down:
        played.classic(2)
        assert played.classic(2) == E.REBALANCE_IN_PROGRESS
        assert sorted(played.rejoin()[1]) == [0, 1, 2, 3], "the group goes on with classic members alone"


def test_groups_that_cannot_go_over_stay_what_they_are() -> None:
    for played, why in (
        (Played(user_data=b"x"), "custom assignor"),
        (Played(kind="connect"), "does not use the consumer embedded protocol"),
        (Played(replace(SETTINGS, group_consumer_max_size=0)), "maximum size"),
    ):
        before = len(played.facts)
        with pytest.raises(CoordinatorRefused, match=why) as refused:
            played.beat("n", 0)
        assert (refused.value.code, len(played.facts)) == (E.GROUP_ID_NOT_FOUND, before)
        assert played.classic(1) == E.NONE


def test_what_a_member_has_had_it_may_commit_with_an_older_epoch() -> None:
    played = Played()
    played.beat("n", 0)
    _, has = played.rejoin()
    (row,) = played.beat("n", 2).assignment.topic_partitions  # type: ignore[attr-defined]

    def commit(member: str, epoch: int, partition: int) -> ErrorCode:
        row = OffsetCommit("a", A, partition, 5, -1, "")
        try:
            decision = played.decider.offsets.commit(
                "g", Committer(member, None, epoch), [row], 9, played.now_ms
            )
        except CoordinatorRefused as refused:
            return refused.code
        return decision.answer[0]  # type: ignore[index]

    assert commit(played.member_id, 2, has[0]) == E.NONE
    assert commit(played.member_id, 1, has[0]) == E.NONE
    assert commit(played.member_id, 1, row.partitions[0]) == E.ILLEGAL_GENERATION
    assert commit(played.member_id, 3, has[0]) == E.ILLEGAL_GENERATION
    assert commit("n", 2, row.partitions[0]) == E.NONE
    assert commit("n", 1, row.partitions[0]) == E.STALE_MEMBER_EPOCH
    played.restart()
    assert commit(played.member_id, 1, has[0]) == E.NONE
    assert commit("n", 1, row.partitions[0]) == E.STALE_MEMBER_EPOCH


def test_bad_classic_requests_to_a_consumer_group() -> None:
    played = Played()
    played.beat("n", 0)
    played.rejoin()
    before = list(played.facts)

    def join(**fields: object) -> ErrorCode:
        request = {
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=subscription_of(["a"]))],
        } | fields
        try:
            answer = played.decider.join(JoinGroupRequest(**request), Caller("c", "/h", 9), "t", 1_000).answer  # type: ignore[arg-type]
        except CoordinatorRefused as refused:
            return refused.code
        return ErrorCode(answer.error_code)  # type: ignore[union-attr]

    garbage = [JoinGroupRequestProtocol(name="range", metadata=b"\0\1\xff")]
    other = [JoinGroupRequestProtocol(name="mine", metadata=subscription_of(["a"]))]
    assert join() == E.MEMBER_ID_REQUIRED
    assert join(member_id="x", protocols=garbage) == E.INCONSISTENT_GROUP_PROTOCOL
    assert join(member_id="x", protocols=other) == E.INCONSISTENT_GROUP_PROTOCOL
    assert join(member_id="x", protocols=[]) == E.INCONSISTENT_GROUP_PROTOCOL
    assert join(member_id="x", protocol_type="connect") == E.INCONSISTENT_GROUP_PROTOCOL
    assert join(member_id="x", session_timeout_ms=1) == E.INVALID_SESSION_TIMEOUT
    assert join(member_id="x", group_instance_id="nobody") == E.UNKNOWN_MEMBER_ID
    with pytest.raises(CoordinatorRefused) as refused:
        played.decider.classic_heartbeat(
            HeartbeatRequest(group_id="g", generation_id=2, member_id="n"), 1_000
        )
    assert refused.value.code == E.UNKNOWN_MEMBER_ID, "it does not speak the classic protocol"
    assert played.facts == before
