"""What an operator is told of compactions that were asked for: what they left out, what waits, and why one failed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from magnetar.admin.compaction import TopicCompaction
from magnetar.admin.errors import Declined, NotThere
from magnetar.ledger.formats.layout import FRAME_BYTES, HEADER_BYTES, ledger_path
from tests.admin.house import House


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with House(tmp_path / "data") as made:
        await made.services.groups.loaded()
        yield made


async def done(house: House, topic: str = "t") -> TopicCompaction:
    while True:
        found = await house.ask.compaction(topic, [])
        if not found.running:
            return found
        await asyncio.sleep(0.01)


async def test_the_history_stays_unless_the_cleanup_policy_compacts(house: House) -> None:
    for name, configs in (("t", {}), ("compacted", {"cleanup_policy": "compact"})):
        partition = await house.topic(name, **configs)
        for _ in range(3):
            await house.produce(partition, 10)
        (before,) = (await house.ask.compaction(name, [])).partitions
        assert (before.status, before.removed, before.compacted_size) == ("NOT_RUN", 0, 0)
        await house.ask.compact(name, [])
        found = await done(house, name)
        (row,) = found.partitions
        assert found.replaces == (name == "compacted")
        assert (row.status, row.error, row.removed, row.waiting_size) == ("SUCCESS", "", 20, 0)
        assert row.compacted_size > 0
        entries = await partition.log.read(0, max_bytes=1 << 20)
        assert {each.copy >= 0 for each in entries} == {found.replaces}, (
            "who reads gets copies, or the history"
        )
        await house.produce(partition, 10)
        (after,) = (await house.ask.compaction(name, [])).partitions
        assert (after.waiting_size > 0) == (name == "t"), (
            "Kafka's way the open ledger is the head, and waits for nobody"
        )


async def test_one_at_a_time_and_only_the_partitions_that_were_named(house: House) -> None:
    await house.topic(partitions=3)
    await house.ask.compaction("t", [])  # which opens all three
    first = await house.ask.compact("t", [1, 1])
    assert [(each.partition, each.status) for each in first.partitions] == [(1, "RUNNING")]
    assert first.running == 1
    with pytest.raises(Declined, match="runs already") as refused:
        await house.ask.compact("t", [])
    assert "--status" in refused.value.next_step
    assert [each.status for each in (await done(house)).partitions] == ["NOT_RUN", "SUCCESS", "NOT_RUN"]
    await house.ask.compact("t", [])
    assert {each.status for each in (await done(house)).partitions} == {"SUCCESS"}


async def test_damage_is_told_and_nothing_changes(house: House) -> None:
    partition = await house.topic(cleanup_policy="compact")
    await house.produce(partition)
    path = ledger_path(house.root, partition.log.ledgers()[0].ledger_id)
    whole = path.read_bytes()
    at = HEADER_BYTES + FRAME_BYTES + 1
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    await house.ask.compact("t", [])
    (row,) = (await done(house)).partitions
    assert row.status == "ERROR"
    assert "damaged" in row.error
    path.write_bytes(whole)
    await house.ask.compact("t", [])
    assert [each.status for each in (await done(house)).partitions] == ["SUCCESS"]


async def test_what_cannot_be_compacted(house: House) -> None:
    await house.topic()
    await house.commit("g", 0)
    for topic, partitions in (("nobody", []), ("t", [7]), ("no/such/name/", [])):
        with pytest.raises(NotThere):
            await house.ask.compact(topic, partitions)
    with pytest.raises(Declined, match="the broker's own"):
        await house.ask.compact("__consumer_offsets", [0])


async def test_a_broker_that_closes_does_not_wait_for_a_compaction(house: House) -> None:
    partition = await house.topic()
    await house.produce(partition)
    before = len(asyncio.all_tasks())
    await house.ask.compact("t", [])
    await house.services.broker.logs.compactions.close()
    assert len(asyncio.all_tasks()) == before
    assert partition.log.compacted is None
