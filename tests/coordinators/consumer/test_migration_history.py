"""Random histories of one group with members of both protocols: it goes over from one to the other and back as they
come and go, while answers are lost, members fall silent, brokers start again and topics change.

Consumer-protocol members are those of `ConsumerHistory`. Classic ones are told by each other what to have while the
group is a classic one, and by the coordinator while it is not; eager ones give everything up before they join again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from magnetar.coordination.caller import Caller
from magnetar.coordination.decision import Assigned, Decision
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.consumer.actions import MakeTarget, ResolveRegexes
from magnetar.kafka.coordinators.consumer.embedded import read_assignment, read_subscription
from magnetar.kafka.coordinators.consumer.group import ConsumerGroup
from magnetar.kafka.coordinators.topics import compiled
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from magnetar.wire.kafka.messages.consumer_protocol_assignment import TopicPartition as Given
from magnetar.wire.kafka.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from magnetar.wire.kafka.messages.consumer_protocol_subscription import TopicPartition as Owns
from magnetar.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from magnetar.wire.kafka.messages.join_group_response import JoinGroupResponse
from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from magnetar.wire.kafka.messages.sync_group_response import SyncGroupResponse
from tests.coordinators.consumer.test_history import (
    GROUP,
    REVOKE_MS,
    SESSION_MS,
    SOMEBODY,
    ConsumerHistory,
    Owned,
)

E = ErrorCode
AGAIN = (E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID, E.MEMBER_ID_REQUIRED)


@dataclass
class Old:
    """What a consumer of the classic protocol knows."""

    topics: tuple[str, ...]
    member_id: str = ""
    generation: int = -1
    owned: Owned = frozenset()
    heard_ms: int = 0
    phase: str = "out"
    """``out``, ``joining`` (no answer yet), ``joined``, ``syncing`` (no answer yet), ``in``."""
    leads: list[tuple[str, bytes]] = field(default_factory=list)
    protocol: str = ""


class MigrationHistory(ConsumerHistory):
    def __init__(self) -> None:
        self.old: list[Old] = []
        self.eager = False
        super().__init__()
        self.settings = replace(self.settings, group_initial_rebalance_delay_ms=0)
        self.decider = self._fresh()

    @initialize(eager=st.booleans())
    def choose(self, eager: bool) -> None:
        self.eager = eager

    @rule(rounds=st.integers(1, 4))
    def rest(self, rounds: int) -> None:
        """Everybody has its turn, a few times."""
        for _ in range(rounds):
            self.now_ms += 100
            self._take(self.decider.expire(self.now_ms))
            for at in range(len(self.clients)):
                self._beat(at, full=False, lost=False)
            for old in self.old:
                self._step(old, lost=False)

    @precondition(lambda self: len(self.old) < 4)
    @rule(topics=st.sampled_from([("a",), ("a", "b")]), count=st.integers(1, 3))
    def join_classic(self, topics: tuple[str, ...], count: int) -> None:
        for _ in range(min(count, 4 - len(self.old))):
            self.old.append(Old(topics, heard_ms=self.now_ms))
            self._step(self.old[-1], lost=False)
            self._step(self.old[-1], lost=False)

    @precondition(lambda self: self.clients)
    @rule()
    def all_consumers_leave(self) -> None:
        while self.clients:
            self.leave(0, False)

    @precondition(lambda self: self.old)
    @rule(who=SOMEBODY, lost=st.booleans())
    def step_classic(self, who: int, lost: bool) -> None:
        self._step(self.old[who % len(self.old)], lost=lost)

    @precondition(lambda self: self.old)
    @rule(who=SOMEBODY, dies=st.booleans())
    def end_classic(self, who: int, dies: bool) -> None:
        old = self.old.pop(who % len(self.old))
        if not dies and old.member_id:
            request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=old.member_id)])
            self._take(self.decider.leave(request, self.now_ms))

    # One classic client.

    def _step(self, old: Old, *, lost: bool) -> None:
        if old.phase in ("joining", "syncing"):
            return
        try:
            if old.phase == "out":
                self._join(old, lost)
            elif old.phase == "joined":
                self._sync(old, lost)
            else:
                request = HeartbeatRequest(
                    group_id=GROUP, generation_id=old.generation, member_id=old.member_id
                )
                answer = self._take(self.decider.classic_heartbeat(request, self.now_ms))
                old.heard_ms = self.now_ms
                self._refused(old, answer.error_code)
        except CoordinatorRefused as refused:
            if refused.code not in AGAIN:
                raise
            self._refused(old, refused.code)

    def _refused(self, old: Old, code: int) -> None:
        if code == E.NONE:
            return
        old.phase = "out"
        if code != E.REBALANCE_IN_PROGRESS or self.eager:
            old.owned = frozenset()
        if code == E.UNKNOWN_MEMBER_ID:
            old.member_id = ""

    def _join(self, old: Old, lost: bool) -> None:
        if self.eager:
            old.owned = frozenset()
        said = ConsumerProtocolSubscription(topics=list(old.topics), generation_id=old.generation)
        for topic in "abc":
            held = sorted(index for topic_id, index in old.owned if topic_id[:1].decode() == topic)
            said.owned_partitions += [Owns(topic=topic, partitions=held)] if held else []
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REVOKE_MS,
            member_id=old.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="p", metadata=b"\0\2" + said.encode(2))],
        )
        old.phase = "joining"
        self.ids += 1
        answer = self._take(self.decider.join(request, Caller("c", "/h", 9), (old, "join"), self.now_ms))
        if answer is not None:
            self._answered(old, answer, lost)

    def _sync(self, old: Old, lost: bool) -> None:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=old.generation,
            member_id=old.member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in self._assign(old.leads)
            ],
        )
        old.phase = "syncing"
        answer = self._take(self.decider.sync(request, (old, "sync"), self.now_ms))
        if answer is not None:
            self._answered(old, answer, lost)

    def _assign(self, members: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        """Do as a leader: deal partitions out, and leave out those that another one has yet to give up."""
        said = {member_id: read_subscription(data) for member_id, data in members}
        owner = {
            (each.topic, index): member_id
            for member_id, one in said.items()
            for each in one.owned_partitions
            for index in each.partitions
        }
        given: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in said}
        for topic, size in sorted(self.world.sizes.items()):
            readers = sorted(member_id for member_id, one in said.items() if topic in one.topics)
            for index in range(size if readers else 0):
                wanted = readers[index % len(readers)]
                if owner.get((topic, index), wanted) == wanted:
                    given[wanted].setdefault(topic, []).append(index)
        return [
            (
                member_id,
                b"\0\0"
                + ConsumerProtocolAssignment(
                    assigned_partitions=[Given(topic=topic, partitions=each) for topic, each in rows.items()]
                ).encode(0),
            )
            for member_id, rows in given.items()
        ]

    def _answered(self, old: Old, answer: object, lost: bool) -> None:
        old.heard_ms = self.now_ms
        if lost:  # the connection is gone, the client begins anew with what it knows
            old.phase = "out"
            return
        assert isinstance(answer, JoinGroupResponse | SyncGroupResponse)
        if answer.error_code:
            assert answer.error_code in AGAIN, answer.error_code
            if isinstance(answer, JoinGroupResponse) and answer.error_code == E.MEMBER_ID_REQUIRED:
                old.member_id = answer.member_id
            self._refused(old, answer.error_code)
        elif isinstance(answer, JoinGroupResponse):
            old.member_id, old.generation, old.phase = answer.member_id, answer.generation_id, "joined"
            old.leads = [(each.member_id, bytes(each.metadata)) for each in answer.members]
        else:
            told = frozenset(
                (each.topic.encode() * 16, index)
                for each in read_assignment(bytes(answer.assignment)).assigned_partitions
                for index in each.partitions
            )
            revoked = old.owned - told
            old.owned, old.phase = told, "out" if revoked else "in"

    # Decisions.

    def _take(self, decision: Decision) -> object:  # type: ignore[type-arg,override]
        self.facts += decision.facts
        for (old, _), answer in decision.released:
            if any(each is old for each in self.old):
                self._answered(old, answer, lost=False)
        for action in decision.actions:
            result: object = None
            if isinstance(action, MakeTarget):
                result = action.make()
            elif isinstance(action, ResolveRegexes):
                result = {
                    text: frozenset(name for name in self.world.sizes if compiled(text).fullmatch(name))
                    for text in action.regexes
                }
            else:
                assert isinstance(action, Assigned)
            self._take(self.decider.done(action, result, self.now_ms))
        return decision.answer

    @rule(passed=st.sampled_from([1_000, 11_000, 30_000]))
    def wait(self, passed: int) -> None:
        super().wait(passed)
        for old in self.old:
            waits = old.phase in ("joining", "syncing")
            if not waits and self.now_ms - old.heard_ms >= SESSION_MS - 1:
                old.owned, old.phase = frozenset(), "out"

    @rule()
    def restart(self) -> None:
        self._disconnect()
        super().restart()

    @rule()
    def snapshot(self) -> None:
        self._disconnect()
        super().snapshot()

    def _disconnect(self) -> None:
        if not isinstance(self.decider.groups.get(GROUP), ConsumerGroup):
            self.epochs.clear()  # a classic generation that nobody was assigned anything in is forgotten
        for old in self.old:
            if old.phase in ("joining", "syncing"):
                old.phase = "out"

    @invariant()
    def nobody_owns_what_another_owns(self) -> None:
        super().nobody_owns_what_another_owns()
        seen = {each for client in self.clients for each in client.owned}
        for old in self.old:
            assert not seen & old.owned, f"{old.member_id} owns what another owns: {seen & old.owned}"
            seen |= old.owned

    @invariant()
    def the_groups_epoch_never_goes_back(self) -> None:
        group = self.decider.groups.get(GROUP)
        if group is None or group.is_empty:
            self.epochs.clear()  # its next members begin anew
            return
        epoch = group.epoch if isinstance(group, ConsumerGroup) else group.generation
        assert self.epochs.get(GROUP, 0) <= epoch
        self.epochs[GROUP] = epoch

    def teardown(self) -> None:
        for quiet in range(16):
            self.now_ms += 11_000
            self._take(self.decider.expire(self.now_ms))
            for at in range(len(self.clients)):
                self._beat(at, full=False, lost=False)
            if quiet == 8 and not self.clients:
                for old in self.old:  # as if its leader had heard which topics have changed meanwhile
                    old.phase = "out" if old.phase == "in" else old.phase
                    old.owned = frozenset() if self.eager else old.owned
            for _ in range(3):
                for old in self.old:
                    self._step(old, lost=False)
        if not self.clients and not self.old:
            return
        group = self.decider.groups[GROUP]
        assert group.state == "Stable", group.state
        assert isinstance(group, ConsumerGroup) == bool(self.clients)
        subscriptions = [each.subscription for each in self.clients] + [each.topics for each in self.old]
        wanted = {
            (name.encode() * 16, index)
            for subscription in subscriptions
            for name, size in self.world.sizes.items()
            if (
                name in subscription
                if isinstance(subscription, tuple)
                else compiled(subscription).fullmatch(name)
            )
            for index in range(size)
        }
        owned = [each for client in (*self.clients, *self.old) for each in client.owned]
        assert sorted(owned) == sorted(wanted)


TestMigrationHistory = MigrationHistory.TestCase
TestMigrationHistory.settings = settings(
    max_examples=120, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_who_joined_before_the_group_became_classic_is_not_given_what_another_has() -> None:
    """Found by a history: the broker ended between the change of protocol and the rebalance."""
    history = MigrationHistory()
    history.choose(eager=False)
    history.begin(a=1, b=2)
    history.join_classic(topics=("a", "b"), count=2)
    history.rest(1)
    history.join_classic(topics=("a",), count=1)
    history.join(subscription=("a",), static=None)
    history.step_classic(who=2, lost=False)
    history.all_consumers_leave()
    history.restart()
    history.step_classic(who=2, lost=False)
    history.nobody_owns_what_another_owns()
    history.teardown()


def test_what_a_classic_member_was_only_told_to_give_up_no_other_is_given() -> None:
    """Found by a history: the last consumer left, and another came before the classic member had rejoined."""
    history = MigrationHistory()
    history.choose(eager=False)
    history.begin(a=2, b=1)
    history.join_classic(topics=("a",), count=1)
    history.rest(1)
    history.join(subscription=("a",), static=None)
    history.rest(2)
    history.all_consumers_leave()
    (member,) = history.decider.groups[GROUP].members.values()
    (stands,) = read_assignment(member.assignment).assigned_partitions
    assert stands.partitions == [0, 1], "what it still reads stands in the log"
    history.join(subscription=("a",), static=None)
    history.nobody_owns_what_another_owns()
    history.teardown()


@pytest.mark.parametrize("again", [False, True], ids=["that is assigned", "that begins anew"])
def test_who_has_joined_a_generation_still_has_what_it_had_in_the_one_before(again: bool) -> None:
    """Amid a rebalance the group is assigned what it is to have next, or nothing, and its members own what they had."""
    history = MigrationHistory()
    history.choose(eager=False)
    history.begin(a=4, b=1)
    history.join_classic(topics=("a",), count=1)
    history.rest(1)
    first = history.old[0]
    history.join_classic(topics=("a",), count=1)
    history._step(first, lost=False)  # hears of it
    history._step(first, lost=False)  # joins the next generation
    assert (first.phase, len(first.owned)) == ("joined", 4)
    if again:
        history.join_classic(topics=("a",), count=1)
    else:
        second = history.old[1]
        history._take(
            history.decider.sync(
                SyncGroupRequest(
                    group_id=GROUP,
                    generation_id=first.generation,
                    member_id=first.member_id,
                    assignments=[
                        SyncGroupRequestAssignment(member_id=first.member_id, assignment=_given("a", 0, 1)),
                        SyncGroupRequestAssignment(member_id=second.member_id, assignment=_given("a")),
                    ],
                ),
                (replace(first), "the answer is lost"),
                history.now_ms,
            )
        )
    history.join(subscription=("a",), static=None)
    history.nobody_owns_what_another_owns()
    history.teardown()


def _given(topic: str, *partitions: int) -> bytes:
    rows = [Given(topic=topic, partitions=list(partitions))]
    return b"\0\0" + ConsumerProtocolAssignment(assigned_partitions=rows).encode(0)
