"""The coordinator at work: facts before answers, many in one append, what happens when the log fails, compaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from magnetar.coordination import shard as shards
from magnetar.coordination import stated_log
from magnetar.coordination.caller import Caller
from magnetar.coordination.log import MemoryOffsetsLog
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.timers import TimerKey
from magnetar.kafka.coordinators.decider import GroupsDecider
from magnetar.kafka.coordinators.facts import Committed, Committer, OffsetCommit
from magnetar.kafka.coordinators.group import ClassicGroup, GroupState
from magnetar.kafka.coordinators.groups import GroupCoordinator, partition_of
from magnetar.kafka.coordinators.settings import GroupSettings
from magnetar.ledger.errors import StorageFull
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from magnetar.wire.kafka.messages.join_group_response import JoinGroupResponse
from magnetar.wire.kafka.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from magnetar.wire.kafka.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.coordinators.stage import subscription

SETTINGS = GroupSettings(group_initial_rebalance_delay_ms=20, group_min_session_timeout_ms=50)
CALLER = Caller("c", "/127.0.0.1", 3)


class SlowLog(MemoryOffsetsLog):
    """A log whose appends wait to be let through, and fail on demand."""

    def __init__(self, partitions: int = 50) -> None:
        super().__init__(partitions)
        self.open = asyncio.Event()
        self.open.set()
        self.fails = False
        self.failure: Exception = StorageFull("no room")
        self.appends = 0

    async def append(self, partition: int, batch: bytes, records: int) -> int:
        self.appends += 1
        await self.open.wait()
        if self.fails:
            raise self.failure
        return await super().append(partition, batch, records)


async def started(log: MemoryOffsetsLog) -> GroupCoordinator:
    coordinator = GroupCoordinator(log, SETTINGS)
    await coordinator.start()
    await coordinator.loaded()
    return coordinator


def commit(offset: int, partition: int = 0, topic: str = "t") -> OffsetCommit:
    return OffsetCommit(topic, b"i" * 16, partition, offset, -1, "")


async def committed(groups: GroupCoordinator, group_id: str, offset: int) -> list[ErrorCode]:
    return await groups.commit(group_id, Committer(), [commit(offset)], 9)


async def fetched(groups: GroupCoordinator, group_id: str) -> dict[str, dict[int, Committed]]:
    return await groups.fetch(
        group_id, lambda offsets, pending: {topic: dict(kept) for topic, kept in offsets.items()}
    )


def joining(member_id: str = "", session_ms: int = 10_000) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(["t"]))],
    )


async def stable_member(groups: GroupCoordinator, session_ms: int = 10_000) -> JoinGroupResponse:
    answer = await groups.join(joining(session_ms=session_ms), CALLER)
    assert answer.error_code == ErrorCode.NONE
    synced = await groups.sync(assigning(answer))
    assert bytes(synced.assignment) == b"A"
    return answer


def assigning(joined: JoinGroupResponse) -> SyncGroupRequest:
    """What the leader, who is alone, assigns to itself."""
    part = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"A")
    return SyncGroupRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id, assignments=[part]
    )


@pytest.mark.parametrize(
    ("group_id", "expected"),
    [("", 0), ("g", 3), ("my-group", 12), ("polygenelubricants", 0), ("grüße-📦", 45)],
)
def test_groups_live_where_kafka_puts_them(group_id: str, expected: int) -> None:
    assert partition_of(group_id, 50) == expected


async def test_a_commit_is_kept_over_a_restart(groups: GroupCoordinator, log: SlowLog) -> None:
    assert await committed(groups, "g", 5) == [ErrorCode.NONE]
    await groups.close()
    again = await started(log)
    assert again.committed("g")["t"][0].offset == 5
    await again.close()


async def test_no_answer_overtakes_its_fact(groups: GroupCoordinator, log: SlowLog) -> None:
    log.open.clear()
    write = asyncio.create_task(committed(groups, "g", 5))
    read = asyncio.create_task(fetched(groups, "g"))
    await asyncio.sleep(0.01)
    assert not write.done()
    assert not read.done(), "an offset that a crash may take back was told"
    log.open.set()
    assert await write == [ErrorCode.NONE]
    assert (await read)["t"][0].offset == 5


async def test_a_group_is_stable_once_its_assignment_is_durable(
    groups: GroupCoordinator, log: SlowLog
) -> None:
    joined = await groups.join(joining(), CALLER)
    log.open.clear()
    syncing = asyncio.create_task(groups.sync(assigning(joined)))
    await asyncio.sleep(0.01)
    seen = groups.describe("g")
    assert (seen.state, seen.members[0].assignment) == (GroupState.COMPLETING_REBALANCE, b"")
    assert [group.state for group in groups.list_groups()] == [GroupState.COMPLETING_REBALANCE]
    log.open.set()
    assert bytes((await syncing).assignment) == b"A"
    seen = groups.describe("g")
    assert (seen.state, seen.members[0].assignment) == (GroupState.STABLE, b"A")


async def test_commits_that_come_together_go_out_together(groups: GroupCoordinator, log: SlowLog) -> None:
    log.open.clear()
    names = [f"group-{i}" for i in range(2_000) if partition_of(f"group-{i}", 50) == 7]
    assert len(names) > 20
    writes = [asyncio.create_task(committed(groups, name, 1)) for name in names]
    await asyncio.sleep(0.01)
    log.open.set()
    assert await asyncio.gather(*writes) == [[ErrorCode.NONE]] * len(names)
    assert log.appends <= 2


async def test_a_commit_that_takes_too_long_is_to_be_asked_again(log: SlowLog) -> None:
    groups = GroupCoordinator(log, GroupSettings(offsets_commit_timeout_ms=20))
    await groups.start()
    await groups.loaded()
    told = []
    groups.telling.on_committed.append(lambda *commit: told.append(commit))
    log.open.clear()
    with pytest.raises(CoordinatorRefused) as refused:
        await committed(groups, "g", 3)
    assert (refused.value.code, told) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    log.open.set()
    assert (await fetched(groups, "g"))["t"][0].offset == 3
    assert told == [("g", "t", 0, 3)]
    await groups.close()


async def test_partitions_do_not_wait_for_each_other(groups: GroupCoordinator, log: SlowLog) -> None:
    log.open.clear()
    write = asyncio.create_task(committed(groups, "g", 1))
    await asyncio.sleep(0.01)
    assert not await fetched(groups, "my-group")
    log.open.set()
    await write


async def test_when_the_log_fails_clients_look_again(groups: GroupCoordinator, log: SlowLog) -> None:
    member = await stable_member(groups)
    assert await committed(groups, "g2", 1) == [ErrorCode.NONE]
    waiting = asyncio.create_task(groups.join(joining(), CALLER))
    await asyncio.sleep(0)
    log.fails = True
    who = Committer(member.member_id, None, member.generation_id)
    with pytest.raises(CoordinatorRefused) as refused:
        await groups.commit("g", who, [commit(9)], 9)
    assert refused.value.code == ErrorCode.NOT_COORDINATOR
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    log.fails = False
    beat = HeartbeatRequest(group_id="g", generation_id=member.generation_id, member_id=member.member_id)
    await groups.loaded()
    assert (await groups.heartbeat(beat)).error_code == ErrorCode.NONE
    assert not await fetched(groups, "g"), "an offset that was never kept"
    assert await groups.commit("g", who, [commit(9)], 9) == [ErrorCode.NONE]
    assert groups.committed("g2")["t"][0].offset == 1


async def test_loading_is_said_at_once(log: SlowLog) -> None:
    first = await started(log)
    await committed(first, "g", 5)
    await first.close()
    again = GroupCoordinator(log, SETTINGS)
    await again.start()
    with pytest.raises(CoordinatorRefused) as refused:
        await fetched(again, "g")
    assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await again.join(joining(), CALLER)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await again.heartbeat(HeartbeatRequest(group_id="g"))).error_code == ErrorCode.NONE
    assert not await fetched(again, "my-group"), "a partition that was never written needs no loading"
    await again.loaded()
    assert (await fetched(again, "g"))["t"][0].offset == 5
    await again.close()


async def test_silent_members_are_noticed(groups: GroupCoordinator) -> None:
    await stable_member(groups, session_ms=60)
    for _ in range(3000):
        if groups.describe("g").state == "Empty":
            break
        await asyncio.sleep(0.01)
    assert groups.describe("g").state == "Empty"


async def test_who_went_away_while_waiting_harms_nobody(groups: GroupCoordinator) -> None:
    gone = asyncio.create_task(groups.join(joining(), CALLER))
    stays = asyncio.create_task(groups.join(joining(), CALLER))
    await asyncio.sleep(0)
    gone.cancel()
    answer = await stays
    assert answer.error_code == ErrorCode.NONE
    assert len(groups.describe("g").members) == 2


async def test_closing_sends_waiting_members_away(groups: GroupCoordinator) -> None:
    waiting = asyncio.create_task(groups.join(joining(), CALLER))
    await asyncio.sleep(0)
    await groups.close()
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    assert (await groups.join(joining(), CALLER)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_long_log_is_rewritten(
    groups: GroupCoordinator, log: SlowLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stated_log, "SNAPSHOT_AFTER", 100)
    member = await stable_member(groups)
    who = Committer(member.member_id, None, member.generation_id)
    for offset in range(300):
        await groups.commit("g", who, [commit(offset, offset % 3)], 9)
    records = sum([1 async for _ in log.replay(partition_of("g", 50))])
    assert records < 150
    before = groups.describe("g")
    await groups.close()
    again = await started(log)
    assert {p: kept.offset for p, kept in again.committed("g")["t"].items()} == {0: 297, 1: 298, 2: 299}
    assert again.describe("g").members[0].assignment == before.members[0].assignment
    await again.close()


async def test_a_crash_while_the_log_is_rewritten_loses_nothing(
    groups: GroupCoordinator, log: SlowLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(partition: int, before_offset: int) -> None:
        raise StorageFull("no room for the new list")

    monkeypatch.setattr(stated_log, "SNAPSHOT_AFTER", 100)
    monkeypatch.setattr(log, "trim", crash)
    for offset in range(102):
        try:
            await committed(groups, "g", offset)
        except CoordinatorRefused:
            await asyncio.sleep(0.02)
    again = await started(log)
    assert again.committed("g")["t"][0].offset >= 100
    await again.close()


async def test_a_deleted_topic_is_forgotten(groups: GroupCoordinator, log: SlowLog) -> None:
    await groups.commit("g", Committer(), [commit(1), commit(2, topic="u")], 9)
    await groups.on_topic_deleted("t")
    assert set(await fetched(groups, "g")) == {"u"}
    await groups.close()
    again = await started(log)
    assert set(again.committed("g")) == {"u"}
    await again.close()


async def test_a_topic_deleted_while_loading_is_forgotten_too(log: SlowLog) -> None:
    first = await started(log)
    await committed(first, "g", 5)
    await first.close()
    again = GroupCoordinator(log, SETTINGS)
    await again.start()
    await again.on_topic_deleted("t")
    await again.loaded()
    assert await fetched(again, "g") == {}
    await again.close()


async def test_several_leave_at_once(groups: GroupCoordinator) -> None:
    member = await stable_member(groups)
    members = [MemberIdentity(member_id=member.member_id, reason="done"), MemberIdentity(member_id="x")]
    answer = await groups.leave(LeaveGroupRequest(group_id="g", members=members))
    assert [row.error_code for row in answer.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    await groups.delete_group("g")
    assert groups.list_groups() == []


def test_the_facts_of_fifty_idle_partitions_weigh_nothing() -> None:
    coordinator = GroupCoordinator(MemoryOffsetsLog(), SETTINGS)
    assert coordinator.partition_of("g") == 3


async def test_a_fault_of_ours_leaves_what_the_facts_say(
    groups: GroupCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = await stable_member(groups)
    waiting = asyncio.create_task(groups.join(joining(), CALLER))
    await asyncio.sleep(0)

    def fault(*args: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(ClassicGroup, "is_subscribed_to", fault)
        with pytest.raises(ZeroDivisionError):
            await groups.delete_offsets("g", [("t", 0)])
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    await groups.loaded()
    assert [one.member_id for one in groups.describe("g").members] == [member.member_id]


async def test_records_of_other_kinds_are_never_compacted_away(
    log: SlowLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stated_log, "SNAPSHOT_AFTER", 10)
    foreign = encode_batch([PlainRecord(b"\0\x7f\0\1g", b"\0\0\0\0\0\1", (), 1)])
    await log.append(partition_of("g", 50), foreign, 1)
    groups = await started(log)
    for offset in range(30):
        await committed(groups, "g", offset)
    await groups.close()
    assert foreign in [batch async for batch in log.replay(partition_of("g", 50))]


async def test_who_listens_is_told_what_was_committed_before_the_start(
    groups: GroupCoordinator, log: SlowLog
) -> None:
    await committed(groups, "g", 5)
    await groups.commit("other", Committer(), [commit(7, 2, "u")], 9)
    await groups.close()
    told: list[tuple[str, str, int, int]] = []
    again = GroupCoordinator(log, SETTINGS)
    again.telling.on_committed.append(lambda *said: told.append(said))
    await again.start()
    await again.loaded()
    assert sorted(told) == [("g", "t", 0, 5), ("other", "u", 2, 7)]
    await again.close()


def test_of_a_group_that_is_gone_nothing_is_kept() -> None:
    """It may go while all groups are written anew, one after the other."""
    decider = GroupsDecider(SETTINGS, lambda: "id")
    for group in ("a", "b", "c"):
        decider.offsets.commit(group, Committer(), [OffsetCommit("t", bytes(16), 0, 5, -1, "")], 9, 0)
    snapshot = decider.snapshot()
    assert len(next(snapshot)) == 1
    decider.offsets.delete_group("b")
    assert [len(facts) for facts in snapshot] == [1, 0]


class UnreadableLog(MemoryOffsetsLog):
    """Its first ``fails`` replays of a partition fail."""

    def __init__(self, fails: int) -> None:
        super().__init__(50)
        self.fails = fails
        self.tried = 0

    async def replay(self, partition: int) -> AsyncIterator[memoryview]:
        if partition == partition_of("g", 50):
            self.tried += 1
            if self.tried <= self.fails:
                raise StorageFull("cannot be read now")
        async for data in super().replay(partition):
            yield data


async def test_a_partition_that_cannot_be_read_is_tried_again_after_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shards, "_RETRY_S", (0.01, 0.02))
    slept: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        if seconds:
            slept.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(shards.asyncio, "sleep", noted)
    log = UnreadableLog(fails=0)
    before = await started(log)
    assert await committed(before, "g", 4) == [ErrorCode.NONE]
    await before.close()
    log.fails, log.tried = 3, 0
    coordinator = GroupCoordinator(log, SETTINGS)
    await coordinator.start()
    with pytest.raises(CoordinatorRefused) as refused:
        await committed(coordinator, "g", 5)
    assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await coordinator.loaded()
    assert [each for each in slept if each < 1] == [0.01, 0.02, 0.02]
    assert log.tried == 4
    assert await committed(coordinator, "g", 5) == [ErrorCode.NONE]
    await coordinator.close()


async def test_who_listens_is_told_that_a_group_is_gone(groups: GroupCoordinator) -> None:
    await committed(groups, "g", 5)
    told: list[tuple[str, str, int, int | None]] = []
    groups.telling.on_committed.append(lambda *said: told.append(said))
    await groups.delete_group("g")
    assert told == [("g", "t", 0, None)]


def test_a_deadline_of_a_group_that_is_gone_is_passed_over() -> None:
    decider = GroupsDecider(SETTINGS, lambda: "id")
    for kind in ("session", "join", "sync"):
        decider.classic.timers.schedule(TimerKey(kind, "gone", "m"), 5)
    assert decider.classic.expire(10).facts == ()
    assert decider.classic.timers.wake_ms() is None
