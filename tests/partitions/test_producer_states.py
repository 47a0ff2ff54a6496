"""Idempotent producers, held against Kafka's rules through restarts, expiry, retries and the wrap of sequences.

The rules are those of Kafka's ``ProducerStateManager`` and ``ProducerAppendInfo``: the last five batches of a producer
are known by their first and last sequence; the next one follows the last, 0 after 2^31-1; a newer epoch begins with 0,
an older one is fenced; a producer of whom nothing is known may begin anywhere; one that was silent for
``producer.id.expiration.ms`` is not known any more.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from magnetar.kafka.handler import KafkaProtocolHandler
from magnetar.kafka.partitions.partition import Partition, PlacedBatch
from magnetar.kafka.settings import KafkaSettings
from magnetar.ledger.files.engine import FilesEngine
from magnetar.logs.producers import BatchTooEarly, InvalidProducerEpoch, OutOfOrderSequence
from magnetar.node.broker import Broker
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.settings.settings import Settings
from magnetar.settings.topic import TopicSettings
from tests.admin.house import drafted
from tests.ledger.entries import NOW_MS
from tests.simulation.disk import SimulatedDisk, SimulatedMetadata
from tests.simulation.loop import SimulatedThreads, VirtualLoop
from tests.simulation.test_simulation import small_house

pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
    pytest.mark.usefixtures("small_house"),
]
__all__ = ["small_house"]
EXAMPLES = max(int(os.environ.get("MAGNETAR_SEEDS", "300")) // 5, 20)
TOPIC = "t"
EXPIRATION_MS = 10_000
MAX_SEQUENCE = (1 << 31) - 1
KEPT = 5
TIMES_MS = st.sampled_from((0, 1, EXPIRATION_MS // 2, EXPIRATION_MS - 1, EXPIRATION_MS))


class Known(NamedTuple):
    """A batch that is in the log."""

    first: int
    last: int
    offset: int


@dataclass
class Model:
    """What Kafka would know of one producer."""

    epoch: int = 0
    batches: deque[Known] = field(default_factory=lambda: deque(maxlen=KEPT))
    latest_ms: int = 0
    all: list[Known] = field(default_factory=list)
    """Of its epoch, for choosing what to send again."""
    next: int = 0
    """The sequence that a well-behaved client would send next."""
    is_back: bool = False
    """It was forgotten and has written again: after a restart the log may tell more of it than was known before."""

    def due(self, epoch: int, first: int, last: int) -> int | type[Exception] | None:
        """Return the offset of the batch that this one repeats, what refuses it, or None where it is to be stored."""
        if not self.batches:
            return None
        if epoch == self.epoch:
            for known in self.batches:
                if (known.first, known.last) == (first, last):
                    return known.offset
        if epoch < self.epoch:
            return InvalidProducerEpoch
        if epoch > self.epoch:
            return OutOfOrderSequence if first else None
        return None if first == following(self.batches[-1].last) else OutOfOrderSequence


def following(sequence: int) -> int:
    return 0 if sequence == MAX_SEQUENCE else sequence + 1


def plus(sequence: int, number: int) -> int:
    """Count on from a sequence, or back."""
    return (sequence + number) % (MAX_SEQUENCE + 1)


class Producers(RuleBasedStateMachine):
    """One partition of a broker on a simulated disk, its producers, and what Kafka would say to each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk(Random(7))
        self.metadata = SimulatedMetadata(self.disk)
        self.settings = Settings(
            TopicSettings(num_partitions=1, flush="always", log_retention_ms=-1),
            KafkaSettings(producer_id_expiration_ms=EXPIRATION_MS),
        )
        self.models: dict[int, Model] = {}
        self.given: set[int] = set()
        self.end = 0
        self.boots = 0
        self.now = 0.0
        self.loop: VirtualLoop
        self.engine: FilesEngine
        self.handler: KafkaProtocolHandler
        self.partition: Partition

    # -- the broker's lives

    @initialize()
    def begin(self) -> None:
        self.loop = VirtualLoop(self.now)
        self.run(self._start)

    def run(self, what: Callable[..., Coroutine[Any, Any, Any]], *asked: Any) -> Any:
        return self.loop.run_until_complete(what(*asked))

    async def _start(self) -> None:
        boot, threads = str(self.boots), SimulatedThreads(self.loop, Random(7))
        self.engine = FilesEngine(
            Path("/data"), self.metadata, self.disk, clock=self.clock, boot=lambda: boot, executor=threads
        )
        await self.engine.start()
        broker = Broker(self.settings, self.metadata, self.engine)
        await broker.start()
        self.handler = KafkaProtocolHandler(clock=self.clock)
        self.handler.initialize(self.settings)
        await self.handler.start(broker)
        topic = broker.get(TOPIC) or await broker.create_topic(TOPIC)
        self.partition = await self.handler.services.partitions.get(topic, 0)

    def clock(self) -> int:
        return NOW_MS + int(self.loop.time() * 1000)

    def _comes_up_again(self, away_ms: int) -> None:
        self.now = self.loop.now + away_ms / 1000
        self.loop.end()
        for producer_id in [each for each, model in self.models.items() if model.is_back]:
            del self.models[producer_id]
        self.loop = VirtualLoop(self.now)
        self.run(self._start)
        self.run(self.handler.services.partitions.expire_producers)
        self._expire()
        assert self.partition.log.log_end_offset == self.end

    @rule(power_lost=st.booleans(), away_ms=TIMES_MS)
    def crash(self, power_lost: bool, away_ms: int) -> None:
        self.disk.crashed = True
        self.disk.restart(power_lost=power_lost)
        self.boots += power_lost
        self._comes_up_again(away_ms)

    @rule(away_ms=TIMES_MS)
    def end_and_begin(self, away_ms: int) -> None:
        self.run(self.handler.close)
        self.run(self.engine.close)
        self._comes_up_again(away_ms)

    @rule()
    def checkpoint(self) -> None:
        """Keep a snapshot, as happens now and then: what comes later is read from the log."""

        async def keep() -> None:
            self.partition.log.checkpoint()
            await asyncio.sleep(1)

        self.run(keep)
        self.time_passes(0)

    # -- time

    @rule(passed_ms=TIMES_MS)
    def time_passes(self, passed_ms: int) -> None:
        self.loop.now += passed_ms / 1000
        self.run(self.handler.services.partitions.expire_producers)
        self._expire()

    def _expire(self) -> None:
        for model in self.models.values():
            if model.batches and self.clock() - model.latest_ms >= EXPIRATION_MS:
                model.batches.clear()
                model.is_back = True

    # -- producers

    @rule(begins_with=st.sampled_from((0, 0, 5, MAX_SEQUENCE - 5, MAX_SEQUENCE)))
    def comes(self, begins_with: int) -> None:
        """A new one; its first sequence need not be 0: it may have been forgotten."""
        producer_id = self.run(self.handler.services.producer_ids.take)
        assert producer_id not in self.given, "an id was given twice"
        self.given.add(producer_id)
        self.models[producer_id] = Model(next=begins_with)

    @precondition(lambda self: self.models)
    @rule(data=st.data(), counts=st.lists(st.integers(1, 4), min_size=1, max_size=7))
    def sends(self, data: st.DataObject, counts: list[int]) -> None:
        """What a well-behaved client sends: batches that follow each other."""
        producer_id = data.draw(st.sampled_from(sorted(self.models)))
        model = self.models[producer_id]
        for count in counts:
            self.send(producer_id, model.epoch, model.next, count)

    @precondition(lambda self: any(model.all for model in self.models.values()))
    @rule(data=st.data(), more=st.sampled_from((0, 0, 0, 1, -1)))
    def sends_again(self, data: st.DataObject, more: int) -> None:
        """One of its last batches, also one that is too old; or as many records more or fewer from its sequence on."""
        producer_id = data.draw(
            st.sampled_from([each for each in sorted(self.models) if self.models[each].all])
        )
        model = self.models[producer_id]
        known = data.draw(st.sampled_from(model.all[-KEPT - 2 :]))
        count = plus(known.last, -known.first) + 1 + more
        self.send(producer_id, model.epoch, known.first, max(count, 1))

    @precondition(lambda self: self.models)
    @rule(
        data=st.data(),
        epoch=st.integers(-1, 2),
        first=st.sampled_from((0, 1)),
        off=st.integers(-3, 3),
        count=st.integers(1, 3),
    )
    def sends_something(self, data: st.DataObject, epoch: int, first: int, off: int, count: int) -> None:
        """Of another epoch from sequence 0 or 1 on, or of its own from near what is due on."""
        producer_id = data.draw(st.sampled_from(sorted(self.models)))
        model = self.models[producer_id]
        begins = first if epoch else plus(model.next, off)
        self.send(producer_id, max(model.epoch + epoch, 0), begins, count)

    def send(self, producer_id: int, epoch: int, first: int, count: int) -> None:
        model, last, now_ms = self.models[producer_id], plus(first, count - 1), self.clock()
        due = model.due(epoch, first, last)
        refused: Exception | None = None
        try:
            produced = self.run(self._produce, producer_id, epoch, first, count, now_ms)
        except (OutOfOrderSequence, InvalidProducerEpoch) as error:
            refused = error
        except BatchTooEarly as error:  # opened anew a moment ago: see `test_early_batches`
            assert self.end
            refused = OutOfOrderSequence(str(error), 0)
        if refused is not None:
            assert type(refused) is due, f"{refused}; due is {due}"
            assert self.partition.log.log_end_offset == self.end
            return
        if due is None:
            assert produced.base_offset == self.end
            self._note(model, epoch, Known(first, last, self.end), now_ms)
            self.end += count
        else:
            assert produced.base_offset == due
        assert self.partition.log.log_end_offset == self.end

    def _note(self, model: Model, epoch: int, known: Known, now_ms: int) -> None:
        if epoch != model.epoch:
            model.epoch = epoch
            model.batches.clear()
            model.all.clear()
        model.batches.append(known)
        model.all.append(known)
        model.next, model.latest_ms = following(known.last), now_ms

    async def _produce(
        self, producer_id: int, epoch: int, first: int, count: int, now_ms: int
    ) -> PlacedBatch:
        records = [PlainRecord(None, b"v", (), now_ms) for _ in range(count)]
        batch = encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=first)
        produced = self.partition.produce(await drafted(self.partition, memoryview(batch)))
        if produced.done is not None:
            await produced.done
        return produced

    @invariant()
    def what_is_told_is_what_is_known(self) -> None:
        """DescribeProducers tells each producer's epoch and last sequence."""
        if not hasattr(self, "partition"):
            return
        told = {
            producer_id: (producer.epoch, producer.batches[-1].last_sequence)
            for producer_id, producer in self.partition.producers.active()
        }
        due = {
            producer_id: (model.epoch, model.batches[-1].last)
            for producer_id, model in self.models.items()
            if model.batches
        }
        assert {each: told[each] for each in told if each in self.models} == due

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.end()


Producers.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestProducers = Producers.TestCase
