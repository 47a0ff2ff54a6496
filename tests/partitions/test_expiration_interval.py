"""How often silent producers are looked for."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.kafka.partitions.registry import Partitions
from tests.broker.both import both


async def test_silent_producers_are_looked_for_as_often_as_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = asyncio.Event()

    async def expire(partitions: Partitions) -> None:
        looked.set()

    monkeypatch.setattr(Partitions, "expire_producers", expire)
    async with both(("kafka",), producer_id_expiration_check_interval_ms="1"):
        await asyncio.wait_for(looked.wait(), 60)
