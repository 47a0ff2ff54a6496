"""Retention takes nothing that is not durable, however old it is and whatever files were flushed."""

from __future__ import annotations

import asyncio

from magnetar.topics.topic_config import TopicConfig
from tests.visibility.conftest import TOPIC, House, soon
from tests.visibility.test_kafka import PRODUCE_VERSION, produce

LATER_MS = 1 << 45


async def test_retention_stops_before_what_is_not_durable(house: House) -> None:
    assert TopicConfig().retention_ms > 0
    client = await house.kafka()
    await soon(client.ask(produce(1000), PRODUCE_VERSION))
    log = await house.log(TOPIC)
    house.disk.hold()
    late = client.ask(produce(2000), PRODUCE_VERSION)
    await house.written_to(2)
    await log.retain(LATER_MS)  # all of it is past its time: the ledger is left for a new one, and sealed
    while not log.ledgers()[0].sealed:  # noqa: ASYNC110 - it is, behind us: its file is flushed by itself
        await asyncio.sleep(0.001)
    await log.retain(LATER_MS)
    assert (log.log_start_offset, log.high_watermark) == (0, 1)
    house.disk.let_go()
    await soon(late)
    await log.retain(LATER_MS)
    assert (log.log_start_offset, log.high_watermark) == (2, 2)
