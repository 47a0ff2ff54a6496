"""Says the same to two brokers, ours and Kafka, and shows where their answers about groups differ.

    python -m tests.coordinators.against_kafka OURS KAFKA        (each HOST:PORT; Kafka with its default settings)
    python -m tests.coordinators.against_kafka --record KAFKA    keeps Kafka's answers in kafka_answers.txt

``test_conversation`` compares ours with those that were kept.
"""

from __future__ import annotations

import asyncio
import re
import struct
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from magnetar.wire.kafka.message import Message, Record
from magnetar.wire.kafka.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.create_topics_response import CreateTopicsResponse
from magnetar.wire.kafka.messages.delete_groups_request import DeleteGroupsRequest
from magnetar.wire.kafka.messages.delete_groups_response import DeleteGroupsResponse
from magnetar.wire.kafka.messages.describe_groups_request import DescribeGroupsRequest
from magnetar.wire.kafka.messages.describe_groups_response import DescribeGroupsResponse
from magnetar.wire.kafka.messages.find_coordinator_request import FindCoordinatorRequest
from magnetar.wire.kafka.messages.find_coordinator_response import FindCoordinatorResponse
from magnetar.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from magnetar.wire.kafka.messages.heartbeat_response import HeartbeatResponse
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from magnetar.wire.kafka.messages.join_group_response import JoinGroupResponse
from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.leave_group_response import LeaveGroupResponse
from magnetar.wire.kafka.messages.list_groups_request import ListGroupsRequest
from magnetar.wire.kafka.messages.list_groups_response import ListGroupsResponse
from magnetar.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from magnetar.wire.kafka.messages.offset_commit_response import OffsetCommitResponse
from magnetar.wire.kafka.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from magnetar.wire.kafka.messages.offset_delete_response import OffsetDeleteResponse
from magnetar.wire.kafka.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from magnetar.wire.kafka.messages.offset_fetch_response import OffsetFetchResponse
from magnetar.wire.kafka.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from magnetar.wire.kafka.messages.sync_group_response import SyncGroupResponse
from tests.coordinators.stage import subscription

ANSWERS: dict[type[Message], type[Message]] = {
    CreateTopicsRequest: CreateTopicsResponse,
    DeleteGroupsRequest: DeleteGroupsResponse,
    DescribeGroupsRequest: DescribeGroupsResponse,
    FindCoordinatorRequest: FindCoordinatorResponse,
    HeartbeatRequest: HeartbeatResponse,
    JoinGroupRequest: JoinGroupResponse,
    LeaveGroupRequest: LeaveGroupResponse,
    ListGroupsRequest: ListGroupsResponse,
    OffsetCommitRequest: OffsetCommitResponse,
    OffsetDeleteRequest: OffsetDeleteResponse,
    OffsetFetchRequest: OffsetFetchResponse,
    SyncGroupRequest: SyncGroupResponse,
}
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[A-Za-z0-9_-]{22}(?![\w-])")
_LEFT_OUT = {"throttle_time_ms", "node_id", "host", "port", "topic_config_error_code", "configs"}


async def say(address: str, request: Message, version: int) -> Any:
    """Send one request on a connection of its own, and give the answer."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    flexible = version >= request.FLEXIBLE_SINCE
    header = struct.pack(">hhih", request.API_KEY, version, 1, 1) + b"c" + (b"\0" if flexible else b"")
    frame = header + request.encode(version)
    writer.write(struct.pack(">i", len(frame)) + frame)
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    body = (await reader.readexactly(size))[5 if flexible else 4 :]
    writer.close()
    return ANSWERS[type(request)].decode(body, version)


def plain(value: Any, named: Callable[[str], str]) -> Any:
    """Return an answer as plain values without what may differ, in an order that does not."""
    if isinstance(value, Record):
        left_out = _LEFT_OUT | ({"error_message"} if "key" in value.__slots__ else set())
        return {name: plain(getattr(value, name), named) for name in value.__slots__ if name not in left_out}
    if isinstance(value, list):
        return sorted((plain(item, named) for item in value), key=repr)
    if isinstance(value, bytes) and len(value) == 16:
        return "an id" if any(value) else "no id"
    if isinstance(value, str):
        return named(value)
    return bytes(value) if isinstance(value, memoryview) else value


class Conversation:
    """One broker, spoken to step by step. What was answered is kept as text, with ids made comparable."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.lines: list[str] = []
        self._ids: dict[str, str] = {}

    async def tell(self, what: str, request: Message, version: int) -> Any:
        answer = await say(self.address, request, version)
        self.lines.append(f"{what} v{version}: {plain(answer, self.named)}")
        return answer

    def named(self, text: str) -> str:
        """Put numbers in the place of ids, in the order in which they were first seen."""
        return _UUID.sub(lambda found: self._ids.setdefault(found[0], f"#{len(self._ids)}"), text)


