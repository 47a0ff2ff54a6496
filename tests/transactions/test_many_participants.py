"""A Pulsar transaction of very many topics: each that is added has the whole of it written again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from magnetar.base.background import Background
from magnetar.coordination.log import MemoryOffsetsLog
from magnetar.coordination.transaction_sides import PulsarTransactions
from magnetar.coordination.transactions import TooManyTransactions, TxnId, TxnPartition
from magnetar.kafka.settings import KafkaSettings
from magnetar.kafka.transactions.coordinator import TransactionCoordinator
from magnetar.kafka.transactions.pulsar_coordinator import MOST_TOGETHER, PulsarCoordinator
from magnetar.kafka.transactions.pulsar_decider import FEW_PARTICIPANTS, MAX_PARTICIPANTS, PulsarDecider


def topics(first: int, count: int) -> dict[TxnPartition, str]:
    return {TxnPartition(f"t{number}", 0): f"t{number}" for number in range(first, first + count)}


class CountingLog(MemoryOffsetsLog):
    """Counts the records that are appended."""

    def __init__(self) -> None:
        super().__init__(1)
        self.appended = 0

    async def append(self, partition: int, batch: bytes, records: int) -> int:
        self.appended += records
        await asyncio.sleep(0)
        return await super().append(partition, batch, records)


@asynccontextmanager
async def coordinator(log: MemoryOffsetsLog) -> AsyncIterator[PulsarCoordinator]:
    async def new_id() -> int:
        return 1000

    made = TransactionCoordinator(
        log, KafkaSettings(), new_id, cast(Any, None), Background(), lambda: 0, PulsarTransactions()
    )
    await made.start()
    await made.loaded()
    yield made.of_pulsar()
    await made.close()


async def test_a_flood_of_topics_is_written_together_and_has_an_end() -> None:
    """20,000 of them held everybody up for half a second, and had 5 GB written, a MB for each."""
    log = CountingLog()
    async with coordinator(log) as pulsars:
        txn = await pulsars.begin(0, 60_000, "", 0)

        def held() -> int:
            return len(pulsars.find(txn).partitions)

        await pulsars.add_partitions(txn, topics(0, FEW_PARTICIPANTS + 1))
        before, written = held(), log.appended
        await asyncio.gather(*(pulsars.add_partitions(txn, topics(1000 + n, 1)) for n in range(50)))
        assert held() == before + 50
        assert log.appended - written <= 3, "each writes all of them again"
        assert not pulsars._adding
        await pulsars.add_partitions(txn, topics(10_000, MAX_PARTICIPANTS - held()))
        await pulsars.add_partitions(txn, topics(0, FEW_PARTICIPANTS))  # what it has is no more
        with pytest.raises(TooManyTransactions):
            await pulsars.add_partitions(txn, topics(20_000, 1))
        assert held() == MAX_PARTICIPANTS
    async with coordinator(log) as again:
        assert len(again.find(txn).partitions) == MAX_PARTICIPANTS


async def test_additions_that_are_large_have_turns_for_others_between() -> None:
    async with coordinator(MemoryOffsetsLog(1)) as pulsars:
        txns = [TxnId(0, number) for number in range(20)]
        decider = pulsars._decider(0)
        for txn in txns:
            decider.begin(txn, 60_000, "", 0, 0)
            await pulsars.add_partitions(txn, topics(0, FEW_PARTICIPANTS + 1))

        def held() -> int:
            return sum(len(pulsars.find(txn).partitions) for txn in txns)

        end = held() + len(txns)
        flood = [asyncio.ensure_future(pulsars.add_partitions(txn, topics(1000, 1))) for txn in txns]
        while held() < end:
            known = held()
            await asyncio.sleep(0)
            assert held() <= known + 1
        await asyncio.gather(*flood)


async def test_of_additions_that_came_together_only_those_are_refused_that_are_too_many() -> None:
    log = CountingLog()
    async with coordinator(log) as pulsars:
        txn = await pulsars.begin(0, 60_000, "", 0)
        await pulsars.add_partitions(txn, topics(0, MAX_PARTICIPANTS - 10))
        told = await asyncio.gather(
            *(pulsars.add_partitions(txn, topics(MAX_PARTICIPANTS + n, 1)) for n in range(50)),
            return_exceptions=True,
        )
        assert [each for each in told if each is not None and not isinstance(each, TooManyTransactions)] == []
        assert told.count(None) == 10
        assert len(pulsars.find(txn).partitions) == MAX_PARTICIPANTS


async def test_a_client_that_goes_takes_nobody_elses_addition_with_it() -> None:
    async with coordinator(MemoryOffsetsLog(1)) as pulsars:
        txn = await pulsars.begin(0, 60_000, "", 0)
        await pulsars.add_partitions(txn, topics(0, FEW_PARTICIPANTS + 1))
        for turns in range(6):
            first = 1000 * (turns + 1)
            flood = [
                asyncio.ensure_future(pulsars.add_partitions(txn, topics(first + n, 1))) for n in range(20)
            ]
            for _ in range(turns):
                await asyncio.sleep(0)
            for each in flood[::2]:
                each.cancel()
            told = await asyncio.gather(*flood, return_exceptions=True)
            assert told[1::2] == [None] * 10
            known = {where.topic for where in pulsars.find(txn).partitions}
            assert known >= {f"t{first + n}" for n in range(1, 20, 2)}
            assert not pulsars._adding
        gone = [asyncio.ensure_future(pulsars.add_partitions(txn, topics(9000 + n, 1))) for n in range(20)]
        await asyncio.sleep(0)
        for each in gone:
            each.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        assert not pulsars._adding
        await pulsars.add_partitions(txn, topics(9500, 1))
        known = {where.topic for where in pulsars.find(txn).partitions}
        assert not known & {f"t{9000 + n}" for n in range(1, 20)}, "nobody waits for them any more"


@pytest.mark.slow
@pytest.mark.parametrize("count", [1000, 20_000])
async def test_what_is_asked_for_at_once_is_bounded(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 that came together were looked at in one go, to be refused: that took 0.2 s."""
    asked: list[int] = []
    add = PulsarDecider.add

    def counted(self: PulsarDecider, txn: TxnId, partitions: Any, subscriptions: Any) -> Any:
        asked.append(len(partitions))
        return add(self, txn, partitions, subscriptions)

    monkeypatch.setattr(PulsarDecider, "add", counted)
    async with coordinator(CountingLog()) as pulsars:
        txn = await pulsars.begin(0, 60_000, "", 0)
        await pulsars.add_partitions(txn, topics(0, FEW_PARTICIPANTS + 1))
        before = len(pulsars.find(txn).partitions)
        asked.clear()
        flood = [pulsars.add_partitions(txn, topics(1000 + n, 1)) for n in range(count)]
        told = await asyncio.gather(*flood, return_exceptions=True)
        assert told.count(None) == min(count, MAX_PARTICIPANTS - before)
        assert all(each is None or isinstance(each, TooManyTransactions) for each in told)
        assert max(asked) == MOST_TOGETHER
        assert not pulsars._adding
