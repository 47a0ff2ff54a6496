"""A partition of the coordinators goes to another broker and comes back, whatever is under way there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable

import pytest

from magnetar.cluster.ownership import NotOwned, Owned
from magnetar.coordination.log import MemoryOffsetsLog
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.groups import GroupCoordinator, partition_of
from magnetar.kafka.coordinators.offsets import Committer
from magnetar.metadata.errors import MetadataUnavailable
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.heartbeat_request import HeartbeatRequest
from tests.coordinators.test_coordinator import (
    CALLER,
    SlowLog,
    assigning,
    commit,
    committed,
    fetched,
    joining,
    stable_member,
)

PARTITION = partition_of("g", 50)


class MovingLog(SlowLog):
    """A log of which this broker has some partitions; reading waits to be let through, too."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[int] = set()
        self.unknown = False
        """Whether nobody can tell what is written."""
        self.readable = asyncio.Event()
        self.readable.set()

    def owner(self, partition: int) -> Owned | None:
        return None if partition in self.lost else super().owner(partition)

    def is_mine(self, partition: int) -> bool:
        return partition not in self.lost

    async def written(self) -> Iterable[int]:
        if self.unknown:
            raise MetadataUnavailable("no server of ZooKeeper's answers")
        return await super().written()

    async def append(self, partition: int, batch: bytes, records: int) -> int:
        assert partition not in self.lost or not self.open.is_set() or self.fails, "another broker's"
        return await super().append(partition, batch, records)

    async def replay(self, partition: int) -> AsyncIterator[bytes]:
        await self.readable.wait()
        async for batch in super().replay(partition):
            yield batch


@pytest.fixture
async def log() -> MovingLog:
    return MovingLog()


async def lose(groups: GroupCoordinator, log: MovingLog) -> None:
    log.lost.add(PARTITION)
    await groups.follow_ownership()


async def get_back(groups: GroupCoordinator, log: MovingLog) -> None:
    log.lost.clear()
    await groups.follow_ownership()
    await groups.loaded()


async def refusal(groups: GroupCoordinator) -> ErrorCode:
    with pytest.raises(CoordinatorRefused) as refused:
        await committed(groups, "g", 99)
    return refused.value.code


async def test_all_that_was_decided_is_there_again(groups: GroupCoordinator, log: MovingLog) -> None:
    member = await stable_member(groups)
    await groups.commit("g", Committer(member.member_id, None, member.generation_id), [commit(5)], 9)
    other = next(f"h{number}" for number in range(99) if partition_of(f"h{number}", 50) != PARTITION)
    await committed(groups, other, 7)
    await lose(groups, log)
    assert await refusal(groups) == ErrorCode.NOT_COORDINATOR
    assert groups.owner_of("g") is None
    assert [each.group_id for each in groups.list_groups()] == [other]
    for ask in (groups.describe, groups.committed):
        with pytest.raises(CoordinatorRefused):
            ask("g")
    groups.expire_offsets()
    await groups.on_topic_deleted("u")  # whoever has it now is told so, too
    assert (await fetched(groups, other))["t"][0].offset == 7
    await get_back(groups, log)
    assert (await fetched(groups, "g"))["t"][0].offset == 5
    heartbeat = HeartbeatRequest(group_id="g", generation_id=member.generation_id, member_id=member.member_id)
    assert (await groups.heartbeat(heartbeat)).error_code == ErrorCode.NONE


