"""Faults are injected into a whole broker; `why` must name the right one, and only that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.admin.reasons import Reason
from magnetar.admin.why_partition import FailedRead, PartitionFacts, why_partition
from magnetar.cluster.ownership import NotOwned, Owned
from magnetar.kafka.partitions.partition import Partition
from magnetar.ledger.errors import LedgerError, LedgerFenced, StorageFailed, StorageFull
from magnetar.ledger.formats.info import path_of
from magnetar.ledger.formats.layout import ledger_path
from magnetar.topics.topic import Topic
from tests.admin.house import House

_MINUTE_MS = 60_000
THE_OTHER = Owned(7, 1)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with House(tmp_path / "data") as made:
        await made.services.groups.loaded()
        yield made


def damage(root: Path, ledger_id: int) -> None:
    """Turn one bit in a ledger's first entry, with a whole entry behind it."""
    path = ledger_path(root, ledger_id)
    data = bytearray(path.read_bytes())
    data[100] ^= 0x10
    path.write_bytes(data)


class TestPartitions:
    async def test_no_such_topic(self, house: House) -> None:
        why = await house.ask.why_partition("nowhere", 0)
        assert why.reason is Reason.NO_TOPIC
        assert "topic list" in why.next_step

    async def test_a_name_that_cannot_be_a_topic_is_no_topic(self, house: House) -> None:
        assert (await house.ask.why_partition("a/b", 0)).reason is Reason.NO_TOPIC

    async def test_no_such_partition(self, house: House) -> None:
        await house.topic("t", partitions=2)
        why = await house.ask.why_partition("t", 2)
        assert why.reason is Reason.NO_PARTITION
        assert "0 to 1" in why.says

    async def test_never_written(self, house: House) -> None:
        await house.topic()
        why = await house.ask.why_partition("t", 0)
        assert why.reason is Reason.NEVER_WRITTEN

    async def test_parked_fetches_are_counted(self, house: House) -> None:
        partition = await house.topic()
        partition.wait(lambda: None)
        partition.wait(lambda: "a second one")
        why = await house.ask.why_partition("t", 0)
        assert "2 fetches wait here" in why.says

    async def test_moving(self, house: House) -> None:
        await house.produce(await house.topic())
        assert (await house.ask.why_partition("t", 0)).reason is Reason.MOVING

    async def test_no_producer_since(self, house: House) -> None:
        await house.produce(await house.topic())
        why = await house.ask_later(5 * _MINUTE_MS).why_partition("t", 0)
        assert why.reason is Reason.IDLE
        assert "5 min" in why.says

    async def test_all_records_were_let_go(self, house: House) -> None:
        partition = await house.topic()
        await house.produce(partition)
        await partition.log.trim(10)
        assert (await house.ask.why_partition("t", 0)).reason is Reason.EMPTIED

    async def test_disk_full_until_there_is_room(self, house: House) -> None:
        partition = await house.topic()
        await house.produce(partition)
        house.disk.full = True
        with pytest.raises(StorageFull):
            house.begin_produce(partition)
        why = await house.ask.why_partition("t", 0)
        assert why.reason is Reason.DISK_FULL
        assert "No space left" in why.says
        house.disk.full = False
        await house.produce(partition)
        assert (await house.ask.why_partition("t", 0)).reason is Reason.MOVING

    async def test_the_disk_fails(self, house: House) -> None:
        partition = await house.topic()
        await house.produce(partition)
        house.disk.broken = True
        durable = house.begin_produce(partition)
        assert durable is not None
        with pytest.raises(StorageFailed):
            await durable
        why = await house.ask.why_partition("t", 0)
        assert why.reason is Reason.DISK_FAILED
        assert "Input/output error" in why.says

    async def test_another_owner(self, house: House) -> None:
        partition = await house.topic(segment_bytes="1048576")
        await house.produce(partition)
        path = path_of(partition.log.name)
        stored = house.services.broker.store.blocking.get(path)
        assert stored is not None
        house.services.broker.store.blocking.put(path, stored.value)
        partition.log.policy = replace(partition.log.policy, max_ledger_entries=1)
        with pytest.raises(LedgerFenced):
            await house.produce(partition)
        assert (await house.ask.why_partition("t", 0)).reason is Reason.FENCED

    async def test_the_engine_holds_a_fenced_log_no_more(self, house: House) -> None:
        partition = await house.topic(segment_bytes="1048576")
        await house.produce(partition)
        log, engine = partition.log, house.services.broker.engine
        told: list[LedgerError] = []
        log.on_closed.append(told.append)
        stored = house.services.broker.store.blocking.get(path_of(log.name))
        assert stored is not None
        house.services.broker.store.blocking.put(path_of(log.name), stored.value)
        log.policy = replace(log.policy, max_ledger_entries=1)
        with pytest.raises(LedgerFenced):
            await house.produce(partition)
        opened = await engine.open(log.name, log.policy)
        assert opened is not log
        assert opened.log_end_offset == log.log_end_offset
        assert [type(reason) for reason in told] == [LedgerFenced]

    async def test_slow_flushes(self, house: House) -> None:
        partition = await house.topic()
        await house.produce(partition)
        house.disk.flushes.clear()
        durable = house.begin_produce(partition, 7)
        assert durable is not None
        assert (await house.ask.why_partition("t", 0)).reason is Reason.MOVING
        why = await house.ask_later(3000).why_partition("t", 0)
        assert why.reason is Reason.FLUSH_SLOW
        assert "7 records" in why.says
        house.disk.flushes.set()
        await durable
        assert (await house.ask.why_partition("t", 0)).reason is Reason.MOVING

    async def test_damage_is_named_with_its_place(self, tmp_path: Path) -> None:
        root = tmp_path / "data"
        async with House(root) as house:
            partition = await house.topic()
            await house.produce(partition)
            await house.produce(partition)
            ledger_id = partition.log.ledgers()[0].ledger_id
        ledger_path(root, ledger_id).with_suffix(".index").unlink(missing_ok=True)
        damage(root, ledger_id)
        async with House(root) as house:
            why = await house.ask.why_partition("t", 0)
            assert why.reason is Reason.DAMAGED
            assert ledger_path(root, ledger_id).name in why.says
            assert "ledger verify" in why.next_step

    async def test_a_read_that_fails(self, house: House) -> None:
        partition = await house.topic()
        for _ in range(3):
            await house.produce(partition)
        damage(house.root, partition.log.ledgers()[0].ledger_id)
        with pytest.raises(LedgerError):
            await partition.read(0, 1 << 20)
        unread = partition.unread
        assert unread is not None
        assert (unread.offset, unread.kind, unread.in_tier) == (0, "LedgerCorrupt", False)
        damage(house.root, partition.log.ledgers()[0].ledger_id)  # the same bit once more: it is well again
        await partition.read(0, 1 << 20)
        assert partition.unread is None

    @pytest.mark.parametrize(("in_tier", "reason"), [(True, Reason.TIER_FAILED), (False, Reason.UNREADABLE)])
    def test_what_could_not_be_read(self, in_tier: bool, reason: Reason) -> None:
        facts = PartitionFacts(
            "t", 0, 20_000, 1, first_offset=5, next_offset=90, visible_offset=90, last_append_ms=19_000,
            unread=FailedRead(8_000, 7, "the store is down", in_tier=in_tier),
        )  # fmt: skip
        why = why_partition(facts)
        assert why.reason is reason
        assert why.says == "offset 7 could not be read 12 s ago: the store is down"
        assert why_partition(replace(facts, first_offset=8)).reason is Reason.MOVING, (
            "it is not kept any more"
        )


