"""What lies behind a batch that was refused, and comes before it is sent again, is no sign of lost records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.kafka.errors import code_for
from magnetar.kafka.partitions import partition as partition_module
from magnetar.kafka.partitions.partition import Partition
from magnetar.ledger.errors import StorageFull
from magnetar.ledger.memory import MemoryEngine
from magnetar.ledger.port import LedgerPolicy, TakenBack
from magnetar.logs import producers as producers_module
from magnetar.logs.producers import BatchTooEarly, OutOfOrderSequence
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.topics.topic_config import TopicConfig
from magnetar.wire.kafka.errors import ErrorCode
from tests.admin.house import drafted
from tests.ledger.entries import prepared


class House:
    """A partition in memory, opened as often as one likes."""

    partition: Any = None

    async def open(self) -> None:
        self.engine = MemoryEngine()
        name = "public/default/persistent/t-partition-0"
        self.log = await prepared(await self.engine.open(name, LedgerPolicy()))
        await self.open_partition()

    async def open_partition(self) -> None:
        topic: Any = SimpleNamespace(config=TopicConfig(), internal=False, kafka_name="t")
        known = None if self.partition is None else self.partition.producers
        self.partition = Partition(topic, 0, self.log, lambda: 1000, producers=known)
        self.partition.leader_epoch = 1  # as one that has had another owner
        await self.partition.load()

    async def send(self, sequence: int, epoch: int = 0, producer_id: int = 7) -> int:
        records = [PlainRecord(None, b"v", (), 5)]
        data = encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        placed = self.partition.produce(await drafted(self.partition, memoryview(data)))
        return int(placed.base_offset)


@pytest.fixture
async def house() -> House:
    made = House()
    await made.open()
    return made


async def test_a_gap_in_a_partition_that_was_here_all_the_time_is_told_as_one(house: House) -> None:
    assert await house.send(0) == 0
    with pytest.raises(OutOfOrderSequence):
        await house.send(2)


async def test_where_another_owner_may_have_refused_one_those_behind_it_get_the_same(house: House) -> None:
    """They are sent again in their order; for OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka begins a new epoch."""
    await house.send(0)
    await house.open_partition()
    for sequence, epoch in ((2, 0), (3, 0), (1, 1)):
        with pytest.raises(BatchTooEarly, match="was refused lately") as refused:
            await house.send(sequence, epoch)
        assert code_for(refused.value) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [await house.send(sequence) for sequence in (1, 2, 3)] == [1, 2, 3]
    assert await house.send(2) == 2, "what is stored is known again"


async def test_what_came_before_and_is_not_known_any_more_is_no_early_batch(house: House) -> None:
    for sequence in range(9):
        await house.send(sequence)
    await house.open_partition()
    with pytest.raises(OutOfOrderSequence):
        await house.send(1)


async def test_behind_what_storage_took_back_too(house: House) -> None:
    await house.send(0)
    await house.send(1)
    house.partition._taken_back(TakenBack(1, StorageFull("no room")))
    with pytest.raises(BatchTooEarly):
        await house.send(2)
    assert await house.send(1) == 2


async def test_behind_what_storage_refused_too(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.send(0)

    def refuses(*_: object, **__: object) -> None:
        raise StorageFull("no room")

    with monkeypatch.context() as patched:
        patched.setattr(house.log, "append", refuses)
        with pytest.raises(StorageFull):
            await house.send(1)
    with pytest.raises(BatchTooEarly):
        await house.send(2)
    assert await house.send(1) == 1


async def test_who_does_not_send_again_has_lost_it(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.send(0)
    monkeypatch.setattr(partition_module, "_SETTLES_S", 0.0)
    await house.open_partition()
    with pytest.raises(OutOfOrderSequence):
        await house.send(2)


async def test_who_is_not_known_and_begins_late_is_asked_once_for_what_comes_before(house: House) -> None:
    """Its first batch may be on its way from the owner of before; librdkafka would take it for stored, too."""
    for sequence in (15, 20, 25):
        with pytest.raises(BatchTooEarly, match="nothing is known of producer 7") as refused:
            await house.send(sequence)
        assert code_for(refused.value) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await house.send(0) == 0
    with pytest.raises(OutOfOrderSequence):
        await house.send(15)


async def test_who_sends_the_same_again_has_nothing_before_it(house: House) -> None:
    """The topic may be another one of the same name, or its producer unknown for having been idle for long."""
    for sequence in (20, 15, 20):  # the lowest counts: the others lie behind it
        with pytest.raises(BatchTooEarly):
            await house.send(sequence)
    assert [await house.send(sequence) for sequence in (15, 16)] == [0, 1]


async def test_an_epoch_begins_late_by_itself(house: House) -> None:
    for epoch in (0, 1):
        with pytest.raises(BatchTooEarly):
            await house.send(4, epoch)
    assert await house.send(4, 1) == 0


async def test_of_those_that_never_came_again_not_all_are_kept(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers_module, "_KEPT_LATE", 2)
    for producer_id in (1, 2, 3):
        with pytest.raises(BatchTooEarly):
            await house.send(4, producer_id=producer_id)
    assert await house.send(4, producer_id=3) == 0
    with pytest.raises(BatchTooEarly):
        await house.send(4, producer_id=1)
