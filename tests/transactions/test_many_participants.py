"""A Pulsar transaction of very many topics: each that is added has the whole of it written again."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from magnetar.broker.background import Background
from magnetar.broker.transaction_sides import PulsarTransactions
from magnetar.broker.transactions import TooManyTransactions, TxnPartition
from magnetar.kafka.coordinators.log import MemoryOffsetsLog
from magnetar.kafka.settings import KafkaSettings
from magnetar.kafka.transactions.coordinator import TransactionCoordinator
from magnetar.kafka.transactions.pulsar_decider import FEW_PARTICIPANTS, MAX_PARTICIPANTS


def topics(first: int, count: int) -> dict[TxnPartition, str]:
    return {TxnPartition(f"t{number}", 0): f"t{number}" for number in range(first, first + count)}


async def test_a_flood_of_topics_has_turns_for_others_and_an_end() -> None:
    """20,000 of them held everybody up for half a second, and had 5 GB written, a MB for each."""

    async def new_id() -> int:
        return 1000

    log = MemoryOffsetsLog(1)
    made = TransactionCoordinator(
        log, KafkaSettings(), new_id, cast(Any, None), Background(), lambda: 0, PulsarTransactions()
    )
    await made.start()
    await made.loaded()
    pulsars = made.of_pulsar()
    txn = await pulsars.begin(0, 60_000, "", 0)

    def held() -> int:
        return len(pulsars.find(txn).partitions)

    await pulsars.add_partitions(txn, topics(0, FEW_PARTICIPANTS + 1))
    before = held()
    flood = [asyncio.ensure_future(pulsars.add_partitions(txn, topics(1000 + n, 1))) for n in range(50)]
    while held() < before + 50:
        known = held()
        await asyncio.sleep(0)
        assert held() <= known + 1
    await asyncio.gather(*flood)
    await pulsars.add_partitions(txn, topics(10_000, MAX_PARTICIPANTS - held()))
    await pulsars.add_partitions(txn, topics(0, FEW_PARTICIPANTS))  # what it has is no more
    with pytest.raises(TooManyTransactions):
        await pulsars.add_partitions(txn, topics(20_000, 1))
    assert held() == MAX_PARTICIPANTS
    await made.close()