def join(group: str, member: str = "", instance: str | None = None, **kw: Any) -> JoinGroupRequest:
    names = kw.pop("protocols", ["range"])
    topics = kw.pop("topics", ["t"])
    protocols = [JoinGroupRequestProtocol(name=name, metadata=subscription(topics)) for name in names]
    defaults = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 6_000, "protocol_type": "consumer"}
    return JoinGroupRequest(
        group_id=group, member_id=member, group_instance_id=instance, protocols=protocols, **(defaults | kw)
    )


def sync(
    group: str, member: str, generation: int, parts: dict[str, bytes] | None = None, **kw: Any
) -> Message:
    assignments = [SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in (parts or {}).items()]
    kw = {"protocol_type": "consumer", "protocol_name": "range"} | kw
    return SyncGroupRequest(
        group_id=group, member_id=member, generation_id=generation, assignments=assignments, **kw
    )


def commit(group: str, offset: int, member: str = "", generation: int = -1, **kw: Any) -> OffsetCommitRequest:
    topic, partitions, metadata = kw.pop("topic", "t"), kw.pop("partitions", [0]), kw.pop("metadata", "m")
    rows = [
        OffsetCommitRequestPartition(partition_index=p, committed_offset=offset, committed_metadata=metadata)
        for p in partitions
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)],
        **kw,
    )


def fetch(*groups: str, topics: list[str] | None = None, **kw: Any) -> OffsetFetchRequest:
    asked = None
    if topics is not None:
        asked = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1, 9]) for topic in topics]
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=asked) for group in groups], **kw
    )


def leave(group: str, *members: str, instances: tuple[str, ...] = ()) -> LeaveGroupRequest:
    rows = [MemberIdentity(member_id=member) for member in members]
    rows += [MemberIdentity(group_instance_id=instance) for instance in instances]
    return LeaveGroupRequest(group_id=group, members=rows)


def delete_offsets(group: str, topic: str, *partitions: int) -> OffsetDeleteRequest:
    rows = [OffsetDeleteRequestPartition(partition_index=partition) for partition in partitions]
    return OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=rows)])


async def settled(ask: Callable[[], Awaitable[Any]]) -> None:
    """Ask until the coordinator is there; a new Kafka first makes its topics."""
    for _ in range(100):
        (answer,) = await ask()
        if answer.error_code not in (14, 15, 16):
            return
        await asyncio.sleep(0.2)


async def _rows(answer: Awaitable[Any], name: str) -> list[Any]:
    return getattr(await answer, name)


async def talk(c: Conversation) -> None:
    """Everything that is compared."""
    g, h, s = "g", "h", "s"
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in ("t", "u")]
    made = await say(c.address, CreateTopicsRequest(topics=topics, timeout_ms=5_000), 7)
    ids = {topic.name: topic.topic_id for topic in made.topics}
    for kind in (0, 1):
        find = FindCoordinatorRequest(coordinator_keys=[g], key_type=kind)
        await settled(lambda find=find: _rows(say(c.address, find, 4), "coordinators"))
    for group in (g, h, s):
        await settled(lambda group=group: _rows(say(c.address, fetch(group), 8), "groups"))
    for version in (0, 1, 3):
        await c.tell("find", FindCoordinatorRequest(key=g), version)
    for kind in (0, 1, 2, 7):
        await c.tell(f"find type {kind}", FindCoordinatorRequest(coordinator_keys=[g, ""], key_type=kind), 4)
    await simple_offsets(c, s)
    await topic_ids(c, s, ids)
    await joining_and_syncing(c, g)
    await static_members(c, h)
    await c.tell("list", ListGroupsRequest(), 5)
    for states in (["Empty"], ["sTABLE"], ["unknown"]):
        await c.tell(f"list {states}", ListGroupsRequest(states_filter=states), 4)
    for types in (["classic"], ["Consumer"], ["unknown"]):
        await c.tell(f"list {types}", ListGroupsRequest(types_filter=types), 5)
    await c.tell("list old", ListGroupsRequest(), 2)
    await c.tell("delete groups", DeleteGroupsRequest(groups_names=[g, h, s, "", "nobody"]), 2)


