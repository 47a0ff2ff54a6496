"""A client that has gone costs nothing: it is noticed though it is not read, and its questions are dropped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest

from magnetar.base import slices
from magnetar.kafka import connection
from magnetar.kafka.connection import KafkaConnection
from magnetar.kafka.handler import KafkaProtocolHandler
from magnetar.kafka.handlers import ROUTE_BY_KEY, ROUTES
from magnetar.kafka.handlers import fetch as fetching
from magnetar.kafka.server import KafkaServer
from magnetar.node.service import BrokerService
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.records.compression import Buffer
from magnetar.serving import pace, serving
from magnetar.serving import unread as unread_module
from magnetar.serving.pace import SharedTurn
from magnetar.serving.serving import MAX_READY_BYTES
from magnetar.serving.unread import Unread, unread
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.frames import KafkaFrameReader
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.accounts import account
from tests.hostile.client import frame, request_bytes

PRODUCE, FETCH, METADATA = 9, 12, 12
FOR_EVER_MS = 0x7FFFFFFF


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[BrokerService]:
    texts = {
        "data.dir": str(tmp_path / "data"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "flush": "os",
        "queued.max.requests": "4",
    }
    service = BrokerService(Settings().with_values(texts))
    await service.start()
    handler = kafka(service)
    topic = (await service.broker.create_topics([_new(service, "t")]))[0]
    await handler.services.partitions.get(topic, 0)  # type: ignore[arg-type]
    yield service
    await service.close()


def _new(service: BrokerService, name: str) -> Any:
    from magnetar.topics.new_topic import NewTopic

    return NewTopic(service.broker.naming.parse(name), 1)


def kafka(service: BrokerService) -> KafkaProtocolHandler:
    handler = service.handlers[0]
    assert isinstance(handler, KafkaProtocolHandler)
    return handler


def server_of(service: BrokerService) -> KafkaServer:
    return kafka(service)._server


def said(message: Message, version: int) -> bytes:
    return frame(request_bytes(message, version))


def fetch(offset: int = 0, wait_ms: int = FOR_EVER_MS, most: int = 1 << 20) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=most)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=most,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )
    return said(request, FETCH)


def produce(value: bytes, acks: int = 0) -> bytes:
    rows = [PartitionProduceData(index=0, records=encode_batch([PlainRecord(None, value, [], 0, 0)]))]
    return said(
        ProduceRequest(acks=acks, timeout_ms=9, topic_data=[TopicProduceData(name="t", partition_data=rows)]),
        PRODUCE,
    )


def metadata() -> bytes:
    return said(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), METADATA)


async def end_offset(service: BrokerService) -> int:
    topic = service.broker.get("t")
    assert topic is not None
    partition = await kafka(service).services.partitions.get(topic, 0)
    return partition.log.log_end_offset


class Peer:
    """A client without a socket."""

    def __init__(self, service: BrokerService) -> None:
        self.answers: list[int] = []
        self.ended = False
        self.account = account()
        self.takes = True
        self._frames = KafkaFrameReader()
        self.conversation = KafkaConnection(
            kafka(service).services, service.listeners["kafka"][0], "127.0.0.1", self._frames, self._send, self._end,
            self.account,
        )  # fmt: skip

    def say(self, data: bytes) -> None:
        self._frames.feed(data)
        self.conversation.go_on()

    def _send(self, parts: Sequence[Buffer]) -> None:
        self.answers.append(sum(map(len, parts)))
        if not self.takes:
            self.conversation.pause()

    def _end(self) -> None:
        self.ended = True


async def until(met: Callable[[], bool]) -> None:
    while not met():  # noqa: ASYNC110 - what it looks at tells nobody
        await asyncio.sleep(0)


async def until_quiet() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


async def test_what_merely_asks_is_dropped_and_what_changes_is_carried_out(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    start = KafkaConnection._start

    def counted(self: KafkaConnection, route: Any, *args: Any, **named: Any) -> None:
        started.append(route.handler)
        start(self, route, *args, **named)

    monkeypatch.setattr(connection.KafkaConnection, "_start", counted)
    peer = Peer(service)
    peer.say(fetch() + metadata() * 500 + produce(b"one") + metadata() * 500 + produce(b"two"))
    assert started == ["fetch"]  # it is parked, and all others wait behind it
    peer.conversation.hang_up()
    await until(lambda: len(started) == 3)
    await until_quiet()
    assert started == ["fetch", "produce", "produce"]
    assert await end_offset(service) == 2
    assert peer.ended
    assert not peer.answers
    assert peer.account.held_bytes == 0


def test_what_merely_asks_is_said_of_each_api() -> None:
    """Whoever adds an API says which it is; what is said to ask must change nothing."""
    words = ("describe", "list", "fetch", "metadata", "find", "versions", "offset_for", "summary")
    acknowledges = {"share_fetch"}
    assert {route.handler for route in ROUTES if route.asks} == {
        route.handler for route in ROUTES if any(word in route.handler for word in words)
    } - acknowledges
    assert ROUTE_BY_KEY[18].asks


async def test_a_client_that_left_is_noticed_though_it_is_not_read(service: BrokerService) -> None:
    server = server_of(service)
    for linger in (None, b"\x01\x00\x00\x00\x00\x00\x00\x00"):  # FIN, and RST
        client = socket.create_connection(
            (service.listeners["kafka"][0].bind.host, service.listeners["kafka"][0].bind.port)
        )
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, fetch(await end_offset(service)) + metadata() * 30)
        await until(lambda: any(not each.is_read for each in server.connections))
        if linger is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        client.close()
        await until(lambda: not server.connections)
    assert service.broker.serving.memory.held_bytes == 0


def test_only_who_has_gone_or_is_silent_is_said_to_be() -> None:
    pairs = [socket.socketpair() for _ in range(3)]
    pairs[0][1].sendall(b"unread")
    pairs[0][1].close()
    pairs[1][1].sendall(b"unread")
    assert unread([]) == []
    assert unread([ours.fileno() for ours, _ in pairs]) == [
        Unread(pairs[0][0].fileno(), has_left=True, is_reset=False, nbytes=6),
        Unread(pairs[2][0].fileno(), has_left=False, is_reset=False, nbytes=0),
    ]
    for pair in pairs:
        for each in pair:
            each.close()


async def test_answers_that_are_not_taken_are_few(service: BrokerService) -> None:
    peer = Peer(service)
    peer.say(produce(bytes(300_000), acks=1))
    await until(lambda: bool(peer.answers))  # there is a ledger now
    peer.say(produce(bytes(300_000), acks=1) * 3)
    await until_quiet()
    peer.answers.clear()
    peer.takes = False
    peer.say(fetch() * 20)
    await until_quiet()
    assert 0 < sum(peer.answers) < MAX_READY_BYTES + (1 << 20)
    peer.takes = True
    for _ in range(40):
        peer.conversation.resume()
        await until_quiet()
    assert sum(peer.answers) > 20 * 300_000
    assert peer.account.held_bytes == 0


async def test_answers_are_sent_before_they_are_many(service: BrokerService) -> None:
    """However little time they take: what waits to be sent is a megabyte and one answer."""
    peer = Peer(service)
    peer.conversation._serving._clock = lambda: 0.0
    peer.say(produce(bytes(300_000), acks=1))
    await until(lambda: bool(peer.answers))
    peer.answers.clear()
    peer.say(fetch() * 20)
    await until(lambda: sum(peer.answers) > 20 * 300_000)
    assert max(peer.answers) < MAX_READY_BYTES + 310_000


async def test_a_fetch_of_one_who_has_gone_waits_for_nothing_any_more(service: BrokerService) -> None:
    topic = service.broker.get("t")
    assert topic is not None
    partition = await kafka(service).services.partitions.get(topic, 0)
    peer = Peer(service)
    peer.say(fetch())
    assert not partition.is_idle
    peer.conversation.leave()
    assert partition.is_idle
    assert peer.account.held_bytes == 0


async def test_nothing_waits_as_long_as_one_likes(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MAX_WAIT_MS", 20)
    peer = Peer(service)
    peer.say(fetch(await end_offset(service)))
    assert not peer.answers
    await until(lambda: bool(peer.answers))


async def test_while_all_is_taken_up_a_fetch_waits(service: BrokerService) -> None:
    peer = Peer(service)
    peer.say(produce(b"one", acks=1))
    await until(lambda: bool(peer.answers))
    peer.answers.clear()
    memory = service.broker.serving.memory
    greedy = memory.account(lambda: None, known=True)
    greedy.charge(4 * memory.limit_bytes)
    peer.say(fetch() + metadata())
    await until_quiet()
    assert not peer.answers
    greedy.close()
    await until(lambda: len(peer.answers) == 2)


async def test_much_at_once_gives_others_a_turn(service: BrokerService) -> None:
    """The loop goes on between the parts of what one client sent in one piece."""
    peer = Peer(service)
    turns = 0
    stop = asyncio.Event()

    async def other() -> None:
        nonlocal turns
        while not stop.is_set():
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    await asyncio.sleep(0)
    before = turns
    peer.say(produce(b"x") * 3000)
    await until(lambda: peer.conversation.under_way == 0 and not peer._frames.waiting)
    assert await end_offset(service) == 3000
    stop.set()
    await task
    assert turns > before + 3


class Socket:
    """A transport that does nothing."""

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else None

    def is_closing(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *said, **named: None


@pytest.mark.parametrize("way", ["lost", "found gone"])
async def test_of_many_that_leave_at_once_a_few_are_taken_leave_of_in_a_turn(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Three hundred clients that left amid Fetch held all others up for 126 ms."""
    for module, name in ((pace, "MAX_SECONDS"), (slices, "SLICE_S")):
        monkeypatch.setattr(module, name, 0.0)  # so that each is as much as may be done in a turn
    left: list[KafkaConnection] = []
    monkeypatch.setattr(KafkaConnection, "_give_up_fetches", lambda self: left.append(self))
    server = server_of(service)
    crowd = [server.connection(service.listeners["kafka"][0]) for _ in range(5)]
    for number, each in enumerate(crowd):
        each.connection_made(Socket())  # type: ignore[arg-type]
        each.descriptor = 1000 + number
        each._reading.look(1000)
        assert not each.is_read
    if way == "lost":
        for each in crowd:
            each.connection_lost(None)
    else:
        gone = partial(Unread, has_left=True, is_reset=False, nbytes=0)
        monkeypatch.setattr(unread_module, "unread", lambda all_of: [gone(each) for each in all_of])
        looking = asyncio.ensure_future(server._look_around())
    seen = []
    for _ in range(20):
        seen.append(len(left))
        await asyncio.sleep(0)
    assert seen[-1] == 5
    assert max(after - before for before, after in pairwise(seen)) == 1
    for each in crowd:
        if way == "found gone":
            await looking
            each.connection_lost(None)
    await until_quiet()
    assert not server.connections


