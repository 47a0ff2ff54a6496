"""Random histories of a streams group: answers are lost, members fall silent, brokers start again, topics come late.

Members are seen from outside, as clients: no task is active at two of them, no process has a task twice; and when all
is quiet every task is active somewhere, and stands by as often as it can, and all know which process to ask for what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.coordination.caller import Caller
from magnetar.coordination.decision import Decision, Stated
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.configs import SameForAll
from magnetar.kafka.coordinators.decider import GroupsDecider
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.kafka.coordinators.streams.facts import facts_of
from magnetar.kafka.coordinators.streams.group import StreamsGroup
from magnetar.kafka.coordinators.streams.members import BeatAnswer
from magnetar.kafka.coordinators.streams.settings import StreamsSettings
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.streams_group_heartbeat_request import (
    Endpoint,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from magnetar.wire.kafka.messages.streams_group_heartbeat_response import TaskIds as Told
from magnetar.wire.kafka.messages.streams_group_heartbeat_response import TopicPartition
from tests.coordinators.consumer.test_history import World

GROUP = "g"
SESSION_MS = 45_000
REVOKE_MS = 60_000
SOMEBODY = st.integers(0, 9)
Tasks = frozenset[tuple[str, int]]
Served = tuple[Tasks, Tasks]
"""Partitions by topic that a process can be asked for: those it works on, and those it stands by for."""
WITH_ENDPOINT = "xy"
READ_BY = {"0": "a", "1": "r"}
REFUSALS = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.FENCED_INSTANCE_ID,
)


def topology() -> Topology:
    """Return two parts: the first reads ``a`` and repartitions, the second keeps state."""
    return Topology(
        epoch=0,
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=["a"], repartition_sink_topics=["r"]),
            Subtopology(
                subtopology_id="1",
                repartition_source_topics=[TopicInfo(name="r")],
                state_changelog_topics=[TopicInfo(name="c")],
            ),
        ],
    )


class Client(NamedTuple):
    """What a thread of an application knows."""

    member_id: str
    process_id: str
    instance_id: str | None
    epoch: int = 0
    active: Tasks = frozenset()
    standby: Tasks = frozenset()
    told: tuple[Tasks, Tasks] = (frozenset(), frozenset())
    """What it was told to have: what it has besides it gives up before its next heartbeat."""
    heard_ms: int = 0
    endpoints_epoch: int = -1
    endpoints: Mapping[str, Served] = {}


class Settings(SameForAll):
    """The same for all groups, of both parts."""

    def __init__(self, standbys: int) -> None:
        super().__init__(GroupSettings)
        self.streams = StreamsSettings(
            group_streams_num_standby_replicas=standbys,
            group_streams_assignment_interval_ms=0,
            group_streams_initial_rebalance_delay_ms=500,
        )

    def of(self, group_id: str, part):  # type: ignore[no-untyped-def]
        return self.streams if part is StreamsSettings else super().of(group_id, part)


class StreamsHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.now_ms = 0
        self.ids = 0
        self.facts: list[Stated] = []
        self.clients: list[Client] = []
        self.configs = Settings(0)
        self.makes_topics = True
        self.decider = self._fresh()

    def _fresh(self) -> GroupsDecider:
        return GroupsDecider(GroupSettings(), lambda: "unused", self.world, self.configs)  # type: ignore[arg-type]

    @initialize(size=st.integers(0, 4), standbys=st.integers(0, 2))
    def begin(self, size: int, standbys: int) -> None:
        self.world.sizes = {"a": size} if size else {}
        self.configs = Settings(standbys)
        self.decider = self._fresh()

    @precondition(lambda self: len(self.clients) < 6)
    @rule(process=st.sampled_from("xyz"), static=st.sampled_from([None, None, "one", "two"]))
    def join(self, process: str, static: str | None) -> None:
        self.ids += 1
        if any(each.instance_id == static for each in self.clients):
            static = None
        self.clients.append(Client(f"m{self.ids}", process, static, heard_ms=self.now_ms))
        self._beat(len(self.clients) - 1, lost=False)

    @precondition(lambda self: self.clients)
    @rule(who=SOMEBODY, lost=st.booleans())
    def beat(self, who: int, lost: bool) -> None:
        self._beat(who % len(self.clients), lost=lost)

    @rule(rounds=st.integers(1, 4))
    def rest(self, rounds: int) -> None:
        for _ in range(rounds):
            self.now_ms += 400
            for at in range(len(self.clients)):
                self._beat(at, lost=False)

    @precondition(lambda self: self.clients)
    @rule(who=SOMEBODY, how=st.sampled_from([-1, -2, 0]))
    def end(self, who: int, how: int) -> None:
        """A member leaves for good, for a moment, or dies."""
        client = self.clients.pop(who % len(self.clients))
        if how == 0 or (how == -2 and client.instance_id is None):
            return
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=client.member_id, member_epoch=how, instance_id=client.instance_id
        )
        try:
            self._take(self.decider.streams_heartbeat(request, Caller("c", "/h", 1), self.now_ms))
        except CoordinatorRefused as refused:
            if refused.code not in REFUSALS:
                raise

    @rule(makes=st.booleans())
    def topics_can_be_made(self, makes: bool) -> None:
        self.makes_topics = makes

    @rule(topic=st.sampled_from("rc"))
    def internal_topic_is_deleted(self, topic: str) -> None:
        self.world.version += 1
        self.world.sizes.pop(topic, None)

    @rule(size=st.integers(1, 4))
    def source_comes(self, size: int) -> None:
        self.world.version += 1
        self.world.sizes.setdefault("a", size)

    @rule(passed=st.sampled_from([1_000, 11_000, 30_000]))
    def wait(self, passed: int) -> None:
        self.now_ms += passed
        for at, client in enumerate(self.clients):
            if self.now_ms - client.heard_ms >= SESSION_MS - 1:
                self.clients[at] = self._anew(client)
        self._take(self.decider.expire(self.now_ms))

    @rule()
    def restart(self) -> None:
        self._again()

    @rule()
    def snapshot(self) -> None:
        before = self._stored()
        self.facts = [fact for some in self.decider.snapshot() for fact in some]
        assert self._again() == before

    def _again(self) -> list[object]:
        before = self._stored()
        self.decider = self._fresh()
        for fact in self.facts:
            self.decider.replay(fact)
        assert self._stored() == before
        assert self.decider.foreign == 0
        self._take(self.decider.resume(self.now_ms))
        return before

    def _stored(self) -> list[object]:
        group = self.decider.groups.get(GROUP)
        if not isinstance(group, StreamsGroup):
            return []
        return [sorted(facts_of(group)), dict(group.members), dict(group.targets), group.epoch]

    def _take(self, decision: Decision) -> object:  # type: ignore[type-arg]
        self.facts += decision.facts
        if isinstance(decision.answer, BeatAnswer) and self.makes_topics:
            for topic in decision.answer.missing:
                self.world.version += 1
                self.world.sizes[topic.name] = topic.partitions
        return decision.answer

    def _anew(self, client: Client) -> Client:
        return client._replace(
            epoch=0, active=frozenset(), standby=frozenset(), told=(frozenset(), frozenset())
        )

    def _beat(self, at: int, *, lost: bool) -> None:
        client = self.clients[at]
        client = client._replace(active=client.told[0], standby=client.told[1])
        self.clients[at] = client
        joins = client.epoch == 0
        endpoint = Endpoint(host=client.process_id, port=1) if client.process_id in WITH_ENDPOINT else None
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=client.member_id,
            member_epoch=client.epoch,
            instance_id=client.instance_id,
            rebalance_timeout_ms=REVOKE_MS if joins else -1,
            topology=topology() if joins else None,
            process_id=client.process_id if joins else None,
            user_endpoint=endpoint if joins else None,
            endpoint_information_epoch=client.endpoints_epoch,
            active_tasks=rows(client.active),
            standby_tasks=rows(client.standby),
            warmup_tasks=[],
        )
        try:
            answered = self._take(self.decider.streams_heartbeat(request, Caller("c", "/h", 1), self.now_ms))
        except CoordinatorRefused as refused:
            if refused.code not in REFUSALS:
                raise
            self.clients[at] = self._anew(client)
            return
        if lost:
            return
        assert isinstance(answered, BeatAnswer)
        response = answered.response
        told = client.told
        if response.active_tasks is not None:
            told = (pairs(response.active_tasks), pairs(response.standby_tasks or []))
        endpoints = client.endpoints
        if response.partitions_by_user_endpoint is not None:
            endpoints = {
                each.user_endpoint.host: (spread(each.active_partitions), spread(each.standby_partitions))
                for each in response.partitions_by_user_endpoint
            }
        self.clients[at] = client._replace(
            endpoints=endpoints,
            endpoints_epoch=response.endpoint_information_epoch,
            epoch=response.member_epoch,
            active=client.active | told[0],
            standby=client.standby | told[1],
            told=told,
            heard_ms=self.now_ms,
        )

    @invariant()
    def no_task_is_active_twice(self) -> None:
        active = Counter(task for client in self.clients for task in client.active)
        assert not active or max(active.values()) == 1, active

    @invariant()
    def no_process_has_a_task_twice(self) -> None:
        has = Counter(
            (client.process_id, task) for client in self.clients for task in client.active | client.standby
        )
        assert not has or max(has.values()) == 1, has

    def teardown(self) -> None:
        self.makes_topics = True
        self.world.version += 1
        self.world.sizes.setdefault("a", 2)
        for _ in range(14):
            self.now_ms += 11_000
            self._take(self.decider.expire(self.now_ms))
            for at in range(len(self.clients)):
                self._beat(at, lost=False)
        if not self.clients:
            return
        group = self.decider.groups[GROUP]
        assert group.state == "Stable", group.state
        size = self.world.sizes["a"]
        every = {(part, number) for part in "01" for number in range(size)}
        assert sorted(task for client in self.clients for task in client.active) == sorted(every)
        loads = [len(client.active) for client in self.clients]
        assert max(loads) - min(loads) <= 1
        processes = {client.process_id for client in self.clients}
        standbys = Counter(task for client in self.clients for task in client.standby)
        serves = {
            process: (
                frozenset((READ_BY[part], n) for each in clients for part, n in each.active),
                frozenset((READ_BY[part], n) for each in clients for part, n in each.standby),
            )
            for process in processes.intersection(WITH_ENDPOINT)
            for clients in [[each for each in self.clients if each.process_id == process]]
        }
        for client in self.clients:
            assert client.endpoints == serves
        wanted = min(self.configs.streams.group_streams_num_standby_replicas, len(processes) - 1)
        assert standbys == Counter({("1", number): wanted for number in range(size) if wanted})


def rows(tasks: Tasks) -> list[TaskIds]:
    found: dict[str, list[int]] = {}
    for part, number in sorted(tasks):
        found.setdefault(part, []).append(number)
    return [TaskIds(subtopology_id=part, partitions=numbers) for part, numbers in found.items()]


def pairs(told: list[Told]) -> Tasks:
    return frozenset((each.subtopology_id, number) for each in told for number in each.partitions)


def spread(told: list[TopicPartition]) -> Tasks:
    return frozenset((each.topic, number) for each in told for number in each.partitions)


TestStreamsHistory = StreamsHistory.TestCase
TestStreamsHistory.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_an_answer_that_was_lost_is_given_again_though_the_epoch_is_the_same() -> None:
    """A member waits for a task that another one has to give up; when it is given that, it does not hear of it."""
    history = StreamsHistory()
    history.begin(size=2, standbys=0)
    history.join(process="x", static=None)
    history.snapshot()
    history.join(process="x", static=None)
    history.join(process="x", static=None)
    history.internal_topic_is_deleted(topic="r")
    history.rest(rounds=2)
    epoch = history.clients[0].epoch
    history.beat(lost=True, who=0)
    history.beat(lost=False, who=0)
    assert history.clients[0].epoch == epoch
    active = sorted(task for client in history.clients for task in client.active | client.told[0])
    assert active == [("0", 0), ("0", 1), ("1", 0), ("1", 1)]


def test_a_static_member_that_comes_back_in_another_process_has_nothing_that_is_there_already() -> None:
    """Found by a history: it had its old place's tasks at once, and another member of its new process stood by."""
    history = StreamsHistory()
    history.begin(size=2, standbys=2)
    history.join(process="x", static="two")
    history.join(process="y", static=None)
    history.rest(rounds=4)
    assert {each.process_id: len(each.standby) for each in history.clients} == {"x": 1, "y": 1}
    history.end(who=0, how=-2)
    history.join(process="y", static="two")
    history.no_process_has_a_task_twice()
    history.no_task_is_active_twice()
    history._again()  # what is stored is what is so
    history.teardown()