async def simple_offsets(c: Conversation, s: str) -> None:
    for version in (2, 5, 8, 9):
        await c.tell("commit to nobody", commit("nobody", 3, generation=4), version)
    await c.tell("commit", commit(s, 3, partitions=[0, 1, 9]), 8)
    await c.tell("commit unknown topic", commit(s, 3, topic="nope"), 8)
    await c.tell("commit no group", commit("", 3), 8)
    await c.tell("commit null metadata", commit(s, 4, metadata=None), 8)
    await c.tell("commit long metadata", commit(s, 4, metadata="x" * 4097, partitions=[1]), 8)
    await c.tell("commit negative", commit(s, -1, partitions=[1]), 8)
    await c.tell("commit as stranger", commit(s, 4, member="x"), 8)
    await c.tell("commit with generation", commit(s, 4, member="x", generation=3), 8)
    await c.tell("commit as instance", commit(s, 4, group_instance_id="i"), 8)
    for version in (8, 9):
        await c.tell("fetch all", fetch(s, "nobody", ""), version)
        await c.tell("fetch", fetch(s, "nobody", topics=["t", "nope"]), version)
        await c.tell("fetch stable", fetch(s, topics=["t"], require_stable=True), version)
    old = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 9])]
    for version in (1, 2, 5, 7):
        await c.tell("fetch old", OffsetFetchRequest(group_id=s, topics=old), version)
    await c.tell("fetch all old", OffsetFetchRequest(group_id=s, topics=None), 6)
    for version in (5, 6):
        asked = DescribeGroupsRequest(groups=[s, "nobody", ""], include_authorized_operations=True)
        await c.tell("describe", asked, version)
    await c.tell("delete offsets", delete_offsets(s, "t", 0, 9), 0)
    await c.tell("delete offsets of nobody", delete_offsets("nobody", "t", 0), 0)
    await c.tell("delete offsets, no group", delete_offsets("", "t", 0), 0)
    await c.tell("delete offsets, no topic", delete_offsets(s, "nope", 0), 0)
    await c.tell("fetch all", fetch(s), 8)


async def topic_ids(c: Conversation, s: str, ids: dict[str, bytes]) -> None:
    for topic_id in (ids["t"], b"unknown, 16 bytes", bytes(16)):
        by_id = commit(s, 11, partitions=[1, 9])
        by_id.topics[0].name, by_id.topics[0].topic_id = "", topic_id[:16]
        await c.tell("commit by id", by_id, 10)
        asked = [OffsetFetchRequestTopics(topic_id=topic_id[:16], partition_indexes=[0, 1, 9])]
        group = OffsetFetchRequestGroup(group_id=s, topics=asked)
        await c.tell("fetch by id", OffsetFetchRequest(groups=[group]), 10)
    await c.tell("fetch all by id", fetch(s, "nobody"), 10)