async def test_a_gone_connection_keeps_nothing_though_something_keeps_it(service: BrokerService) -> None:
    server = server_of(service)
    connection = server.connection(service.listeners["kafka"][0])
    connection.connection_made(Socket())  # type: ignore[arg-type]
    half = metadata()[:-4]
    connection.get_buffer(-1)[: len(half)] = half
    connection.buffer_updated(len(half))
    assert connection._frames.held_bytes > 0
    connection.connection_lost(None)
    await until_quiet()
    assert connection._frames.held_bytes == 0
    assert not connection._frames.is_amid_frame


async def test_who_takes_long_takes_turns_and_who_does_not_is_served_at_once(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the innocent would wait behind ten clients that asked for all topics, each for a turn of its own."""
    turn = SharedTurn()
    monkeypatch.setattr(kafka(service).services, "turn", turn)
    assert not turn.is_over
    turn._is_over_at = 0.0  # others have used it up
    light, heavy = Peer(service), Peer(service)
    light.conversation._serving._took_s = 0.0
    heavy.conversation._serving._took_s = 60.0
    for peer in (light, heavy):
        peer.say(produce(b"x", acks=1))
    assert light.conversation.under_way + len(light.answers) == 1
    assert heavy.conversation.under_way + len(heavy.answers) == 0
    await until(lambda: bool(heavy.answers) and bool(light.answers))
    assert heavy.conversation._serving._took_s < 60.0, "it was quick this time"


@pytest.mark.parametrize("asks", [False, True])
async def test_who_only_sends_batches_is_not_put_off_however_long_they_take(
    service: BrokerService, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    """To put it off only lets more of them come meanwhile, and produce took a fifth more of the processor."""
    monkeypatch.setattr(serving, "LONG_SECONDS", 0.0)  # all takes too long
    turn = SharedTurn()
    monkeypatch.setattr(kafka(service).services, "turn", turn)
    peer = Peer(service)
    for count in (1, 2):
        turn._under_way, turn._is_over_at = True, 0.0 if count == 2 else inf  # others have used it up, or not
        peer.say(fetch(wait_ms=0) if asks else produce(b"x", acks=1))
        begun = peer.conversation.under_way + len(peer.answers)
        assert begun == (1 if asks else count)
        turn._is_over_at = inf
        await until(lambda: len(peer.answers) == count)  # noqa: B023
