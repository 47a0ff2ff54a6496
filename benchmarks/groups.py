"""A group of a hundred members and a thousand partitions that one joins and one leaves, by both protocols; and what the
heartbeats of ten thousand members cost.

The members speak the protocol themselves, each on a connection of its own, and say every 100 ms that they live, so that
the time is the coordinator's and not that of an interval between heartbeats (3 s and more in stock clients). They
begin again when they are told to, give up what is taken from them at once, and say so with their next heartbeat.
These come 50 to 150 ms apart at random: members that were told at one moment would go on in step, and it would be
measured where in their step a change finds them.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from benchmarks.attacks.asked import of, part
from benchmarks.peers.server import Server
from benchmarks.samples import Samples
from benchmarks.thin import ThinClient
from magnetar.client.async_connection import AsyncConnection
from magnetar.client.settings import ClientSettings
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import ApiKey
from magnetar.wire.kafka.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from magnetar.wire.kafka.messages.consumer_protocol_assignment import TopicPartition as Assigned
from magnetar.wire.kafka.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

MEMBERS, BEATING = 100, 10_000
TOPICS, PARTITIONS = [f"shared-out-{number}" for number in range(10)], 100
_ALL = len(TOPICS) * PARTITIONS
_BEAT_S, _SESSION_MS, _PATIENCE_S = 0.1, 45_000, 120
_INTERVAL_S = 5.0
"""Between two heartbeats of a consumer group's member (``group.consumer.heartbeat.interval.ms``)."""
_NOT_YET = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class _Member(ABC):
    """One member of a group; ``generation`` is None while it has no assignment."""

    def __init__(self, connection: AsyncConnection, group: str) -> None:
        self._connection = connection
        self._group = group
        self.generation: int | None = None
        self.owned: set[tuple[object, int]] = set()

    async def ask(self, key: ApiKey, version: int, **given: Any) -> Any:
        return await self._connection.call(of(key)(**given), version)

    @abstractmethod
    async def join(self) -> None:
        """Become a member."""

    @abstractmethod
    async def beat(self) -> None:
        """Say that it lives, and do what it is told."""

    @abstractmethod
    async def leave(self) -> None:
        """Go."""

    async def live(self) -> None:
        while True:
            await asyncio.sleep(random.uniform(0.5, 1.5) * _BEAT_S)
            await self.beat()


class _Classic(_Member):
    """JoinGroup and SyncGroup; the leader shares out alike."""

    async def join(self) -> None:
        self._id = ""
        await self._begin()

    async def _begin(self) -> None:
        said = ConsumerProtocolSubscription(topics=TOPICS).encode(0)
        protocol = part(ApiKey.JOIN_GROUP, "JoinGroupRequestProtocol")
        self.generation = None
        while self.generation is None:
            joined = await self.ask(
                ApiKey.JOIN_GROUP, 7, group_id=self._group, session_timeout_ms=_SESSION_MS, rebalance_timeout_ms=60_000,
                member_id=self._id, protocol_type="consumer",
                protocols=[protocol(name="range", metadata=b"\0\0" + said)],
            )  # fmt: skip
            self._id = joined.member_id or self._id
            if joined.error_code in _NOT_YET:
                await asyncio.sleep(_BEAT_S)
                continue
            if joined.error_code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS):
                continue
            _check(joined.error_code)
            ids = [each.member_id for each in joined.members]
            synced = await self.ask(
                ApiKey.SYNC_GROUP, 3, group_id=self._group, generation_id=joined.generation_id, member_id=self._id,
                assignments=_shares(ids) if joined.leader == self._id else [],
            )  # fmt: skip
            if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                continue
            _check(synced.error_code)
            found = ConsumerProtocolAssignment.decode(memoryview(bytes(synced.assignment))[2:], 0)
            self.owned = {
                (each.topic, index) for each in found.assigned_partitions for index in each.partitions
            }
            self.generation = joined.generation_id

    async def beat(self) -> None:
        told = await self.ask(
            ApiKey.HEARTBEAT, 3, group_id=self._group, generation_id=self.generation, member_id=self._id
        )
        if told.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            await self._begin()
        else:
            _check(told.error_code)

    async def leave(self) -> None:
        identity = part(ApiKey.LEAVE_GROUP, "MemberIdentity")
        await self.ask(ApiKey.LEAVE_GROUP, 3, group_id=self._group, members=[identity(member_id=self._id)])


