"""A whole broker in virtual time: its disk crashes, tears and fills up, its network is slow and cuts connections.

What it promises of a power loss it promises with ``flush=always`` alone; with ``os`` it only ever is killed.

Idempotent producers send numbered records until a life ends; in the next life they send again whatever was not
acknowledged, as Kafka's clients do. When all lives are over, Fetch must give every acknowledged record once and in
order. A failure prints its seed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from magnetar.kafka import connection
from magnetar.kafka.connection import KafkaConnection
from magnetar.kafka.handler import KafkaProtocolHandler
from magnetar.kafka.handlers import produce
from magnetar.kafka.listeners import parse_listeners
from magnetar.kafka.partitions.partition import Partition
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.files.gathering import Gathering
from magnetar.ledger.port import LedgerEngine
from magnetar.logs.producers import ProducerStates
from magnetar.metadata import MetadataStore
from magnetar.node.broker import Broker
from magnetar.records.batch import PlainRecord, batches, decode_records, encode_batch
from magnetar.records.compression import Buffer
from magnetar.serving import serving
from magnetar.settings.settings import Settings
from magnetar.settings.topic import TopicSettings
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.frames import KafkaFrameReader
from magnetar.wire.kafka.header import decode_response_header
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages import response_class
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.accounts import account
from tests.hostile.client import frame, request_bytes
from tests.ledger.entries import NOW_MS
from tests.simulation.disk import Crashed, SimulatedDisk, SimulatedMetadata
from tests.simulation.loop import SimulatedThreads, Stuck, VirtualLoop
from tests.simulation.test_simulation import small_house

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.usefixtures("small_house"),
]
SEEDS = int(os.environ.get("MAGNETAR_SEEDS", "300")) // 5
FIRST = int(os.environ.get("MAGNETAR_SEED", random.randrange(1 << 30)))
TOPIC, PARTITIONS, LIVES, IN_FLIGHT = "t", 2, 4, 3
PRODUCE_VERSION, FETCH_VERSION, INIT_VERSION = 9, 12, 4
MAY_BE_TOLD = (
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
__all__ = ["small_house"]


@dataclass(eq=False)
class Client:
    """One idempotent producer of one partition: what is not acknowledged yet, oldest first."""

    partition: int
    producer_id: int = -1
    sequence: int = 0
    made: int = 0
    unacknowledged: deque[tuple[int, list[bytes]]] = field(default_factory=deque)
    sent: int = 0
    acknowledged: list[bytes] = field(default_factory=list)


class Wire:
    """A connection to a ``KafkaConnection``: frames arrive late, in order, until it is cut."""

    def __init__(self, world: BrokerWorld) -> None:
        self._world = world
        self._frames = KafkaFrameReader()
        self._asked: deque[tuple[int, int, asyncio.Future[Any]]] = deque()
        self._answers = KafkaFrameReader()
        self._quiet_until = 0.0
        self._on_their_way = 0
        self.is_cut = False
        self._conversation = KafkaConnection(
            world.handler.services,
            world.listener,
            "127.0.0.1",
            self._frames,
            self._heard,
            self.cut,
            account(),
        )

    def ask(self, message: Message, version: int) -> asyncio.Future[Any]:
        """Send a request; the future has the answer, or a ``ConnectionError``."""
        loop = self._world.loop
        answer: asyncio.Future[Any] = loop.create_future()
        if self.is_cut:
            answer.set_exception(ConnectionError())
            return answer
        self._asked.append((message.API_KEY, version, answer))
        data = frame(request_bytes(message, version))
        self._quiet_until = max(self._quiet_until, loop.time()) + self._world.dice.random() * 0.002
        self._on_their_way += 1
        loop.call_at(self._quiet_until, self._arrive, data)
        return answer

    def _arrive(self, data: bytes) -> None:
        if self.is_cut or self._world.machine.crashed:
            return
        self._on_their_way -= 1
        try:
            self._frames.feed(data)
            if self._on_their_way and self._world.dice.random() < 0.5:
                return  # the broker is busy: it finds this one together with the next
            self._conversation.go_on()
        except Crashed:
            pass

    def _heard(self, parts: Sequence[Buffer]) -> None:
        """An answer is on its way; it may be lost with the connection."""
        if not self._world.machine.crashed:
            self._world.loop.call_later(self._world.dice.random() * 0.001, self._told, b"".join(parts))

    def _told(self, data: bytes) -> None:
        if self.is_cut:
            return
        self._answers.feed(data)
        while (content := self._answers.next_frame()) is not None:
            api_key, version, answer = self._asked.popleft()
            _, body = decode_response_header(content, api_key, version)
            if not answer.done():
                answer.set_result(response_class(api_key).decode(body, version))

    def cut(self) -> None:
        self.is_cut = True
        for _, _, answer in self._asked:
            if not answer.done():
                answer.set_exception(ConnectionError())
                answer.exception()
        self._asked.clear()


class Machine(ABC):
    """What a broker lives on: storage that outlives it, and what befalls both."""

    crashed = False
    """Whether this life is over."""
    lasts_s = 60.0
    """How long a life is at most."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.flush = dice.choice(("always", "os"))

    @abstractmethod
    def begin(self) -> MetadataStore:
        """Begin a life; what it has begun in this one never goes on in the next."""

    @abstractmethod
    def engine(self, loop: VirtualLoop, clock: Callable[[], int]) -> LedgerEngine:
        """Return this life's engine."""

    @abstractmethod
    def end(self) -> None:
        """End a life."""

    @abstractmethod
    async def mischief(self) -> None:
        """Do something that the broker has to bear with."""

    @abstractmethod
    def calm(self) -> None:
        """Let all be well from now on."""


