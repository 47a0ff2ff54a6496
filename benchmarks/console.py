"""Pages of the console with 10,000 topics: processor time, and how long the event loop is held at a stretch.

    python -m benchmarks.console [TOPICS]

In one process without sockets, all logs open, the least of five runs of each page. It measures processor time, so that
other programs of the machine do not count.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time

import httpx

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

PATHS = (
    "/console",
    "/console/topics",
    "/console/topics?sort=size&page=50",
    "/console/topics?q=t-00",
    "/console/topics?size=1000",
    "/console/topics.json",
    "/console/groups",
)
RUNS = 5


async def main(topics: int) -> None:
    """Print a line for each page."""
    settings = Settings().with_values({"data.dir": tempfile.mkdtemp()})
    store = MemoryStore()
    broker = Broker(settings, store, MemoryEngine(store))
    await broker.engine.start()
    await broker.start()
    registry, pulsar = SchemaRegistryHandler(), PulsarProtocolHandler()
    for handler in (registry, pulsar):
        handler.initialize(settings)
        await handler.start(broker)
    for first in range(0, topics, 1000):
        names = range(first, min(first + 1000, topics))
        await broker.create_topics(
            [NewTopic(TopicName("public", "default", f"t-{number:05}"), 1) for number in names]
        )
    for topic in list(broker.topics()):
        await broker.logs.open_logs.open(topic, 0)
    app = make_console(pulsar.services, lambda: Address("", "", "", ""))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://broker") as http:
        await http.get("/console")  # the first page waits a second for its rates
        for path in PATHS:
            await http.get(path)
            times, held = zip(*[await measured(http, path) for _ in range(RUNS)], strict=True)
            print(f"{path:36} {1000 * min(times):6.1f} ms, loop held {1000 * min(held):.1f} ms at most")


async def measured(http: httpx.AsyncClient, path: str) -> tuple[float, float]:
    """Return the seconds of processor time that a page takes, and the longest stretch of the loop's thread."""
    began = time.process_time()
    assert (await http.get(path)).status_code == 200
    took = time.process_time() - began
    longest = 0.0

    async def take_turns() -> None:
        nonlocal longest
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    others = asyncio.create_task(take_turns())
    await http.get(path)
    others.cancel()
    return took, longest


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
