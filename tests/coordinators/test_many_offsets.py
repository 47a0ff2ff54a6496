"""Very many offsets at once: others have their turn in between, and whoever listens is told of them in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from magnetar.coordination import stated_log
from magnetar.coordination.batches import BATCH_BYTES
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.committing import COMMITS_AT_ONCE
from magnetar.kafka.coordinators.facts import Committer, OffsetCommit
from magnetar.kafka.coordinators.groups import GroupCoordinator, partition_of
from magnetar.records.batch import batches
from magnetar.wire.kafka.errors import ErrorCode
from tests.coordinators.test_coordinator import SETTINGS, SlowLog, stable_member, started
from tests.turns import until

MANY = 20 * COMMITS_AT_ONCE
T = TypeVar("T")


def commits(count: int, offset: int = 5) -> list[OffsetCommit]:
    return [OffsetCommit("t", b"i" * 16, partition, offset, -1, "") for partition in range(count)]


async def turns_while(work: Coroutine[Any, Any, T]) -> tuple[T, int]:
    """Do something; give what came of it, and how many turns of the event loop others had meanwhile."""
    task, turns = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return await task, turns


async def test_others_have_their_turn_while_very_many_are_committed(groups: GroupCoordinator) -> None:
    told: list[int] = []
    groups.telling.on_committed[:] = [lambda group, topic, partition, offset: told.append(partition)]
    codes, turns = await turns_while(groups.commit("g", Committer(), commits(MANY), 9))
    assert codes == [ErrorCode.NONE] * MANY
    assert turns >= MANY // 10_000, "one for each batch of facts at the least"
    assert len(groups.committed("g")["t"]) == MANY
    await until(lambda: len(told) == MANY)
    assert told == list(range(MANY))


async def test_no_batch_of_facts_is_large(groups: GroupCoordinator, log: SlowLog) -> None:
    await groups.commit("g", Committer(), commits(MANY), 9)
    kept = [batch async for data in log.replay(partition_of("g", 50)) for _, batch in batches(data)]
    assert max(map(len, kept)) <= BATCH_BYTES + 1000
    assert len(kept) > 5


async def test_who_listens_is_told_the_newest_last(groups: GroupCoordinator) -> None:
    told: dict[int, int | None] = {}
    rows = 0

    def note(group: str, topic: str, partition: int, offset: int | None) -> None:
        nonlocal rows
        told[partition], rows = offset, rows + 1

    groups.telling.on_committed[:] = [note]
    await groups.commit("g", Committer(), commits(MANY), 9)
    await groups.commit("g", Committer(), commits(10, offset=6), 9)
    await groups.delete_offsets("g", [("t", 11)])
    await until(lambda: rows == MANY + 11)
    assert [told[partition] for partition in (0, 9, 10, 11, MANY - 1)] == [6, 6, 5, None, 5]


async def test_a_listener_that_fails_is_told_what_comes_next(groups: GroupCoordinator) -> None:
    told: list[int | None] = []

    def fail(group: str, topic: str, partition: int, offset: int | None) -> None:
        raise ValueError("a listener's fault")

    groups.telling.on_committed[:] = [fail]
    await groups.commit("g", Committer(), commits(MANY), 9)
    await asyncio.sleep(0.05)
    groups.telling.on_committed[:] = [lambda group, topic, partition, offset: told.append(offset)]
    await groups.commit("g", Committer(), commits(1, offset=8), 9)
    assert told == [8]


async def test_what_comes_after_the_right_to_commit_ended_is_refused(
    groups: GroupCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = await stable_member(groups)
    who = Committer(member.member_id, None, member.generation_id)
    shard = groups._shards[partition_of("g", 50)]
    ask, asked = shard.ask, 0

    def fenced_after_three(decide: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked > 3:
            raise CoordinatorRefused(ErrorCode.ILLEGAL_GENERATION)
        return ask(decide)

    monkeypatch.setattr(shard, "ask", fenced_after_three)
    codes = await groups.commit("g", who, commits(MANY), 9)
    kept = 3 * COMMITS_AT_ONCE
    assert codes == [ErrorCode.NONE] * kept + [ErrorCode.ILLEGAL_GENERATION] * (MANY - kept)
    monkeypatch.undo()
    assert len(groups.committed("g")["t"]) == kept


async def test_who_may_not_commit_is_refused_as_a_whole(groups: GroupCoordinator) -> None:
    with pytest.raises(CoordinatorRefused) as refused:
        await groups.commit("g", Committer("nobody", None, 3), commits(MANY), 9)
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_when_the_log_fails_very_many_are_refused_as_few_are(
    groups: GroupCoordinator, log: SlowLog
) -> None:
    log.fails = True
    with pytest.raises(CoordinatorRefused) as refused:
        await groups.commit("g", Committer(), commits(MANY), 9)
    assert refused.value.code == ErrorCode.NOT_COORDINATOR


async def test_what_has_begun_is_finished_though_the_client_is_gone(groups: GroupCoordinator) -> None:
    gone = asyncio.ensure_future(groups.commit("g", Committer(), commits(MANY), 9))
    await asyncio.sleep(0)
    gone.cancel()
    await until(lambda: len(groups.committed("g").get("t", {})) == MANY)


async def test_others_have_their_turn_while_a_log_is_written_anew(
    log: SlowLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is committed meanwhile has the last word."""
    monkeypatch.setattr(stated_log, "SNAPSHOT_FACTOR", 1)
    groups = await started(log)
    await groups.commit("g", Committer(), commits(MANY), 9)
    partition = partition_of("g", 50)
    trimmed = asyncio.Event()
    trim = log.trim

    async def noted(where: int, before_offset: int) -> None:
        await trim(where, before_offset)
        trimmed.set()

    monkeypatch.setattr(log, "trim", noted)
    monkeypatch.setattr(stated_log, "SNAPSHOT_AFTER", 0)
    groups._shards[partition]._log._compact_at = 0
    await groups.commit("g", Committer(), commits(2, offset=6), 9)
    _, turns = await turns_while(trimmed.wait())
    assert turns >= MANY // stated_log.SNAPSHOT_BATCH
    await groups.close()
    again = await started(log)
    kept = again.committed("g")["t"]
    assert (len(kept), kept[0].offset, kept[1].offset, kept[2].offset) == (MANY, 6, 6, 5)
    await again.close()


async def test_what_was_committed_before_the_start_is_told_in_its_order(
    groups: GroupCoordinator, log: SlowLog
) -> None:
    await groups.commit("g", Committer(), commits(MANY), 9)
    await groups.close()
    told: list[int] = []
    again = GroupCoordinator(log, SETTINGS)
    again.telling.on_committed[:] = [lambda group, topic, partition, offset: told.append(partition)]
    await again.start()
    await again.loaded()
    await until(lambda: len(told) == MANY)
    assert told == list(range(MANY))
    await again.close()