async def joining_and_syncing(c: Conversation, g: str) -> None:
    for version in (0, 4, 9):
        await c.tell("join no group", join(""), version)
        await c.tell("join short session", join(g, session_timeout_ms=1), version)
        await c.tell("join stranger", join(g, "stranger"), version)
    await c.tell("join no protocols", join(g, protocols=[]), 9)
    await c.tell("join no type", join(g, protocol_type=""), 9)
    await c.tell("sync nobody", sync("nobody", "x", 1), 5)
    await c.tell("heartbeat nobody", HeartbeatRequest(group_id="nobody", generation_id=1, member_id="x"), 4)
    await c.tell("leave nobody", leave("nobody", "x"), 5)
    await c.tell("leave no group", leave("", "x"), 5)
    await c.tell("leave nobody old", LeaveGroupRequest(group_id="nobody", member_id="x"), 1)
    a = (await c.tell("join a", join(g), 9)).member_id
    await c.tell("describe pending", DescribeGroupsRequest(groups=[g]), 5)
    first = await c.tell("join a again", join(g, a), 9)
    await c.tell("describe completing", DescribeGroupsRequest(groups=[g]), 5)
    beat = HeartbeatRequest(group_id=g, generation_id=first.generation_id, member_id=a)
    await c.tell("heartbeat before sync", beat, 4)
    await c.tell("commit before sync", commit(g, 5, a, 1), 8)
    await c.tell("rejoin before sync", join(g, a), 9)
    await c.tell("sync wrong generation", sync(g, a, 7), 5)
    await c.tell("sync wrong type", sync(g, a, 1, protocol_type="x", protocol_name="range"), 5)
    await c.tell("sync stranger", sync(g, "x", 1), 5)
    await c.tell("sync without protocol", sync(g, a, 1, protocol_name=None), 5)
    await c.tell("sync", sync(g, a, 1, {a: b"A"}), 5)
    await c.tell("sync again", sync(g, a, 1), 5)
    await c.tell("describe stable", DescribeGroupsRequest(groups=[g]), 5)
    await c.tell("commit", commit(g, 6, a, 1), 8)
    await c.tell("commit outside", commit(g, 6), 8)
    await c.tell("commit old generation", commit(g, 6, a, 0), 9)
    await c.tell("join other type", join(g, protocol_type="connect"), 9)
    await c.tell("join other protocol", join(g, protocols=["x"]), 9)
    b = (await c.tell("join b", join(g), 9)).member_id
    waiting = asyncio.create_task(say(c.address, join(g, b), 9))
    await asyncio.sleep(0.3)
    await c.tell("describe preparing", DescribeGroupsRequest(groups=[g]), 5)
    await c.tell("heartbeat preparing", beat, 4)
    await c.tell("commit preparing", commit(g, 7, a, 1), 8)
    await c.tell("sync preparing", sync(g, a, 1), 5)
    await c.tell("delete preparing", DeleteGroupsRequest(groups_names=[g]), 2)
    await c.tell("leader rejoins", join(g, a), 9)
    c.lines.append(f"join b: {plain(await waiting, c.named)}")
    await c.tell("sync leader", sync(g, a, 2, {a: b"A", b: b"B"}), 5)
    await c.tell("sync follower", sync(g, b, 2), 5)
    await c.tell("follower rejoins unchanged", join(g, b), 9)
    await c.tell("delete offsets subscribed", delete_offsets(g, "t", 0), 0)
    await c.tell("delete offsets not subscribed", delete_offsets(g, "u", 0), 0)
    await c.tell("leave b", leave(g, b, "x", "", instances=("i",)), 5)
    await c.tell("leader rejoins alone", join(g, a), 9)
    await c.tell("leave a old", LeaveGroupRequest(group_id=g, member_id=a), 2)
    await c.tell("describe empty", DescribeGroupsRequest(groups=[g]), 6)
    await c.tell("commit to empty group", commit(g, 9), 8)
    await c.tell("rejoin the empty group", join(g, a), 9)


async def static_members(c: Conversation, h: str) -> None:
    one = (await c.tell("join one", join(h, instance="one"), 9)).member_id
    await c.tell("sync one", sync(h, one, 1, {one: b"1"}), 5)
    again = (await c.tell("one returns", join(h, instance="one"), 9)).member_id
    await c.tell("sync one", sync(h, again, 1), 5)
    fenced = {"group_instance_id": "one"}
    await c.tell(
        "heartbeat fenced", HeartbeatRequest(group_id=h, generation_id=1, member_id=one, **fenced), 4
    )
    await c.tell("join fenced", join(h, one, "one"), 9)
    await c.tell("sync fenced", sync(h, one, 1, **fenced), 5)
    await c.tell("commit fenced", commit(h, 1, one, 1, **fenced), 8)
    await c.tell(
        "leave fenced", LeaveGroupRequest(group_id=h, members=[MemberIdentity(member_id=one, **fenced)]), 5
    )
    await c.tell(
        "unknown instance",
        HeartbeatRequest(group_id=h, generation_id=1, member_id=again, group_instance_id="x"),
        4,
    )
    await c.tell("one returns, old client", join(h, instance="one"), 7)
    await c.tell("one returns, other protocol", join(h, instance="one", protocols=["sticky", "range"]), 9)
    await c.tell("describe static", DescribeGroupsRequest(groups=[h]), 5)
    await c.tell("leave by instance", leave(h, instances=("one",)), 5)


async def compare(ours: str, kafka: str) -> int:
    """Print what differs, and give 1 if anything does."""
    mine, his = Conversation(ours), Conversation(kafka)
    await asyncio.gather(talk(mine), talk(his))
    differing = [pair for pair in zip(mine.lines, his.lines, strict=True) if pair[0] != pair[1]]
    for one, other in differing:
        print(f"ours  {one}\nkafka {other}\n")
    print(f"{len(mine.lines)} answers, {len(differing)} differ")
    return 1 if differing else 0


async def record(kafka: str, path: Path) -> int:
    """Keep what Kafka answers."""
    conversation = Conversation(kafka)
    await talk(conversation)
    path.write_text("\n".join(conversation.lines) + "\n")
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--record":
        sys.exit(asyncio.run(record(sys.argv[2], Path(__file__).parent / "kafka_answers.txt")))
    sys.exit(asyncio.run(compare(sys.argv[1], sys.argv[2])))