class FilesMachine(Machine):
    """Files on a disk that crashes, tears and fills up."""

    def __init__(self, dice: Random) -> None:
        super().__init__(dice)
        self.disk = SimulatedDisk(dice)
        self.metadata = SimulatedMetadata(self.disk)
        self.boots = 0
        self.may_lose_power = self.flush == "always"

    @property
    def crashed(self) -> bool:  # type: ignore[override]
        return self.disk.crashed

    def begin(self) -> MetadataStore:
        self.disk.crash_at = self.disk.steps + 40 + int(self.dice.expovariate(1 / 150))
        return self.metadata

    def engine(self, loop: VirtualLoop, clock: Callable[[], int]) -> LedgerEngine:
        boot, threads = str(self.boots), SimulatedThreads(loop, self.dice)
        return FilesEngine(
            Path("/data"), self.metadata, self.disk, clock=clock, boot=lambda: boot, executor=threads
        )

    def end(self) -> None:
        power_lost = self.may_lose_power and self.dice.random() < 0.5
        self.disk.crashed = True
        self.disk.restart(power_lost=power_lost)
        self.boots += power_lost

    async def mischief(self) -> None:
        self.disk.full = self.dice.random() < 0.1

    def calm(self) -> None:
        self.disk.crash_at, self.disk.full = -1, False


