"""Valid requests of every API and version, mutated: an answer, a wait or a closed connection, never a surprise."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random

import pytest

from magnetar.kafka.connection import KafkaConnection
from magnetar.kafka.handler import KafkaProtocolHandler
from magnetar.kafka.handlers import ROUTES, Route
from magnetar.node.service import BrokerService
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.records.compression import Buffer
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.frames import KafkaFrameReader
from magnetar.wire.kafka.header import RequestHeader, encode_request_header
from magnetar.wire.kafka.messages import request_class
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.accounts import account
from tests.hostile.client import frame, request_bytes
from tests.wire.values import build

REPEATS = 30
SPARED = {"DeleteTopics"}  # otherwise there soon is nothing left to hurt
FUZZED = [route for route in ROUTES if route.name not in SPARED]
A_BROKERS = 20_000
"""Conversations with one broker."""
BATCH = encode_batch([PlainRecord(b"k", b"v", [], 0, 0)] * 3)
EXTREMES = (
    b"\x00",
    b"\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff",
    b"\x01",
)


class Peer:
    """One conversation and what it did."""

    def __init__(self, handler: KafkaProtocolHandler, service: BrokerService) -> None:
        self.answers: list[bytes] = []
        self.ended = False
        self.account = account()
        self._frames = KafkaFrameReader(1 << 20)
        self.conversation = KafkaConnection(
            handler.services,
            service.listeners["kafka"][0],
            "127.0.0.1",
            self._frames,
            self._send,
            self._end,
            self.account,
        )

    def say(self, data: bytes) -> None:
        self._frames.feed(data)
        self.conversation.go_on()

    def _send(self, parts: Sequence[Buffer]) -> None:
        self.answers.append(b"".join(parts))

    def _end(self) -> None:
        self.ended = True


@contextlib.asynccontextmanager
async def broker(data: Path) -> AsyncIterator[BrokerService]:
    texts = {
        "data.dir": str(data),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "flush": "os",
        "group.initial.rebalance.delay.ms": "0",
    }
    service = BrokerService(Settings().with_values(texts))
    await service.start()
    try:
        yield service
    finally:
        await service.close()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[BrokerService]:
    async with broker(tmp_path / "data") as service:
        yield service


def kafka(service: BrokerService) -> KafkaProtocolHandler:
    handler = service.handlers[0]
    assert isinstance(handler, KafkaProtocolHandler)
    return handler


def module_of(route: Route) -> str:
    """Return the name of the module that has a route's request."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", request_class(route.api_key).__name__).lower()


def valid_request(route: Route, version: int, random: Random) -> bytes:
    message = build(module_of(route), version, random)
    for topic in [*getattr(message, "topic_data", ()), *(getattr(message, "topics", None) or ())]:
        if isinstance(topic, str | bytes):
            continue
        if hasattr(topic, "name"):
            topic.name = random.choice(("prey", topic.name))
        for row in getattr(topic, "partition_data", ()):
            row.records = random.choice((BATCH, BATCH, row.records))
            row.index = 0
    header = RequestHeader(route.api_key, version, random.randrange(1 << 31), "fuzz")
    return encode_request_header(header) + message.encode(version)


def mutated(data: bytes, random: Random) -> bytes:
    """Change bytes behind API key and version, so that each request still reaches its own decoder."""
    changed = bytearray(data)
    for _ in range(random.choice((0, 1, 1, 2, 4))):
        at = random.randrange(8, len(changed) + 1)
        piece = random.choice((*EXTREMES, random.randbytes(3)))
        match random.randrange(4):
            case 0:
                changed[at : at + len(piece)] = piece
            case 1:
                changed[at:at] = piece
            case 2:
                del changed[at : at + random.randrange(1, 9)]
            case _:
                if at < len(changed):
                    changed[at] ^= 1 << random.randrange(8)
    return bytes(changed)


