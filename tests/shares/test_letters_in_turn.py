"""When letters are written: after what they are about is durable, and each once, whatever comes meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.base.background import Background
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shares.share_partition import (
    AcknowledgeType,
    DeadLetters,
    Judged,
    SharePartition,
    StateBatch,
)
from magnetar.kafka.coordinators.share.settings import ShareSettings
from magnetar.kafka.shares.dead_letter_topics import LetterCounts
from magnetar.kafka.shares.dead_letters import DeadLetterQueue
from magnetar.kafka.shares.serving import ServedShare
from magnetar.kafka.shares.state import ShareKey
from magnetar.records.batch import PlainRecord, decode_records, encode_batch
from magnetar.wire.kafka.errors import ErrorCode

SETTINGS = ShareSettings(
    errors_deadletterqueue_topic_name="dlq.x", errors_deadletterqueue_copy_record_enable=True
)
SOURCE = [b"%d" % number for number in range(100)]


class LetterBox:
    """A log, a state and a queue."""

    def __init__(self) -> None:
        self.background = Background()
        self.large = asyncio.Semaphore(1)
        self.counts: dict[str, LetterCounts] = {}
        self.letters: list[int] = []
        self.writes: list[asyncio.Future[ErrorCode]] = []
        self.batches: list[StateBatch] = []
        self.reading = asyncio.Event()
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.partition: Any = SimpleNamespace(
            topic=SimpleNamespace(kafka_name="t"),
            index=0,
            leader_epoch=0,
            closed=None,
            log=SimpleNamespace(log_start_offset=0),
            read=self.read,
        )

    async def read(self, offset: int, max_bytes: int) -> tuple[list[bytes], int]:
        self.reading.set()
        await self.may_read.wait()
        return [encode_batch([PlainRecord(None, value, timestamp=0) for value in SOURCE])], 1

    async def find(self, group_id: str, settings: ShareSettings, source: Any) -> Any:
        return SimpleNamespace(partitions=1, config=SimpleNamespace(max_message_bytes=1 << 20))

    async def append(self, topic: Any, index: int, batch: bytes) -> None:
        self.letters += [int(record.value or b"-1") for record in decode_records(batch)]

    def write(self, key: Any, state_epoch: int, leader_epoch: int, changes: Any) -> Any:
        self.batches += changes.batches
        self.writes.append(asyncio.get_running_loop().create_future())
        return self.writes[-1]


async def turns() -> None:
    """Let all that can be done be done."""
    for _ in range(50):
        await asyncio.sleep(0.002)


async def until_so(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_letter_is_written_once_its_record_is_durably_given_up(is_kept: bool) -> None:
    house = LetterBox()
    served = ServedShare(
        ShareKey("g", bytes(16), 0),
        house.partition,
        house,  # type: ignore[arg-type]
        lambda: SETTINGS,
        lambda: 0,
        lambda served: None,
        house,  # type: ignore[arg-type]
    )
    served._machine = SharePartition(0)
    served.machine.acquire("m", [(0, 9)], 10, max_in_flight=100)
    judging = asyncio.ensure_future(served.judge("m", [Judged(0, 9, AcknowledgeType.REJECT)]))
    await turns()
    assert (house.letters, judging.done(), len(house.writes)) == ([], False, 1)
    if is_kept:
        house.writes[0].set_result(ErrorCode.NONE)
        await judging
        await until_so(lambda: not served.machine.is_archiving)
        assert house.letters == list(range(10))
        assert house.counts == {"g": LetterCounts(records=10, produces=1, failed=0)}
        assert [(each.first, each.last, each.state) for each in house.batches] == [(0, 9, 3)]
        assert (served.machine.start_offset, len(house.writes)) == (10, 2)
    else:
        house.writes[0].set_exception(CoordinatorRefused(ErrorCode.NOT_COORDINATOR))
        with pytest.raises(CoordinatorRefused):
            await judging
        await turns()
        assert house.letters == []
        assert served.is_gone


async def test_what_is_given_up_while_a_batch_is_made_up_is_written_too() -> None:
    house = LetterBox()
    archived: list[DeadLetters] = []
    queue = DeadLetterQueue(
        "g",
        lambda: house.partition,
        house,  # type: ignore[arg-type]
        lambda: SETTINGS,
        archived.extend,
    )
    house.may_read.clear()
    queue.add([DeadLetters(3, 5, 1, True)])
    await house.reading.wait()
    queue.add([DeadLetters(6, 9, 1, True), DeadLetters(20, 20, 2, False)])
    house.may_read.set()
    await until_so(lambda: sum(each.last - each.first + 1 for each in archived) == 8)
    await turns()
    assert house.letters == [3, 4, 5, 6, 7, 8, 9, 20]
    assert house.counts["g"].records == 8