class BrokerWorld:
    """One seed's lives of one broker, three producers, and a reader of each partition."""

    def __init__(self, seed: int, machine: Callable[[Random], Machine] = FilesMachine) -> None:
        self.dice = Random(seed)
        self.machine = machine(self.dice)
        self.clients = [Client(partition=n % PARTITIONS) for n in range(3)]
        self.read: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        """What readers were given of each partition: it stays so."""
        self.now = 0.0
        self.loop: VirtualLoop
        self.handler: KafkaProtocolHandler
        settings = Settings(
            TopicSettings(num_partitions=PARTITIONS, flush=self.machine.flush, log_segment_bytes=20_000)
        )
        self.settings = settings
        (self.listener,) = parse_listeners(settings)

    def run(self) -> None:
        for _ in range(LIVES):
            self.metadata = self.machine.begin()
            self._in_new_process(self._live())
            self.machine.end()
        self.machine.calm()
        self._in_new_process(self._last_look())

    def _in_new_process(self, life: Any) -> None:
        self.loop = VirtualLoop(self.now)
        try:
            self.loop.run_until_complete(life)
        except (Crashed, Stuck):
            if not self.machine.crashed:
                raise
        finally:
            self.now = self.loop.now
            self.loop.end()

    async def _start(self) -> None:
        engine = self.machine.engine(self.loop, self._clock)
        await engine.start()
        broker = Broker(self.settings, self.metadata, engine)
        await broker.start()
        self.handler = KafkaProtocolHandler(clock=self._clock)
        self.handler.initialize(self.settings)
        await self.handler.start(broker)
        if broker.get(TOPIC) is None:
            await broker.create_topic(TOPIC)

    def _clock(self) -> int:
        return NOW_MS + int(self.loop.time() * 1000)

    async def _live(self) -> None:
        await self._start()
        producers = [asyncio.ensure_future(self._produce(client)) for client in self.clients]
        beside = [asyncio.ensure_future(self._follow(partition)) for partition in range(PARTITIONS)]
        beside.append(asyncio.ensure_future(self._mischief()))
        done, _ = await asyncio.wait(producers, timeout=self.machine.lasts_s)
        for task in beside:
            task.cancel()
        await asyncio.wait(beside, timeout=0)
        for task in (*done, *(each for each in beside if each.done() and not each.cancelled())):
            error = task.exception()
            if isinstance(error, AssertionError):
                raise error

    async def _mischief(self) -> None:
        while True:
            await asyncio.sleep(self.dice.random() * 0.05)
            await self.machine.mischief()

    async def _follow(self, partition: int) -> None:
        """Read what there is, again and again: what was read once is there for good."""
        while not self.machine.crashed:
            wire = Wire(self)
            with suppress(ConnectionError):
                values = await self._fetch_all(partition, patient=True)
                known = self.read[partition]
                assert all(map(bytes.__eq__, values, known)), "what was read has changed"
                self.read[partition] = max(values, known, key=len)
            wire.cut()
            await asyncio.sleep(0.05 * self.dice.random())

    async def _produce(self, client: Client) -> None:
        """Send on, as a stock idempotent producer would, until this life is over."""
        wire = Wire(self)
        client.sent = 0
        for _ in range(60):
            if self.machine.crashed:
                return
            if wire.is_cut or self.dice.random() < 0.03:
                wire.cut()
                wire, client.sent = Wire(self), 0
            try:
                await self._turn(client, wire)
            except ConnectionError:
                client.sent = 0

    async def _turn(self, client: Client, wire: Wire) -> None:
        if client.producer_id < 0:
            answer = await wire.ask(InitProducerIdRequest(transactional_id=None), INIT_VERSION)
            if answer.error_code:
                return
            client.producer_id = answer.producer_id
        while len(client.unacknowledged) < IN_FLIGHT:
            self._make(client)
        asked = [wire.ask(self._request(client, *each), PRODUCE_VERSION) for each in client.unacknowledged]
        for answer in asked:
            row = (await answer).responses[0].partition_responses[0]
            if row.error_code:
                assert row.error_code in MAY_BE_TOLD, ErrorCode(row.error_code)
                await asyncio.gather(*asked[asked.index(answer) :], return_exceptions=True)
                await asyncio.sleep(0.01)
                return
            client.acknowledged += client.unacknowledged.popleft()[1]

    def _make(self, client: Client) -> None:
        count = self.dice.choice((1, 1, 4, 20))
        names = range(client.made, client.made + count)
        size = self.dice.choice((0, 10, 700))
        values = [b"%d:%d:" % (self.clients.index(client), n) + b"v" * size for n in names]
        client.unacknowledged.append((client.sequence, values))
        client.made += count
        client.sequence += count

    def _request(self, client: Client, sequence: int, values: list[bytes]) -> ProduceRequest:
        records = [PlainRecord(None, value, (), self._clock()) for value in values]
        batch = encode_batch(
            records, producer_id=client.producer_id, producer_epoch=0, base_sequence=sequence
        )
        row = PartitionProduceData(index=client.partition, records=batch)
        return ProduceRequest(acks=-1, topic_data=[TopicProduceData(name=TOPIC, partition_data=[row])])

    async def _last_look(self) -> None:
        await self._start()
        for partition in range(PARTITIONS):
            values = await self._fetch_all(partition)
            for client in self.clients:
                if client.partition == partition:
                    self._hold_against(client, values)
            known = self.read[partition]
            assert values[: len(known)] == known, "what was read has changed"

    def _hold_against(self, client: Client, values: list[bytes]) -> None:
        mark = b"%d:" % self.clients.index(client)
        numbers = [int(value.split(b":")[1]) for value in values if value.startswith(mark)]
        assert numbers == list(range(len(numbers))), f"doubled, reordered or missing: {numbers}"
        assert len(numbers) >= len(client.acknowledged), (
            f"{len(client.acknowledged)} were acknowledged, {len(numbers)} are left"
        )

    async def _fetch_all(self, partition: int, *, patient: bool = False) -> list[bytes]:
        wire, offset = Wire(self), 0
        values: list[bytes] = []
        while True:
            asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=3000)
            request = FetchRequest(max_bytes=5000, topics=[FetchTopic(topic=TOPIC, partitions=[asked])])
            row = (await wire.ask(request, FETCH_VERSION)).responses[0].partitions[0]
            if patient and row.error_code:
                assert row.error_code in MAY_BE_TOLD, ErrorCode(row.error_code)
                return values
            assert row.error_code == ErrorCode.NONE
            if offset == row.high_watermark or (patient and not row.records):
                return values
            for header, batch in batches(row.records):
                assert header.base_offset == offset, "offsets are continuous"
                values += [record.value or b"" for record in decode_records(batch)]
                offset = header.last_offset + 1


