"""A broker for Kafka's and Pulsar's clients in this process, on memory; both speak in their protocols' own bytes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from magnetar.cluster.ownership import Ownership
from magnetar.kafka.connection import KafkaConnection
from magnetar.kafka.handler import KafkaProtocolHandler
from magnetar.kafka.listeners import parse_listeners
from magnetar.ledger.memory import MemoryEngine
from magnetar.ledger.port import LedgerEngine
from magnetar.metadata import MemoryStore, MetadataStore
from magnetar.node.broker import Broker
from magnetar.node.duties import Duties
from magnetar.node.handlers import ProtocolHandler
from magnetar.pulsar.handler import PulsarProtocolHandler
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.records.compression import Buffer
from magnetar.schema_registry.handler import SchemaRegistryHandler
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.frames import KafkaFrameReader
from magnetar.wire.kafka.header import decode_response_header
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages import response_class
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.accounts import account
from tests.hostile.client import frame, request_bytes
from tests.ledger.entries import NOW_MS
from tests.pulsar.inside import Inside

PRODUCE, FETCH = 9, 12
"""Versions that name topics."""
FAR_TOO_LONG_MS = 200_000
_HANDLERS: dict[str, type[ProtocolHandler]] = {
    "kafka": KafkaProtocolHandler,
    "pulsar": PulsarProtocolHandler,
    "schema-registry": SchemaRegistryHandler,
}


class KafkaClient:
    """One connection."""

    def __init__(self, broker: Broker, handler: KafkaProtocolHandler) -> None:
        self._frames, self._answers = KafkaFrameReader(), KafkaFrameReader()
        self._asked: deque[tuple[int, int, asyncio.Future[Any]]] = deque()
        self._conversation = KafkaConnection(
            handler.services, parse_listeners(broker.settings)[0], "127.0.0.1", self._frames, self._hear,
            lambda: None, account(),
        )  # fmt: skip

    def begin(self, message: Message, version: int) -> asyncio.Future[Any]:
        """Send a request; the future has the answer."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.append((message.API_KEY, version, answer))
        self._frames.feed(frame(request_bytes(message, version)))
        self._conversation.go_on()
        return answer

    async def ask(self, message: Message, version: int) -> Any:
        """Send a request and wait for its answer."""
        return await self.begin(message, version)

    def _hear(self, parts: Sequence[Buffer]) -> None:
        self._answers.feed(b"".join(parts))
        while (content := self._answers.next_frame()) is not None:
            api_key, version, answer = self._asked.popleft()
            _, body = decode_response_header(content, api_key, version)
            answer.set_result(response_class(api_key).decode(bytes(body), version))

    async def produce(self, topic: str, *values: bytes, index: int = 0) -> Any:
        """Produce one batch and return the partition's row of the answer."""
        data = encode_batch([PlainRecord(b"k", value, (), NOW_MS) for value in values])
        rows = [PartitionProduceData(index=index, records=bytes(data))]
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=rows)]
        )
        return (await self.ask(request, PRODUCE)).responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, *, index: int = 0, epoch: int = -1) -> asyncio.Future[Any]:
        """Fetch; the future has the partition's row of the answer."""
        asked = FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
        )
        request = FetchRequest(
            max_wait_ms=FAR_TOO_LONG_MS, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[asked])],
        )  # fmt: skip

        async def row() -> Any:
            return (await answer).responses[0].partitions[0]

        answer = self.begin(request, FETCH)
        return asyncio.ensure_future(row())


class Both:
    """The broker; a protocol that it does not serve has no client."""

    def __init__(self, broker: Broker, handlers: dict[str, ProtocolHandler]) -> None:
        self.broker = broker
        self.handlers = handlers
        kafka, pulsar = handlers.get("kafka"), handlers.get("pulsar")
        if isinstance(kafka, KafkaProtocolHandler):
            self.kafka_services = kafka.services
            self.kafka = KafkaClient(broker, kafka)
        if isinstance(pulsar, PulsarProtocolHandler):
            self.pulsar_services = pulsar.services
            self.pulsar_server = Inside(broker, pulsar).server
            self.pulsar = Inside(broker, pulsar).client()


@asynccontextmanager
async def both(
    protocols: Sequence[str] = ("kafka", "pulsar"),
    *,
    ownership: Ownership | None = None,
    engine_on: Callable[[MetadataStore], LedgerEngine] = MemoryEngine,
    store: MetadataStore | None = None,
    **settings: str,
) -> AsyncIterator[Both]:
    """Return a broker that serves these protocols; settings are named with underscores."""
    store = store or MemoryStore()
    engine = engine_on(store)
    await engine.start()
    texts = {"group_initial_rebalance_delay_ms": "0", **settings}
    given = Settings().with_values({name.replace("_", "."): text for name, text in texts.items()})
    broker = Broker(given, store, engine, ownership)
    await broker.start()
    handlers: dict[str, ProtocolHandler] = {}
    for name in ("schema-registry", *protocols):
        handler = handlers[name] = _HANDLERS[name]()
        handler.initialize(given)
        await handler.start(broker)
    Duties(broker).start()
    try:
        yield Both(broker, handlers)
    finally:
        for handler in handlers.values():
            await handler.drain()
        for handler in handlers.values():
            await handler.close()
        await broker.background.close()
        await engine.close()