async def test_it_is_taken_up_where_nobody_can_tell_what_is_written(
    groups: GroupCoordinator, log: MovingLog, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody would come back to it: the next that is heard of is another bundle, hours later maybe."""
    await committed(groups, "g", 5)
    await lose(groups, log)
    log.unknown = True
    await get_back(groups, log)
    assert (await fetched(groups, "g"))["t"][0].offset == 5
    assert "no server of ZooKeeper's answers; all are read" in caplog.text


async def test_what_is_being_kept_is_kept_and_answered_before_it_goes(
    groups: GroupCoordinator, log: MovingLog
) -> None:
    log.open.clear()
    keeping = asyncio.ensure_future(committed(groups, "g", 5))
    await asyncio.sleep(0)
    losing = asyncio.ensure_future(lose(groups, log))
    for _ in range(5):
        await asyncio.sleep(0)
    assert await refusal(groups) == ErrorCode.NOT_COORDINATOR
    assert not losing.done()
    log.lost.clear()
    log.open.set()
    log.lost.add(PARTITION)
    assert await keeping == [ErrorCode.NONE]
    await losing
    await get_back(groups, log)
    assert (await fetched(groups, "g"))["t"][0].offset == 5


async def test_what_is_being_assigned_is_kept_and_answered_before_it_goes(
    groups: GroupCoordinator, log: MovingLog
) -> None:
    joined = await groups.join(joining(), CALLER)
    log.open.clear()
    syncing = asyncio.ensure_future(groups.sync(assigning(joined)))
    await asyncio.sleep(0)
    losing = asyncio.ensure_future(lose(groups, log))
    for _ in range(5):
        await asyncio.sleep(0)
    log.lost.clear()
    log.open.set()
    log.lost.add(PARTITION)
    answer = await syncing
    assert (answer.error_code, bytes(answer.assignment)) == (ErrorCode.NONE, b"A")
    await losing


async def test_what_could_not_be_kept_is_not_replayed_by_one_who_has_lost_it(
    groups: GroupCoordinator, log: MovingLog
) -> None:
    await committed(groups, "g", 4)
    log.open.clear()
    keeping = asyncio.ensure_future(committed(groups, "g", 5))
    await asyncio.sleep(0)
    losing = asyncio.ensure_future(lose(groups, log))
    await asyncio.sleep(0)
    log.fails = True
    log.open.set()
    with pytest.raises(CoordinatorRefused):
        await keeping
    await losing
    log.fails = False
    assert await refusal(groups) == ErrorCode.NOT_COORDINATOR
    await get_back(groups, log)
    assert (await fetched(groups, "g"))["t"][0].offset == 4


async def test_what_cannot_be_kept_as_it_goes_is_no_error_of_the_broker(
    groups: GroupCoordinator, log: MovingLog, caplog: pytest.LogCaptureFixture
) -> None:
    await committed(groups, "g", 4)
    for is_moving in (True, False):
        caplog.clear()
        if is_moving:
            log.failure = NotOwned("the bundle", None)
        else:
            log.failure = KeyError("ours")
        log.fails = True
        with caplog.at_level(logging.INFO), pytest.raises(CoordinatorRefused):
            await committed(groups, "g", 5)
        log.fails = False
        await groups.loaded()
        (said,) = [each for each in caplog.records if "could not be kept" in each.getMessage()]
        assert said.levelno == (logging.INFO if is_moving else logging.ERROR)
        assert (said.exc_info is None) == is_moving


async def test_it_goes_while_it_is_loaded(groups: GroupCoordinator, log: MovingLog) -> None:
    await committed(groups, "g", 5)
    await lose(groups, log)
    for _ in range(3):
        log.readable.clear()
        log.lost.clear()
        await groups.follow_ownership()
        await asyncio.sleep(0)
        assert await refusal(groups) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await lose(groups, log)
        assert await refusal(groups) == ErrorCode.NOT_COORDINATOR
    log.readable.set()
    await get_back(groups, log)
    assert (await fetched(groups, "g"))["t"][0].offset == 5


async def test_what_another_broker_kept_meanwhile_is_seen_and_told_of(
    groups: GroupCoordinator, log: MovingLog
) -> None:
    await committed(groups, "g", 5)
    await lose(groups, log)
    other = GroupCoordinator(_Shared(log), groups.settings)
    await other.start()
    await other.loaded()
    await committed(other, "g", 6)
    await other.close()
    told: list[int | None] = []
    groups.telling.on_committed.append(lambda group, topic, partition, offset: told.append(offset))
    await get_back(groups, log)
    assert (await fetched(groups, "g"))["t"][0].offset == 6
    assert told == [6]


class _Shared(MemoryOffsetsLog):
    """The same log as another broker sees it."""

    def __init__(self, log: MemoryOffsetsLog) -> None:
        super().__init__(log.partitions)
        self._batches, self._next = log._batches, log._next