def _shares(ids: Sequence[str]) -> list[Any]:
    given = part(ApiKey.SYNC_GROUP, "SyncGroupRequestAssignment")
    rows: dict[str, dict[str, list[int]]] = {each: defaultdict(list) for each in ids}
    for number in range(_ALL):
        rows[ids[number % len(ids)]][TOPICS[number // PARTITIONS]].append(number % PARTITIONS)
    return [
        given(
            member_id=member,
            assignment=b"\0\0"
            + ConsumerProtocolAssignment(
                assigned_partitions=[Assigned(topic=name, partitions=some) for name, some in topics.items()]
            ).encode(0),
        )
        for member, topics in rows.items()
    ]


class _Consumer(_Member):
    """ConsumerGroupHeartbeat (KIP-848); the coordinator shares out."""

    def __init__(self, connection: AsyncConnection, group: str, topics: Sequence[str] = TOPICS) -> None:
        super().__init__(connection, group)
        self._id, self._epoch, self._changed, self._topics = str(uuid.uuid4()), 0, False, topics

    async def join(self) -> None:
        while True:
            told = await self.ask(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=self._group, member_id=self._id, member_epoch=0,
                rebalance_timeout_ms=60_000, subscribed_topic_names=list(self._topics), topic_partitions=[],
            )  # fmt: skip
            if told.error_code not in _NOT_YET:
                break
            await asyncio.sleep(_BEAT_S)
        self._take(told)

    async def beat(self) -> None:
        owned = None
        if self._changed:
            rows, topic = defaultdict(list), part(ApiKey.CONSUMER_GROUP_HEARTBEAT, "TopicPartitions")
            for topic_id, index in self.owned:
                rows[topic_id].append(index)
            owned = [topic(topic_id=topic_id, partitions=some) for topic_id, some in rows.items()]
            self._changed = False
        self._take(
            await self.ask(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=self._group, member_id=self._id,
                member_epoch=self._epoch, topic_partitions=owned,
            )
        )  # fmt: skip

    def _take(self, told: Any) -> None:
        _check(told.error_code)
        self._epoch = self.generation = told.member_epoch
        if told.assignment is not None:
            rows = told.assignment.topic_partitions
            self.owned = {(bytes(each.topic_id), index) for each in rows for index in each.partitions}
            self._changed = True

    async def leave(self) -> None:
        await self.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=self._group, member_id=self._id, member_epoch=-1
        )


def measure(server: Server, samples: Samples, times: int) -> None:
    """Have one member join and one leave ``times`` times, by each protocol."""
    with ThinClient.to(server.address) as client:
        client.create_topics(TOPICS, PARTITIONS)
        client.wait_for_coordinators(["group-classic", "group-consumer"])
    for name, kind in (("classic", _Classic), ("consumer", _Consumer)):
        for what, taken in asyncio.run(_changes(server, kind, f"group-{name}", times)):
            samples.add(f"group of 100, 1,000 partitions, {name}: one {what}, s", server.name, taken)


async def _changes(server: Server, kind: type[_Member], group: str, times: int) -> list[tuple[str, float]]:
    members: list[_Member] = [kind(await _connected(server), group) for _ in range(MEMBERS)]
    found = []
    async with asyncio.TaskGroup() as tasks:
        await asyncio.gather(*(each.join() for each in members))
        living = {each: tasks.create_task(each.live()) for each in members}
        await _settled(members, None)
        for _ in range(times):
            before, began = _newest(members), time.perf_counter()
            another = kind(await _connected(server), group)
            living[another] = tasks.create_task(_lives(another))
            await _settled([*members, another], before)
            found.append(("joins", time.perf_counter() - began))
            await asyncio.sleep(1)
            gone = members.pop(0)
            members.append(another)
            living.pop(gone).cancel()
            await asyncio.sleep(0.2)  # what it still asks is answered
            before, began = _newest(members), time.perf_counter()
            await gone.leave()
            await _settled(members, before)
            found.append(("leaves", time.perf_counter() - began))
            await asyncio.sleep(1)
        for task in living.values():
            task.cancel()
    return found


async def _lives(member: _Member) -> None:
    await member.join()
    await member.live()


def _newest(members: Sequence[_Member]) -> int:
    return max(each.generation or 0 for each in members)


async def _settled(members: Sequence[_Member], before: int | None) -> None:
    """Wait until all of them have the same newer generation, and all partitions among them, each once."""
    until = time.perf_counter() + _PATIENCE_S
    while True:
        generations = {each.generation for each in members}
        if len(generations) == 1 and None not in generations and generations != {before}:
            owned = [partition for each in members for partition in each.owned]
            if len(owned) == len(set(owned)) == _ALL:
                return
        if time.perf_counter() > until:
            raise RuntimeError(f"generations {generations} after {_PATIENCE_S} s")
        await asyncio.sleep(0.005)


def measure_heartbeats(server: Server, samples: Samples, seconds: float) -> None:
    """Have members of a hundred groups say that they live every 5 s; tell what it costs the broker."""
    with ThinClient.to(server.address) as client:
        client.create_topics(["beaten"], PARTITIONS)
        client.wait_for_coordinators([f"beating-{number}" for number in range(MEMBERS)])
    samples.add(
        "10,000 members' heartbeats, % of a core", server.name, asyncio.run(_beating(server, seconds))
    )


async def _beating(server: Server, seconds: float) -> float:
    each = BEATING // MEMBERS
    groups = [
        [_Consumer(connection, f"beating-{number}", ["beaten"]) for _ in range(each)]
        for number, connection in enumerate([await _connected(server) for _ in range(MEMBERS)])
    ]
    for group in groups:  # one after the other: what joins cost is not what is asked here
        await asyncio.gather(*(member.join() for member in group))
    members = [member for group in zip(*groups, strict=True) for member in group]
    for _ in range(2):
        await _round(members)
    cpu, began = server.cpu_seconds(), time.perf_counter()
    while time.perf_counter() - began < seconds:
        await _round(members)
    return (server.cpu_seconds() - cpu) * 100 / (time.perf_counter() - began)


async def _round(members: Sequence[_Member]) -> None:
    """Have each say once that it lives, evenly in the time between two heartbeats."""
    began, at_once = time.perf_counter(), len(members) // 250
    for start in range(0, len(members), at_once):
        await asyncio.gather(*(each.beat() for each in members[start : start + at_once]))
        await asyncio.sleep(
            max(0.0, began + _INTERVAL_S * (start + at_once) / len(members) - time.perf_counter())
        )


async def _connected(server: Server) -> AsyncConnection:
    settings = ClientSettings((("127.0.0.1", server.port),), request_timeout_s=_PATIENCE_S)
    return await AsyncConnection.connect("127.0.0.1", server.port, settings)


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"the coordinator answered {ErrorCode(code).name}")
