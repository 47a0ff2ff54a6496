"""Random histories of a consumer group: answers are lost, members fall silent, brokers start again, topics change.

Members are seen from outside, as clients: what one believes to own no other may own, whatever was lost on the way; and
when all is quiet everything has an owner.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.coordination.decision import Decision, Stated
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.consumer.actions import MakeTarget, ResolveRegexes
from magnetar.kafka.coordinators.consumer.facts import facts_of
from magnetar.kafka.coordinators.consumer.group import ConsumerGroup
from magnetar.kafka.coordinators.consumer.members import Beating
from magnetar.kafka.coordinators.decider import GroupsDecider
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.kafka.coordinators.topics import SeenTopic, compiled
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from magnetar.wire.kafka.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

GROUP = "g"
SESSION_MS = 45_000
REVOKE_MS = 60_000  # beyond the session: who is silent for it has stopped before
SUBSCRIPTIONS = st.sampled_from([("a",), ("b",), ("a", "b"), "[ab]", "a", "c.*"])
SOMEBODY = st.integers(0, 9)
Owned = frozenset[tuple[bytes, int]]


class World:
    """Topics that come, grow and go."""

    def __init__(self) -> None:
        self.version = 0
        self.sizes: dict[str, int] = {}

    def find(self, name: str) -> SeenTopic | None:
        return SeenTopic(name.encode() * 16, self.sizes[name]) if name in self.sizes else None

    def meant(self, written: str) -> str:
        return written

    def written(self, name: str) -> str:
        return name

    def name_of(self, topic_id: bytes) -> str | None:
        return topic_id[:1].decode() if topic_id[:1].decode() in self.sizes else None


class Client(NamedTuple):
    """What a consumer knows: its epoch, what it owns, and what it was told to own next."""

    member_id: str
    instance_id: str | None
    subscription: tuple[str, ...] | str
    epoch: int = 0
    owned: Owned = frozenset()
    told: Owned = frozenset()
    heard_ms: int = 0
    changed: bool = False


class ConsumerHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.settings = GroupSettings(group_consumer_assignment_interval_ms=0)
        self.now_ms = 0
        self.ids = 0
        self.facts: list[Stated] = []
        self.clients: list[Client] = []
        self.epochs: dict[str, int] = {}
        self.decider = self._fresh()

    def _fresh(self) -> GroupsDecider:
        return GroupsDecider(self.settings, lambda: f"made{self.ids}", self.world)  # type: ignore[arg-type]

    @initialize(a=st.integers(1, 5), b=st.integers(1, 5))
    def begin(self, a: int, b: int) -> None:
        self.world.sizes = {"a": a, "b": b}

    # What clients do.

    @precondition(lambda self: len(self.clients) < 5)
    @rule(subscription=SUBSCRIPTIONS, static=st.sampled_from([None, None, "one", "two"]))
    def join(self, subscription: tuple[str, ...] | str, static: str | None) -> None:
        self.ids += 1
        if any(each.instance_id == static for each in self.clients):
            static = None
        client = Client(f"m{self.ids}", static, subscription, heard_ms=self.now_ms)
        self.clients.append(client)
        self._beat(len(self.clients) - 1, full=True, lost=False)

    @precondition(lambda self: self.clients)
    @rule(who=SOMEBODY, lost=st.booleans(), full=st.booleans())
    def beat(self, who: int, lost: bool, full: bool) -> None:
        self._beat(who % len(self.clients), full=full, lost=lost)

    @precondition(lambda self: self.clients)
    @rule(who=SOMEBODY, subscription=SUBSCRIPTIONS)
    def subscribe(self, who: int, subscription: tuple[str, ...] | str) -> None:
        at = who % len(self.clients)
        self.clients[at] = self.clients[at]._replace(subscription=subscription, changed=True)
        self._beat(at, full=True, lost=False)

    @precondition(lambda self: self.clients)
    @rule(who=SOMEBODY, for_a_moment=st.booleans())
    def leave(self, who: int, for_a_moment: bool) -> None:
        at = who % len(self.clients)
        client = self.clients.pop(at)
        static = client.instance_id is not None and for_a_moment
        epoch = -2 if static else -1
        try:
            self._take(
                self.decider.heartbeat(
                    ConsumerGroupHeartbeatRequest(
                        group_id=GROUP,
                        member_id=client.member_id,
                        member_epoch=epoch,
                        instance_id=client.instance_id,
                    ),
                    Beating("c", "/h", 1),
                    self.now_ms,
                )
            )
        except CoordinatorRefused as refused:
            if refused.code not in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.FENCED_INSTANCE_ID,
            ):
                raise

    @precondition(lambda self: self.clients)
    @rule(who=SOMEBODY)
    def die(self, who: int) -> None:
        """A client that is gone owns nothing; its place in the group stays until its session is over."""
        self.clients.pop(who % len(self.clients))

    def _beat(self, at: int, *, full: bool, lost: bool) -> None:
        client = self.clients[at]
        joins = client.epoch == 0
        regex = client.subscription if isinstance(client.subscription, str) else None
        names = list(client.subscription) if isinstance(client.subscription, tuple) else None
        full = full or joins or client.changed
        # What it has to give up it has given up by now.
        owned = client.owned & client.told
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=client.member_id,
            member_epoch=client.epoch,
            instance_id=client.instance_id,
            rebalance_timeout_ms=REVOKE_MS if full else -1,
            subscribed_topic_names=(names or []) if full else None,
            subscribed_topic_regex=(regex or "") if full else None,
            topic_partitions=[] if joins else rows(owned),
        )
        client = client._replace(owned=owned)
        self.clients[at] = client
        try:
            answer = self._take(self.decider.heartbeat(request, Beating("c", "/h", 1), self.now_ms))
        except CoordinatorRefused as refused:
            if refused.code not in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.UNRELEASED_INSTANCE_ID,
                ErrorCode.FENCED_INSTANCE_ID,
            ):
                raise
            # As the field's clients: give up everything, and begin anew.
            self.clients[at] = client._replace(epoch=0, owned=frozenset(), told=frozenset())
            return
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        if lost:  # clients say everything again then
            self.clients[at] = client._replace(changed=True)
            return
        told = client.told if answer.assignment is None else pairs(answer.assignment.topic_partitions)
        self.clients[at] = client._replace(
            epoch=answer.member_epoch,
            told=told,
            owned=(owned & told) | told,
            heard_ms=self.now_ms,
            changed=False,
        )

    # What happens to all.

    @rule(topic=st.sampled_from("abc"), size=st.integers(0, 6))
    def change_topic(self, topic: str, size: int) -> None:
        """Topics grow or go; one that comes again has another id in life, and the same here, which is harder."""
        self.world.version += 1
        if size == 0:
            self.world.sizes.pop(topic, None)
        else:
            self.world.sizes[topic] = max(size, self.world.sizes.get(topic, 0))

    @rule(passed=st.sampled_from([1_000, 11_000, 30_000]))
    def wait(self, passed: int) -> None:
        self.now_ms += passed
        for at, client in enumerate(self.clients):
            # A client that has not been answered for a session stops, as all of them do.
            if self.now_ms - client.heard_ms >= SESSION_MS - 1:
                self.clients[at] = client._replace(epoch=0, owned=frozenset(), told=frozenset())
        self._take(self.decider.expire(self.now_ms))

    @rule()
    def restart(self) -> None:
        before = self._stored()
        self.decider = self._fresh()
        for fact in self.facts:
            self.decider.replay(fact)
        assert self._stored() == before
        self._take(self.decider.resume(self.now_ms))

    @rule()
    def snapshot(self) -> None:
        """The log is compacted."""
        before = self._stored()
        self.facts = [fact for some in self.decider.snapshot() for fact in some]
        self.decider = self._fresh()
        for fact in self.facts:
            self.decider.replay(fact)
        assert self._stored() == before
        self._take(self.decider.resume(self.now_ms))

    def _stored(self) -> list[object]:
        group = self.decider.groups.get(GROUP)
        return sorted(facts_of(group)) if isinstance(group, ConsumerGroup) else []

    def _take(self, decision: Decision) -> object:  # type: ignore[type-arg]
        self.facts += decision.facts
        for action in decision.actions:
            if isinstance(action, MakeTarget):
                result: object = action.make()
            else:
                assert isinstance(action, ResolveRegexes)
                result = {
                    text: frozenset(name for name in self.world.sizes if compiled(text).fullmatch(name))
                    for text in action.regexes
                }
            self._take(self.decider.done(action, result, self.now_ms))
        return decision.answer

    # What always holds.

    @invariant()
    def nobody_owns_what_another_owns(self) -> None:
        seen: dict[tuple[bytes, int], str] = {}
        for client in self.clients:
            for each in client.owned:
                assert each not in seen, f"{client.member_id} and {seen[each]} own {each}"
                seen[each] = client.member_id

    @invariant()
    def the_groups_epoch_never_goes_back(self) -> None:
        group = self.decider.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            assert group.assignment_epoch <= group.epoch
            assert self.epochs.get(GROUP, 0) <= group.epoch
            self.epochs[GROUP] = group.epoch

    def teardown(self) -> None:
        """Left alone, members come to have everything that they read, and the group to rest."""
        for _ in range(12):
            self.now_ms += 11_000
            self._take(self.decider.expire(self.now_ms))
            for at in range(len(self.clients)):
                self._beat(at, full=False, lost=False)
        if not self.clients:
            return
        group = self.decider.groups[GROUP]
        assert group.state == "Stable", group.state
        wanted: set[tuple[bytes, int]] = set()
        for client in self.clients:
            for name, size in self.world.sizes.items():
                named = isinstance(client.subscription, tuple) and name in client.subscription
                meant = isinstance(client.subscription, str) and compiled(client.subscription).fullmatch(name)
                if named or meant:
                    wanted |= {(name.encode() * 16, index) for index in range(size)}
        owned = [each for client in self.clients for each in client.owned]
        assert sorted(owned) == sorted(wanted)


def rows(owned: Owned) -> list[TopicPartitions]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(owned):
        topics.setdefault(topic_id, []).append(index)
    return [TopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in topics.items()]


def pairs(told: list[TopicPartitions]) -> Owned:
    return frozenset((each.topic_id, index) for each in told for index in each.partitions)


TestConsumerHistory = ConsumerHistory.TestCase
TestConsumerHistory.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
