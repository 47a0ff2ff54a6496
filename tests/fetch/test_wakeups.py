"""An append wakes parked fetches at once: the first few before its producer is answered, and none is forgotten."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from magnetar.kafka.connection import KafkaConnection
from magnetar.kafka.handler import KafkaProtocolHandler
from magnetar.node.service import BrokerService
from magnetar.records.compression import Buffer
from magnetar.serving.eager import Eager
from magnetar.serving.wakeups import MAX_FIRST, Wakeup, Wakeups
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.frames import KafkaFrameReader
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.accounts import account
from tests.hostile.client import request_bytes
from tests.ledger.entries import batch

PRODUCE_VERSION, FETCH_VERSION = 9, 12
FAR_TOO_LONG_MS = 200_000


class Peer:
    """A client whose answers are noted in ``heard`` under its name."""

    def __init__(self, name: str, service: BrokerService, heard: list[str]) -> None:
        self.answers: list[bytes] = []
        self.has_answer = asyncio.Event()
        self._name = name
        self._heard = heard
        self._frames = KafkaFrameReader(1 << 20)
        handler = next(each for each in service.handlers if isinstance(each, KafkaProtocolHandler))
        self._conversation = KafkaConnection(
            handler.services, service.listeners["kafka"][0], "127.0.0.1", self._frames, self._send, lambda: None,
            account(),
        )  # fmt: skip

    def say(self, message: Message, version: int) -> None:
        content = request_bytes(message, version)
        self._frames.feed(len(content).to_bytes(4, "big") + content)
        self._conversation.go_on()

    def hang_up(self) -> None:
        self._conversation.hang_up()

    def _send(self, parts: Sequence[Buffer]) -> None:
        self.answers.append(b"".join(parts))
        self.has_answer.set()
        self._heard.append(self._name)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[BrokerService]:
    texts = {"data.dir": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0", "flush": "os"}
    service = BrokerService(Settings().with_values(texts))
    await service.start()
    yield service
    await service.close()


def produce(value: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=batch(value))
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )


def fetch(offset: int) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=FAR_TOO_LONG_MS, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[asked])],
    )  # fmt: skip


async def made(service: BrokerService, heard: list[str]) -> Peer:
    """Return the producer of a topic that has one record."""
    await service.broker.create_topic("t", partitions=1)
    producer = Peer("producer", service, heard)
    producer.say(produce(b"first"), PRODUCE_VERSION)
    async with asyncio.timeout(30):
        await producer.has_answer.wait()
    heard.clear()
    return producer


async def test_the_consumer_hears_of_a_record_before_its_producer_does(service: BrokerService) -> None:
    heard: list[str] = []
    producer, consumer = await made(service, heard), Peer("consumer", service, heard)
    consumer.say(fetch(1), FETCH_VERSION)
    assert not heard
    producer.say(produce(b"second"), PRODUCE_VERSION)
    assert heard == ["consumer", "producer"]  # all before the loop has its next turn
    assert b"second" in consumer.answers[0]


async def test_many_consumers_do_not_hold_up_the_producer(service: BrokerService) -> None:
    heard: list[str] = []
    producer = await made(service, heard)
    consumers = [Peer(f"consumer {n}", service, heard) for n in range(3 * MAX_FIRST)]
    for consumer in consumers:
        consumer.say(fetch(1), FETCH_VERSION)
    gone = consumers.pop(1)
    gone.hang_up()
    producer.say(produce(b"second"), PRODUCE_VERSION)
    assert heard.index("producer") == len(heard) - 1 <= MAX_FIRST
    for consumer in consumers:  # on a busy machine one turn has not time for all
        await asyncio.wait_for(consumer.has_answer.wait(), 10)
    assert all(b"second" in consumer.answers[0] for consumer in consumers)
    assert not gone.answers


async def test_who_wakes_others_while_he_goes_on_forgets_none() -> None:
    wakeups, order = Wakeups(), []
    waiting = [Wakeup(wakeups) for _ in range(3)]

    async def one(number: int) -> None:
        await waiting[number]
        order.append(number)
        if number < 2:
            waiting[number + 1].wake()

    for number in range(3):
        Eager(one(number), lambda result, error: None)
    wakeups.begin()
    waiting[0].wake()
    waiting[0].wake()
    assert order == []
    wakeups.end()
    assert order == [0, 1, 2]


async def test_what_nobody_gathers_has_its_turn_and_tasks_may_wait_too() -> None:
    wakeups = Wakeups()
    for_eager, for_task, ended = Wakeup(wakeups), Wakeup(wakeups), []

    async def wait(bell: Wakeup) -> None:
        await bell

    Eager(wait(for_eager), lambda result, error: ended.append(error))
    task = asyncio.ensure_future(wait(for_task))
    await asyncio.sleep(0)
    for_eager.wake()
    for_task.wake()
    assert not ended
    await asyncio.wait_for(task, 10)
    assert ended == [None]


@pytest.mark.parametrize("waits_on", [False, True], ids=["ends", "waits_again"])
async def test_what_is_given_up_ends_where_it_waits_in_a_generator(waits_on: bool) -> None:
    """Python 3.11 would leave the generator as it is, and complain whenever it collects it."""
    came: list[str] = []
    complaints: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    never: asyncio.Future[None] = loop.create_future()

    async def rows() -> AsyncIterator[int]:
        try:
            yield 1
            await never
            yield 2
        finally:
            came.append("generator ended")

    async def read() -> None:
        try:
            async for _ in rows():
                came.append("row")
        except asyncio.CancelledError:
            if waits_on:
                await never
            raise

    given_up = Eager(read(), lambda result, error: came.append("answered"))
    given_up.stop()
    given_up.stop()
    del given_up
    gc.collect()
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    assert came == ["row", "generator ended"]
    assert not complaints
