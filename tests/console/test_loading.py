"""The console costs what asks for it: loaded late, gathered in slices, and not there where it is switched off."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from magnetar.console.app import make_console
from magnetar.ledger.memory import MemoryEngine
from magnetar.metadata import MemoryStore
from magnetar.node.broker import Broker
from magnetar.pulsar.handler import PulsarProtocolHandler
from magnetar.pulsar.rest.request import Address
from magnetar.schema_registry.handler import SchemaRegistryHandler
from magnetar.settings.settings import Settings
from magnetar.topics.names import TopicName
from magnetar.topics.new_topic import NewTopic
from tests.console.conftest import browser
from tests.process import BrokerProcess

MANY = 10_000


def test_it_may_be_switched_off(tmp_path: Path) -> None:
    arguments = ("--http", "127.0.0.1:0", "--set", "console.enabled=false")
    with BrokerProcess(tmp_path / "data", *arguments) as process, browser(process) as http:
        for path in ("/", "/console", "/console/topics.json", "/console/login"):
            assert http.get(path).status_code == 404
        assert http.get("/admin/v2/brokers/health").status_code == 200


@pytest.mark.slow
async def test_others_have_turns_while_ten_thousand_topics_are_listed(tmp_path: Path) -> None:
    settings = Settings().with_values({"data.dir": str(tmp_path)})
    store = MemoryStore()
    broker = Broker(settings, store, MemoryEngine(store))
    await broker.engine.start()
    await broker.start()
    handlers = (SchemaRegistryHandler(), PulsarProtocolHandler())
    for handler in handlers:
        handler.initialize(settings)
        await handler.start(broker)
    for first in range(0, MANY, 1000):
        names = (TopicName("public", "default", f"t-{first + each:05}") for each in range(1000))
        await broker.create_topics([NewTopic(name, 1) for name in names])
    app = make_console(handlers[1].services, lambda: Address("", "", "", ""))
    transport = httpx.ASGITransport(app=app)
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with httpx.AsyncClient(transport=transport, base_url="http://broker") as http:

        async def ask(path: str) -> Any:
            answer = await http.get(path)
            assert answer.status_code == 200, answer.text
            return answer

        await ask("/console")  # the second look of the first page takes a second
        other = asyncio.create_task(take_turns())
        told = (await ask("/console/topics.json?sort=size&q=t-0&page=3")).json()
        assert (told["found"], len(told["topics"])) == (MANY, 100)
        assert told["topics"][0]["name"].startswith("t-0")
        assert turns > 5  # one to begin and one for the thread, and at least one for each slice
        assert (await ask("/console/topics?size=1000")).text.count("<tr>") == 1001
        other.cancel()
    for handler in reversed(handlers):
        await handler.drain()
        await handler.close()
    await broker.metadata.close()