def test_who_changes_brokers_hears_what_the_new_one_counts_anew() -> None:
    """Found by Kafka's own tests of interactive queries: both brokers had counted to one."""
    history = StreamsHistory()
    history.begin(size=2, standbys=0)
    history.join(process="x", static=None)
    history.restart()
    history.rest(rounds=4)
    (client,) = history.clients
    assert client.endpoints == {"x": (frozenset({("a", 0), ("a", 1), ("r", 0), ("r", 1)}), frozenset())}


def test_a_static_member_that_left_for_a_moment_releases_what_it_had_to_revoke() -> None:
    history = StreamsHistory()
    history.begin(size=1, standbys=0)
    history.join(process="x", static="one")
    history.rest(rounds=2)
    history.internal_topic_is_deleted(topic="r")
    history.makes_topics = False
    history.beat(lost=False, who=0)
    history.end(how=-2, who=0)
    history.restart()  # compares what is replayed with what was there


def test_endpoints_are_sent_again_when_a_topic_is_deleted_and_comes_back() -> None:
    history = StreamsHistory()
    history.begin(size=1, standbys=0)
    history.join(process="z", static=None)
    history.restart()
    history.join(process="x", static=None)
    history.internal_topic_is_deleted(topic="r")
    history.teardown()  # compares what clients know of endpoints with their tasks
