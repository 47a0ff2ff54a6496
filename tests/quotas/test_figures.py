"""What those with quotas use, and how they were made to wait, is told; to who may see the cluster's configurations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from magnetar.figures.figures import FigureTable
from magnetar.kafka.figures import KafkaFigures
from magnetar.kafka.quotas.figures import quota_tables
from magnetar.topics.client_quotas import QuotaEntity
from tests.hostile.test_fuzz import broker, kafka
from tests.quotas.asking import fetch, produce
from tests.quotas.test_throttling import HOSTILE, House, topics


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with broker(tmp_path / "data") as service:
        await kafka(service).services.broker.create_topic("t", 1)
        yield House(service)


def told(tables: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for table in tables:
        for row in table.rows if isinstance(table, FigureTable) else ():
            for family, value in zip(table.families, row[1:], strict=True):
                found.setdefault(family.name, {})[row[0]] = value
    return found


async def test_what_is_used_and_waited(house: House) -> None:
    quotas = {"producer_byte_rate": 1000.0, "consumer_byte_rate": 1e6, "controller_mutation_rate": 1.0}
    await house.limit(HOSTILE, **quotas)
    await house.limit(QuotaEntity(ip="127.0.0.1"), connection_creation_rate=1.0)
    client = house.client()
    waited = (await client.ask(produce("t", [bytes(20_000)]))).throttle_time_ms
    client.wait(waited)
    await client.ask(fetch("t", 0))
    await client.ask(topics("a", partitions=4))
    for _ in range(11):
        house.quotas.connected("127.0.0.1")
    found = told(quota_tables(house.quotas, 100))
    who = '{user="",client_id="hostile"}'
    assert found["kafka_server_fetch_byte_rate"][who] == pytest.approx(2000, rel=0.05)
    assert found["kafka_server_controllermutation_tokens"] == {who: 7.0}
    labels = '{quota="producer_byte_rate",user="",client_id="hostile"}'
    assert found["magnetar_quota_throttled_total"][labels] == 1
    assert found["magnetar_quota_throttled_seconds_total"][labels] == waited / 1000
    assert found["magnetar_quota_throttled_total"]['{quota="connection_creation_rate",ip="127.0.0.1"}'] == 1
    few = told(quota_tables(house.quotas, 0))
    assert few == {}


async def test_who_may_not_see_configurations_is_not_told_of_users(house: House) -> None:
    class Refused:
        def may(self, right: Any, of: Any = None) -> bool:
            return False

    figures = KafkaFigures(house.services, kafka(house.service)._server, None)
    assert "magnetar_quota_throttled_total" in {f.name for t in figures(None) if t for f in t.families}
    refused: Any = Refused()
    assert "magnetar_quota_throttled_total" not in {f.name for t in figures(refused) if t for f in t.families}