class TestWhatOtherBrokersHave:
    """A cluster's broker knows of the partitions that it has, and keeps groups that read others."""

    async def test_a_partition(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        await house.topic("t", partitions=2)
        _elsewhere(house, monkeypatch, "t", 1)
        why = await house.ask.why_partition("t", 1)
        assert (why.reason, why.says.split(",")[0]) == (Reason.ELSEWHERE, "broker 7 has it")
        assert "why t-1 --bootstrap-server" in why.next_step
        assert (await house.ask.why_partition("t", 0)).reason is Reason.NEVER_WRITTEN

    async def test_one_that_nobody_has_for_the_moment(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await house.topic("t")
        _elsewhere(house, monkeypatch, "t", 0, owner=None)
        why = await house.ask.why_partition("t", 0)
        assert (why.reason, why.says[:9]) == (Reason.ELSEWHERE, "no broker")

    async def test_a_group(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        await house.produce(await house.topic("t", partitions=2))
        await house.commit("g", 10, topic="t")
        await house.commit("g", 900, topic="t", partition=1)
        _elsewhere(house, monkeypatch, "t", 1)
        why = await house.ask.why_group("g")
        assert why.reason is Reason.ELSEWHERE, why
        assert "t-1 (broker 7)" in why.says
        assert why.facts is not None
        assert why.facts["t-1"] == "committed 900 of broker 7, held by nobody"
        why = await house.ask_later(_MINUTE_MS).why_group("g")
        assert why.reason is Reason.NO_MEMBERS
        assert "other brokers" in why.says


def _elsewhere(
    house: House, monkeypatch: pytest.MonkeyPatch, topic: str, index: int, owner: Owned | None = THE_OTHER
) -> None:
    """Have a partition be another broker's."""
    partitions = house.services.partitions
    get = partitions.get

    async def not_there(found: Topic, partition: int) -> Partition:
        if (found.kafka_name, partition) == (topic, index):
            raise NotOwned(f"{topic}-{index}", owner)
        return await get(found, partition)

    monkeypatch.setattr(partitions, "get", not_there)


class TestGroups:
    async def test_the_coordinator_is_loading(self, tmp_path: Path) -> None:
        root = tmp_path / "data"
        async with House(root) as house:
            await house.services.groups.loaded()
            await house.topic()
            await house.commit("g", 0)
            await house.commit("g", 0)
            index = house.services.groups.partition_of("g")
            topic = house.services.broker.topic("__consumer_offsets")
            partition = await house.services.partitions.get(topic, index)
            ledger_id = partition.log.ledgers()[0].ledger_id
        damage(root, ledger_id)
        async with House(root) as house:
            await asyncio.sleep(0.1)
            why = await house.ask.why_group("g")
            assert why.reason is Reason.LOADING
            assert f"__consumer_offsets-{index}" in why.says
            inner = await house.ask.why_partition("__consumer_offsets", index)
            assert inner.reason is Reason.DAMAGED

    async def test_no_such_group(self, house: House) -> None:
        assert (await house.ask.why_group("nobody")).reason is Reason.NO_GROUP

    async def test_nobody_is_in_the_group(self, house: House) -> None:
        await house.produce(await house.topic())
        await house.commit("g", 4)
        why = await house.ask_later(_MINUTE_MS).why_group("g")
        assert why.reason is Reason.NO_MEMBERS
        assert "6 records wait" in why.says

    async def test_nobody_is_in_the_group_and_nothing_waits_for_it(self, house: House) -> None:
        await house.produce(await house.topic())
        await house.commit("g", 10)
        assert (await house.ask.why_group("g")).reason is Reason.CAUGHT_UP
        why = await house.ask_later(_MINUTE_MS).why_group("g")
        assert why.reason is Reason.CAUGHT_UP
        assert "nobody is in the group now" in why.says

    async def test_a_member_has_not_rejoined(self, house: House) -> None:
        await house.topic()
        late = await house.join_and_sync("g", [("t", 0)])
        new = house.begin_join("g")
        await asyncio.sleep(0.05)
        why = await house.ask.why_group("g")
        assert why.reason is Reason.WAITS_FOR_JOIN
        assert late in why.says
        new.cancel()

    async def test_the_leader_has_not_assigned(self, house: House) -> None:
        await house.topic()
        leader = (await house.begin_join("g")).member_id
        why = await house.ask.why_group("g")
        assert why.reason is Reason.WAITS_FOR_SYNC
        assert leader in why.says

    async def test_a_member_is_silent(self, house: House) -> None:
        await house.produce(await house.topic())
        member = await house.join_and_sync("g", [("t", 0)], session_ms=1000)
        await house.commit("g", 3)
        await asyncio.sleep(0.6)
        why = await house.ask.why_group("g")
        assert why.reason is Reason.MEMBER_SILENT
        assert member in why.says
        assert "t-0" in why.says

    async def test_retention_overtook(self, house: House) -> None:
        partition = await house.topic()
        await house.produce(partition)
        await house.join_and_sync("g", [("t", 0)])
        await house.commit("g", 2)
        await partition.log.trim(8)
        why = await house.ask.why_group("g")
        assert why.reason is Reason.OVERTAKEN
        assert "6 records are gone" in why.says

    async def test_ahead_of_the_log(self, house: House) -> None:
        await house.produce(await house.topic())
        await house.commit("g", 1000)
        assert (await house.ask.why_group("g")).reason is Reason.AHEAD

    async def test_a_partition_that_nobody_holds(self, house: House) -> None:
        await house.produce(await house.topic())
        await house.produce(await house.topic("u"))
        await house.join_and_sync("g", [("t", 0)])
        await house.commit("g", 10)
        await house.commit("g", 1, topic="u")
        why = await house.ask.why_group("g")
        assert why.reason is Reason.UNASSIGNED
        assert "u-0" in why.says

    async def test_a_member_that_does_not_commit(self, house: House) -> None:
        await house.produce(await house.topic())
        member = await house.join_and_sync("g", [("t", 0)])
        await house.commit("g", 3)
        why = await house.ask_later(_MINUTE_MS).why_group("g")
        assert why.reason is Reason.NOT_COMMITTING
        assert member in why.says
        assert "7 records behind" in why.says

    async def test_a_member_that_never_committed(self, house: House) -> None:
        await house.produce(await house.topic())
        await house.join_and_sync("g", [("t", 0)])
        why = await house.ask_later(_MINUTE_MS).why_group("g")
        assert why.reason is Reason.NOT_COMMITTING

    async def test_caught_up(self, house: House) -> None:
        await house.produce(await house.topic())
        await house.join_and_sync("g", [("t", 0)])
        await house.commit("g", 10)
        why = await house.ask_later(2 * _MINUTE_MS).why_group("g")
        assert why.reason is Reason.CAUGHT_UP
        assert "nothing new for 2 min" in why.says

    async def test_moving(self, house: House) -> None:
        await house.produce(await house.topic())
        await house.join_and_sync("g", [("t", 0)])
        await house.commit("g", 3)
        assert (await house.ask.why_group("g")).reason is Reason.MOVING

    async def test_its_partition_is_damaged(self, tmp_path: Path) -> None:
        root = tmp_path / "data"
        async with House(root) as house:
            await house.services.groups.loaded()
            partition = await house.topic()
            await house.produce(partition)
            await house.produce(partition)
            await house.commit("g", 3)
            ledger_id = partition.log.ledgers()[0].ledger_id
        ledger_path(root, ledger_id).with_suffix(".index").unlink(missing_ok=True)
        damage(root, ledger_id)
        async with House(root) as house:
            await house.services.groups.loaded()
            why = await house.ask.why_group("g")
            assert why.reason is Reason.DAMAGED
            assert "t-0" in why.says


async def test_every_answer_says_what_to_do_next(house: House) -> None:
    await house.topic()
    for why in (await house.ask.why_partition("t", 0), await house.ask.why_group("g")):
        assert why.next_step
