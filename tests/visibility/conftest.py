"""A whole broker on a slow disk, in this process, and clients of each of its ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from magnetar.ledger.port import ManagedLedger
from magnetar.logs.storage import embedded
from magnetar.node.service import BrokerService
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.header import decode_response_header
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages import response_class
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.hostile.client import frame, request_bytes
from tests.pulsar import raw
from tests.visibility.slow_disk import SlowDisk

TOPIC = "t"
_T = TypeVar("_T")


class KafkaClient:
    """One connection. ``ask`` gives a task: the answer may be long in coming."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._last: asyncio.Task[Any] | None = None

    def ask(self, message: Message, version: int | None = None) -> asyncio.Task[Any]:
        version = type(message).MAX_VERSION if version is None else version
        self._writer.write(frame(request_bytes(message, version)))
        self._last = asyncio.ensure_future(self._hear(message.API_KEY, version, self._last))
        return self._last

    async def _hear(self, api_key: int, version: int, before: asyncio.Task[Any] | None) -> Any:
        if before is not None:
            await asyncio.wait([before])
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        _, body = decode_response_header(await self._reader.readexactly(size), api_key, version)
        return response_class(api_key).decode(body, version)

    async def close(self) -> None:
        if self._last is not None:
            await asyncio.wait([self._last])
        self._writer.close()


class PulsarClient:
    """One connection of Pulsar's, connected; what it hears is taken in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def ask(self, command: BaseCommand, entry: bytes = b"") -> BaseCommand:
        self.say(command, entry)
        return (await self.hear())[0]

    def say(self, command: BaseCommand, entry: bytes = b"") -> None:
        self._writer.write(raw.frame(command, entry))

    async def hear(self) -> tuple[BaseCommand, bytes]:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        data = await self._reader.readexactly(size)
        length = int.from_bytes(data[:4], "big")
        return BaseCommand.FromString(data[4 : 4 + length]), data[4 + length :]

    async def close(self) -> None:
        self._writer.close()


@dataclass
class House:
    """The broker, and the disk under it."""

    service: BrokerService
    disk: SlowDisk
    http: httpx.AsyncClient
    connections: list[KafkaClient | PulsarClient]

    async def log(self, topic: str = TOPIC) -> ManagedLedger:
        """Return the log under the topic's first partition."""
        broker = self.service.broker
        found = broker.topic(topic)
        return await broker.engine.open(found.name.ledger_name(0), broker.ledger_policy(found))

    async def written_to(self, offset: int) -> ManagedLedger:
        """Wait until the log ends at ``offset``, durable or not."""
        log = await self.log()
        while log.log_end_offset < offset:  # noqa: ASYNC110 - nobody tells of what is not durable
            await asyncio.sleep(0.001)
        return log

    @property
    def kafka_address(self) -> str:
        return str(self.service.listeners["kafka"][0].advertised)

    async def kafka(self) -> KafkaClient:
        client = KafkaClient(*await asyncio.open_connection("127.0.0.1", self._port("kafka")))
        self.connections.append(client)
        return client

    async def pulsar(self) -> PulsarClient:
        client = PulsarClient(*await asyncio.open_connection("127.0.0.1", self._port("pulsar")))
        self.connections.append(client)
        assert (await client.ask(raw.hello())).type == BaseCommand.CONNECTED
        return client

    def _port(self, which: str) -> int:
        port: int = self.service.listeners[which][0].bind.port
        return port


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    """A broker that acknowledges what is durable, and nothing else."""
    disk = SlowDisk()
    monkeypatch.setattr(embedded, "RealDisk", lambda: disk)
    texts = {
        "data.dir": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "pulsar.listeners": "pulsar://127.0.0.1:0",
        "http.listeners": "http://127.0.0.1:0",
        "flush": "always",
        "group.initial.rebalance.delay.ms": "0",
    }
    service = BrokerService(Settings().with_values(texts))
    await service.start()
    await service.broker.create_topic(TOPIC, partitions=1)
    url = f"http://127.0.0.1:{service.listeners['admin'][0].bind.port}"
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        made = House(service, disk, http, [])
        yield made
        disk.let_go()
        for connection in made.connections:
            await connection.close()
    await service.close()


async def soon(answer: Awaitable[_T]) -> _T:
    """Return an answer for which the disk need not be waited for."""
    return await asyncio.wait_for(answer, 60)
