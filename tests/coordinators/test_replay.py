"""Random histories: whatever members, clocks and crashes do, a few things always hold, and facts are all there is."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.coordination.caller import Caller
from magnetar.coordination.decision import Action, Decision, Stated
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.decider import GroupsDecider
from magnetar.kafka.coordinators.facts import Committer, OffsetCommit
from magnetar.kafka.coordinators.group import ClassicGroup, GroupState
from magnetar.kafka.coordinators.rebalance import join_key, session_key
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from magnetar.wire.kafka.messages.join_group_response import JoinGroupResponse
from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from magnetar.wire.kafka.messages.sync_group_response import SyncGroupResponse
from tests.coordinators.stage import subscription

GROUP = "g"
PROTOCOLS = st.lists(st.sampled_from(["range", "sticky", "other"]), min_size=1, max_size=3, unique=True)
INSTANCES = st.sampled_from([None, None, "one", "two"])
SOMEBODY = st.integers(0, 7)


class GroupHistory(RuleBasedStateMachine):
    """One group, its members seen from outside, and every fact that was decided."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = GroupSettings(group_max_size=4)
        self.now_ms = 0
        self.ids = 0
        self.requests = 0
        self.facts: list[Stated] = []
        self.slow = False
        self.late: list[Action] = []
        self.waiting: dict[int, str] = {}
        self.known: dict[str, int] = {}
        self.crews: dict[int, frozenset[str]] = {}
        self.generation = 0
        self.decider = self._fresh()

    def _fresh(self) -> GroupsDecider:
        return GroupsDecider(self.settings, self._new_id)

    def _new_id(self) -> str:
        self.ids += 1
        return str(self.ids)

    @property
    def group(self) -> ClassicGroup | None:
        return self.decider.groups.get(GROUP)

    def _token(self, what: str) -> int:
        self.requests += 1
        self.waiting[self.requests] = what
        return self.requests

    def _take(self, decision: Decision[object], token: int | None = None) -> None:
        self.facts += decision.facts
        answers = [(release.token, release.answer) for release in decision.released]
        if decision.answer is not None and token is not None:
            answers.append((token, decision.answer))
        for own, answer in answers:
            assert isinstance(own, int)
            assert self.waiting.pop(own, None) is not None, "a request was answered twice"
            if isinstance(answer, JoinGroupResponse):
                self._learn(answer)
            if isinstance(answer, SyncGroupResponse) and not answer.error_code:
                assert self.group is not None
                part = bytes(answer.assignment).decode()
                assert part == "" or part.endswith(f"@{self.group.generation}"), (
                    "a part of another generation"
                )
        self.late += decision.actions
        if not self.slow:
            self._keep()

    def _keep(self) -> None:
        while self.late:
            self._take(self.decider.done(self.late.pop(0), None, self.now_ms))

    @rule(slow=st.booleans())
    def disk(self, slow: bool) -> None:
        """Slow: facts become durable later, after whatever is asked meanwhile."""
        self.slow = slow
        if not slow:
            self._keep()

    def _learn(self, answer: JoinGroupResponse) -> None:
        if answer.error_code:
            if answer.member_id:
                self.known.setdefault(answer.member_id, -1)
            return
        self.known[answer.member_id] = answer.generation_id
        if answer.members:
            assert answer.leader == answer.member_id
            dynamic = frozenset(one.member_id for one in answer.members if one.group_instance_id is None)
            # Static members come back under new ids without a new generation.
            assert self.crews.setdefault(answer.generation_id, dynamic) == dynamic

    def _ask(self, decide: object, what: str) -> None:
        token = self._token(what)
        try:
            self._take(decide(token), token)  # type: ignore[operator]
        except CoordinatorRefused:
            del self.waiting[token]

    def _somebody(self, which: int) -> str:
        ids = list(self.known)
        return ids[which % len(ids)] if ids else "nobody"

    @initialize(size=st.integers(0, 3), static=st.booleans(), settle=st.booleans())
    def begin(self, size: int, static: bool, settle: bool) -> None:
        for index in range(size):
            self._join("", ["range", "sticky"], "one" if static and index == 0 else None, 3)
        if settle:
            self.everybody_does_as_told(False)

    @rule(protocols=PROTOCOLS, instance=INSTANCES, version=st.sampled_from([3, 9]))
    def join_new(self, protocols: list[str], instance: str | None, version: int) -> None:
        self._join("", protocols, instance, version)

    @rule(who=SOMEBODY, protocols=PROTOCOLS, instance=INSTANCES)
    def join_again(self, who: int, protocols: list[str], instance: str | None) -> None:
        self._join(self._somebody(who), protocols, instance, 9)

    @rule(who=SOMEBODY)
    def join_properly(self, who: int) -> None:
        member_id = self._somebody(who)
        group = self.group
        member = group.members.get(member_id) if group is not None else None
        if member is not None:
            self._join(member_id, [name for name, _ in member.protocols], member.instance_id, 9)
        else:
            self._join(member_id, ["range"], None, 9)

    def _join(self, member_id: str, protocols: list[str], instance: str | None, version: int) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=subscription(["t"])) for name in protocols
            ],
        )
        caller = Caller("c", "/127.0.0.1", version)
        self._ask(lambda token: self.decider.classic.join(request, caller, token, self.now_ms), "join")

    @rule(who=SOMEBODY)
    def sync(self, who: int) -> None:
        self._sync(self._somebody(who))

    def _sync(self, member_id: str) -> None:
        everybody = list(self.group.members) if self.group is not None else []
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.known.get(member_id, -1),
            member_id=member_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=one, assignment=self._part(one)) for one in everybody
            ],
        )
        self._ask(lambda token: self.decider.classic.sync(request, token, self.now_ms), "sync")

    def _part(self, member_id: str) -> bytes:
        assert self.group is not None
        return f"{member_id}@{self.group.generation}".encode()

    @rule(leader_last=st.booleans())
    def everybody_does_as_told(self, leader_last: bool) -> None:
        """Join whoever is missing, wait, sync: without this the group would hardly ever get anywhere."""
        group = self.group
        if group is None:
            return
        for member in [member for member in group.members.values() if member.joining is None]:
            if group.state is GroupState.PREPARING_REBALANCE:
                self._join(member.member_id, [name for name, _ in member.protocols], member.instance_id, 9)
        for member_id in list(group.pending):
            self._join(member_id, ["range", "sticky", "other"], None, 9)
        deadline_ms = self.decider.classic.timers.deadline(join_key(group))
        if group.state is GroupState.PREPARING_REBALANCE and deadline_ms is not None:
            self.let_time_pass(max(deadline_ms - self.now_ms, 0) // 1_000 + 1)
        for member_id in sorted(group.members, key=lambda one: (one == group.leader) == leader_last):
            self._sync(member_id)

    @rule(who=SOMEBODY)
    def heartbeat(self, who: int) -> None:
        member_id = self._somebody(who)
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=self.known.get(member_id, -1), member_id=member_id
        )
        self._ask(lambda token: self.decider.classic.heartbeat(request, self.now_ms), "heartbeat")

    @rule(who=st.lists(SOMEBODY, min_size=1, max_size=2))
    def leave(self, who: list[int]) -> None:
        members = [MemberIdentity(member_id=self._somebody(one)) for one in who]
        request = LeaveGroupRequest(group_id=GROUP, members=members)
        self._ask(lambda token: self.decider.classic.leave(request, self.now_ms), "leave")

    @rule(who=SOMEBODY, partition=st.integers(0, 2), offset=st.integers(0, 100), simple=st.booleans())
    def commit(self, who: int, partition: int, offset: int, simple: bool) -> None:
        member_id = self._somebody(who)
        committer = Committer() if simple else Committer(member_id, None, self.known.get(member_id, -1))
        commits = [OffsetCommit("t", bytes(16), partition, offset, -1, "")]
        self._ask(
            lambda token: self.decider.offsets.commit(GROUP, committer, commits, 9, self.now_ms), "commit"
        )

    @rule(partition=st.integers(0, 2))
    def delete_offset(self, partition: int) -> None:
        self._ask(lambda token: self.decider.offsets.delete(GROUP, [("t", partition)]), "delete")

    @precondition(lambda self: self.requests % 3 == 0)
    @rule()
    def delete_group(self) -> None:
        self._ask(lambda token: self.decider.offsets.delete_group(GROUP), "delete")
        if self.group is None:
            self._forget()

    @precondition(lambda self: self.requests % 7 == 0)
    @rule(days=st.sampled_from([0, 8]))
    def expire_offsets(self, days: int) -> None:
        self.now_ms += days * 86_400_000
        self._take(self.decider.classic.expire(self.now_ms))
        self._take(self.decider.offsets.expire(self.now_ms))
        if self.group is None:
            self._forget()

    @rule(seconds=st.sampled_from([1, 3, 3, 6, 9, 25]))
    def let_time_pass(self, seconds: int) -> None:
        end_ms = self.now_ms + seconds * 1_000
        timers = self.decider.classic.timers
        while (wake_ms := timers.wake_ms()) is not None and wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, wake_ms)
            self._take(self.decider.classic.expire(self.now_ms))
        self.now_ms = end_ms

    @precondition(lambda self: self.requests % 2 == 0)
    @rule()
    def crash(self) -> None:
        self.decider = self._fresh()
        for fact in self.facts:
            self.decider.replay(fact)
        self.waiting.clear()
        self.late.clear()
        # What was not assigned yet was never promised: that generation may be given out anew.
        self.generation = 0 if self.group is None else self.group.generation
        self.crews.clear()
        self._take(self.decider.resume(self.now_ms))

    def _forget(self) -> None:
        self.known.clear()
        self.crews.clear()
        self.generation = 0

    @invariant()
    def generations_grow_and_have_one_leader(self) -> None:
        group = self.group
        if group is None:
            return
        assert group.generation >= self.generation
        self.generation = group.generation
        assert (group.leader in group.members) if group.members else group.leader is None

    @invariant()
    def states_fit_their_members(self) -> None:
        group = self.group
        if group is None:
            return
        members = group.members.values()
        assert (group.state is GroupState.EMPTY) <= (not group.members)
        assert (group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)) <= bool(group.members)
        assert all(
            member.joining is None or group.state is GroupState.PREPARING_REBALANCE for member in members
        )
        assert all(
            member.syncing is None or group.state is GroupState.COMPLETING_REBALANCE for member in members
        )
        assert set(group.static.values()) == {m.member_id for m in members if m.is_static}
        assert not set(group.pending) & set(group.members)
        assert set(group.unsynced) <= set(group.members)
        assert len(group.members) <= 2 * self.settings.group_max_size
        if group.members:
            assert group.choose_protocol()

    @invariant()
    def who_waits_is_known_and_nobody_waits_forever(self) -> None:
        group = self.group
        tokens = set()
        timers = self.decider.classic.timers
        for member in group.members.values() if group is not None else ():
            tokens |= {member.joining, member.syncing} - {None}
            alive = session_key(group, member.member_id) in timers
            assert alive or member.may_be_silent
        assert tokens == set(self.waiting)
        if group is not None and group.state is GroupState.PREPARING_REBALANCE:
            assert join_key(group) in timers

    @invariant()
    def facts_tell_it_all(self) -> None:
        again = self._fresh()
        for fact in self.facts:
            again.replay(fact)
        assert _kept(again) == _kept(self.decider)
        replayed = self._fresh()
        for facts in self.decider.snapshot():
            for fact in facts:
                replayed.replay(fact)
        assert _kept(replayed) == _kept(self.decider)

    @precondition(lambda self: self.group is not None and self.group.state is GroupState.STABLE)
    @invariant()
    def a_stable_group_is_what_its_last_fact_says(self) -> None:
        group = self.group
        assert group is not None
        assert group.value() == group.stored


def _kept(decider: GroupsDecider) -> dict[str, object]:
    """Return what facts have to tell: the last word on each group, and its offsets."""
    return {
        group_id: (group.stored, {topic: dict(kept) for topic, kept in group.offsets.items()})
        for group_id, group in decider.groups.items()
        if group.stored is not None or group.offsets
    }


TestGroupHistory = GroupHistory.TestCase
TestGroupHistory.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
