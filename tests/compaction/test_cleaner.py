"""The cleaner's rounds: one log that cannot be opened, or cannot be compacted, keeps no other from its turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from magnetar.kafka.partitions.partition import Partition
from magnetar.ledger.formats.layout import ledger_path
from tests.admin.house import House

COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
NEVER = {"log_cleaner_backoff_ms": "3600000"}


async def filled(house: House, name: str, **configs: str) -> Partition:
    """A partition with a sealed ledger, in which one of two batches supersedes the other, and an open one."""
    partition = await house.topic(name, **configs)
    for _ in range(2):
        await house.produce(partition)
    await partition.log.roll()
    await house.produce(partition)
    return partition


def damage_open_ledger(root: Path, partition: Partition) -> None:
    path = ledger_path(root, partition.log.ledgers()[-1].ledger_id)
    path.write_bytes(b"damaged!" + path.read_bytes()[8:])


async def test_a_log_that_cannot_be_opened_keeps_no_other_from_being_compacted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    async with House(data, **NEVER) as house:
        partitions = [await filled(house, name, **COMPACT) for name in ("a", "b", "c")]
    damage_open_ledger(data, partitions[1])
    async with House(data, **NEVER) as house:
        await house.duties.cleaner.clean()
        found = {
            each.topic.kafka_name: each.log.compacted is not None
            for each in house.services.partitions.all_open()
        }
        assert found == {"a": True, "c": True}
    (line,) = [each.getMessage() for each in caplog.records if "looked at" in each.getMessage()]
    assert line.startswith("b-0 cannot be looked at for compaction: ")


async def test_a_log_that_cannot_be_opened_keeps_no_other_from_retention(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    async with House(data) as house:
        partitions = [await filled(house, name, retention_bytes="0") for name in ("a", "b", "c")]
    damage_open_ledger(data, partitions[1])
    async with House(data) as house:
        await house.duties.retention.retain()
        found = {
            each.topic.kafka_name: each.log.log_start_offset for each in house.services.partitions.all_open()
        }
        assert found == {"a": 20, "c": 20}
    (line,) = [each.getMessage() for each in caplog.records if "retention of" in each.getMessage()]
    assert line.startswith("retention of b-0 failed")


async def test_the_cleaners_settings_change_while_it_waits(tmp_path: Path) -> None:
    async with House(tmp_path / "data", **NEVER) as house:
        partition = await filled(house, "t", **COMPACT)
        await asyncio.sleep(0)
        changed = {"log.cleaner.backoff.ms": "10", "log.cleaner.dedupe.buffer.size": "2048"}
        await house.services.broker.set_dynamic(changed, for_all=False)
        async with asyncio.timeout(20):
            while partition.log.compacted is None:  # noqa: ASYNC110  what is waited for wakes nobody
                await asyncio.sleep(0.01)


async def test_very_many_topics_are_looked_through_in_turns(tmp_path: Path) -> None:
    turns, is_done = 0, False

    async def others() -> None:
        nonlocal turns
        while not is_done:
            turns += 1
            await asyncio.sleep(0)

    async with House(tmp_path / "data", **NEVER) as house:
        for number in range(50):
            await house.services.broker.create_topic(f"t{number}", 1, {"cleanup.policy": "compact"})
        bystander = asyncio.ensure_future(others())
        await asyncio.sleep(0)
        await house.duties.cleaner.clean()
        is_done = True
        await bystander
    assert turns > 50