@pytest.mark.parametrize("seed", range(3))
async def test_no_request_is_a_surprise(
    service: BrokerService, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    caplog.set_level(logging.ERROR)
    random = Random(seed)
    handler = kafka(service)
    await ask_for_prey(handler, service)
    for route in ROUTES:
        if route.name in SPARED:
            continue
        for version in range(route.first, route.last + 1):
            for _ in range(REPEATS):
                request = mutated(valid_request(route, version, random), random)
                peer = Peer(handler, service)
                peer.say(frame(request))
                for _ in range(5):
                    await asyncio.sleep(0)
                surprise = [record.getMessage() + str(record.exc_info) for record in caplog.records]
                assert not surprise, (route.name, version, request.hex())
                peer.conversation.close()
                assert peer.account.held_bytes == 0, (route.name, version, request.hex())
    await asyncio.sleep(0.2)
    assert not caplog.records
    await ask_for_prey(handler, service)


async def ask_for_prey(handler: KafkaProtocolHandler, service: BrokerService) -> None:
    peer = Peer(handler, service)
    topics = [MetadataRequestTopic(name="prey")]
    peer.say(frame(request_bytes(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)))
    for _ in range(500):
        await asyncio.sleep(0.002)
        if peer.answers:
            break
    assert peer.answers
    assert not peer.ended


@pytest.mark.timeout(0)  # it takes as long as it is told to
async def test_damaged_conversations(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Some requests after the other, some of them damaged, cut anywhere, while the client takes no answers or leaves.

    ``MAGNETAR_CONVERSATIONS`` says how many; each so many thousand have a broker of their own.
    """
    caplog.set_level(logging.ERROR)
    wanted = int(os.environ.get("MAGNETAR_CONVERSATIONS", "1500"))
    seed = int(os.environ.get("MAGNETAR_SEED", "1"))
    longest_s = 0.0
    for number in range(0, wanted, A_BROKERS):
        random = Random(f"{seed}/{number}")
        async with broker(tmp_path / str(number)) as service:
            handler = kafka(service)
            await ask_for_prey(handler, service)
            for at in range(min(A_BROKERS, wanted - number)):
                peer = Peer(handler, service)
                await converse(peer, random)
                assert not caplog.records, (seed, number, at, caplog.records[0].getMessage())
                if at % 50 == 0:
                    began = time.perf_counter()
                    await ask_for_prey(handler, service)
                    longest_s = max(longest_s, time.perf_counter() - began)
            await asyncio.sleep(0.3)
            assert not caplog.records
            assert service.broker.serving.memory.held_bytes == 0
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        print(f"{number + A_BROKERS} conversations: {resident >> 20} MB, longest {longest_s * 1000:.0f} ms")


async def converse(peer: Peer, random: Random) -> None:
    """Have one client say what it says, and see that nothing is kept for it."""
    said = b"".join(a_saying(random) for _ in range(random.choice((1, 1, 2, 3, 6))))
    while said and not peer.ended:
        cut = random.choice((len(said), len(said), random.randrange(len(said)) + 1))
        peer.say(said[:cut])
        said = said[cut:]
        match random.randrange(12):
            case 0:
                peer.conversation.pause()
            case 1:
                peer.conversation.resume()
            case 2:
                peer.conversation.leave()
            case 3 | 4 | 5:
                await asyncio.sleep(0)
    for _ in range(random.choice((0, 1, 3))):
        await asyncio.sleep(0)
    if random.randrange(2):
        peer.conversation.hang_up()
        for _ in range(3):
            await asyncio.sleep(0)
    peer.conversation.close()
    assert peer.account.held_bytes == 0


def a_saying(random: Random) -> bytes:
    route = random.choice(FUZZED)
    version = random.randint(route.first, route.last)
    request = valid_request(route, version, random)
    if random.randrange(4):
        request = mutated(request, random)
    framed = frame(request)
    match random.randrange(20):
        case 0:
            return random.choice(EXTREMES)[:4].ljust(4, b"\0") + framed[4:]
        case 1:
            return framed[: random.randrange(len(framed))]
        case 2:
            return random.randbytes(random.randrange(1, 40))
    return framed