def one_world(seed: int, machine: Callable[[Random], Machine] = FilesMachine) -> int:
    world = BrokerWorld(seed, machine)
    try:
        world.run()
    except BaseException as error:
        raise AssertionError(
            f"seed {seed}, run it alone with MAGNETAR_SEED={seed} MAGNETAR_SEEDS=5"
        ) from error
    return sum(len(client.acknowledged) for client in world.clients)


def many_worlds(count: int, machine: Callable[[Random], Machine] = FilesMachine) -> None:
    for seed in range(count):
        one_world(seed, machine)


@pytest.fixture(autouse=True)
def _no_clock_but_the_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a turn of the loop takes on this machine must change nothing: a seed is to be played again."""
    for module in (connection, produce, serving):
        monkeypatch.setattr(module, "MAX_SECONDS", 3600.0)
    monkeypatch.setattr(serving, "LONG_SECONDS", float("inf"))


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("magnetar.kafka", "magnetar.ledger", "asyncio"):
        caplog.set_level(logging.CRITICAL, logger=name)  # until the test ends: others listen to these


def test_no_acknowledged_record_is_lost_doubled_or_moved() -> None:
    acknowledged = [one_world(seed) for seed in range(FIRST, FIRST + SEEDS)]
    assert sum(acknowledged) > 20 * SEEDS, "nothing much happened"


def answers_before_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Partition.produce
    monkeypatch.setattr(
        Partition, "produce", lambda self, draft: original(self, draft)._replace(durable=None)
    )


def takes_a_batch_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStates, "check", lambda self, batch: None)


def forgets_producers_at_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    async def load(self: Any) -> None: ...

    monkeypatch.setattr(Partition, "load", load)


def remembers_batches_that_storage_did_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStates, "take_back", lambda self, offset: None)


def answers_whatever_storage_says_of_what_was_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    settle_later = Gathering.settle_later
    monkeypatch.setattr(Gathering, "settle_later", lambda self, done, error: settle_later(self, done, None))


@pytest.mark.parametrize(
    "plant",
    [
        answers_before_it_is_durable,
        takes_a_batch_twice,
        forgets_producers_at_a_restart,
        remembers_batches_that_storage_did_not_take,
        answers_whatever_storage_says_of_what_was_gathered,
    ],
)
def test_planted_bugs_are_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        many_worlds(200)
