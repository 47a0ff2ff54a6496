"""All partitions of this broker: opened when somebody first asks, then found by a dictionary look-up."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from magnetar.base.background import Repeated
from magnetar.base.once import Once
from magnetar.base.slices import sliced
from magnetar.kafka.partitions.conversions import BatchConversions, FrameOf
from magnetar.kafka.partitions.due_batches import DueBatches
from magnetar.kafka.partitions.partition import Partition
from magnetar.kafka.partitions.read_ahead import ReadAhead
from magnetar.kafka.settings import KafkaSettings
from magnetar.logs.open_logs import OpenLog
from magnetar.node.broker import Broker
from magnetar.schema_registry.settings import SchemaRegistrySettings
from magnetar.topics.offload_policies import local_bytes
from magnetar.topics.topic import Topic

if TYPE_CHECKING:
    from magnetar.kafka.partitions.opening_ahead import OpeningAhead
    from magnetar.schema_registry.topic_schemas import TopicFrames

_UNUSED_S = 300.0
"""How long a partition that nobody asks for stays open, at least."""
_LENT_AT_ONCE = 100
"""Partitions that were opened for one thing alone and are not closed yet."""
_log = logging.getLogger("magnetar.kafka")


class Partitions:
    """The partitions that are open, by topic name and index."""

    def __init__(self, broker: Broker, clock: Callable[[], int]) -> None:
        self._broker = broker
        self._clock = clock
        self._open: dict[tuple[str, int], Partition] = {}
        self.due_batches = DueBatches()
        self._on_closed = self._closed  # made once, not for each of many thousand partitions
        self._opening: Once[tuple[str, int], Partition] = Once()
        self._ahead = ReadAhead()
        memory = broker.serving.memory.account(lambda: None, known=True)
        self._conversions = BatchConversions(
            chunked_bytes=broker.settings.of(KafkaSettings).chunked_message_max_bytes, charge=memory.charge
        )
        self._frames: TopicFrames | None = None
        if broker.settings.of(SchemaRegistrySettings).kafka_apply_avro_schema_on_decode:
            from magnetar.schema_registry.registries import Registries
            from magnetar.schema_registry.topic_schemas import TopicFrames

            self._frames = TopicFrames(broker.store, broker.naming.namespace, broker.offers.get(Registries))
            if not broker.settings.of(SchemaRegistrySettings).asks_to_serve:
                _log.warning(
                    "kafka.apply.avro.schema.on.decode gives consumers ids of schemas, but no registry is served to "
                    "ask for them: set schema.registry.listeners"
                )
        self.ahead: OpeningAhead | None = None
        """Where to open a log takes long."""
        if broker.engine.opens_slowly:
            from magnetar.kafka.partitions.opening_ahead import OpeningAhead

            self.ahead = OpeningAhead(broker, self)
        self._lent: list[Partition] = []
        self._work: list[Repeated] = []
        broker.events.history_leaves.append(self.get)  # producers whose batches go are still known after it

    def start(self) -> None:
        """Begin to let go of what nobody uses, and to forget producers long silent."""
        background = self._broker.background
        self._work = [
            background.repeat(
                "forgetting producers",
                lambda: (
                    self._broker.settings.of(KafkaSettings).producer_id_expiration_check_interval_ms / 1000
                ),
                self.expire_producers,
            ),
            background.repeat("letting go of partitions that nobody uses", lambda: _UNUSED_S, self.let_go),
        ]

    async def close(self) -> None:
        if self.ahead is not None:
            await self.ahead.close()
        for work in self._work:
            await work.stop()

    def opened(self, topic: str, topic_id: bytes, index: int) -> Partition | None:
        """Return a partition that is open already, by the name its topic is kept under or, without one, by its id."""
        if not topic:
            named = self._broker.get_by_id(topic_id)
            topic = "" if named is None else named.kafka_name
        found = self._open.get((topic, index))
        if found is not None:
            found.touched = True
        return found

    def all_open(self) -> list[Partition]:
        return list(self._open.values())

    async def get(self, topic: Topic, index: int) -> Partition:
        """Return a partition, opened if need be; raise ``TopicNotFound`` or ``NotOwned``."""
        key = (topic.kafka_name, index)
        found = self._open.get(key)
        if found is not None:
            found.touched = True
            return found
        self._broker.logs.open_logs.check(
            topic, index
        )  # at once: a request may name a million that are not there
        return await self._opening.do(key, lambda: self._load(topic, index))

    @asynccontextmanager
    async def lent(self, topic: Topic, index: int) -> AsyncIterator[Partition]:
        """Return a partition for one thing that the broker itself does; raise as `get` does.

        One that was opened for that alone is closed soon, so that work on very many needs no memory for all of them.
        """
        was_open = (topic.kafka_name, index) in self._open
        partition = await self.get(topic, index)
        if not was_open:
            partition.touched = False  # whoever asks for it from now on keeps it open
        try:
            yield partition
        finally:
            if not was_open:
                self._lent.append(partition)
        if len(self._lent) > _LENT_AT_ONCE:
            lent, self._lent = self._lent, []
            left = [held for each in lent if (held := self._leave(each)) is not None]
            await self._broker.logs.open_logs.close(left)

    async def _load(self, topic: Topic, index: int) -> Partition:
        held = await self._broker.logs.open_logs.open(topic, index)
        partition = Partition(
            topic,
            index,
            held.log,
            self._clock,
            self._ahead,
            self._conversions,
            self._frame_of(topic),
            held.epochs,
            held.producers,
            held.figures,
            self._on_closed,
        )
        held.hold(partition)
        try:
            await partition.load()
            held.check()
            if held.producers is not None:
                partition.producers = held.producers  # those of whoever was faster, or had them before
            held.keep(partition.producers)
        except BaseException:
            held.leave(partition)
            raise
        self.due_batches.opened(partition)
        if partition.producers.await_first:
            partition.settles()
        self._open[topic.kafka_name, index] = partition
        return partition

    def _closed(self, partition: Partition) -> None:
        self._forget(partition)
        self.due_batches.closed(partition)

    def _forget(self, partition: Partition) -> None:
        key = partition.topic.kafka_name, partition.index
        if self._open.get(key) is partition:
            del self._open[key]

    def _frame_of(self, topic: Topic) -> FrameOf | None:
        frames = self._frames
        return None if frames is None else partial(frames.of, topic)

    async def size_of(self, topic: Topic, index: int) -> int:
        """Return the bytes that a partition takes on disk."""
        ledgers = await self._broker.engine.summaries(topic.name.ledger_name(index))
        return local_bytes(ledgers)

    async def expire_producers(self) -> None:
        """Forget producers that have been silent for ``producer.id.expiration.ms``; done regularly by itself."""
        before_ms = self._clock() - self._broker.settings.of(KafkaSettings).producer_id_expiration_ms
        async for partition in sliced(self._open.values()):
            partition.producers.expire(before_ms)
        self.due_batches.forget()

    async def let_go(self) -> None:
        """Close partitions that nobody has asked for since this was done last; who does opens them again.

        Producers' states are kept with the log, as at a clean end.
        """
        self._lent.clear()
        async for partition in sliced(self._open.values()):
            self._leave(partition)
            partition.touched = False
        await self._broker.logs.open_logs.close_unheld()

    def _leave(self, partition: Partition) -> OpenLog | None:
        """Have a partition that nobody asked for be open no more; return its log, if that may be closed now."""
        held = self._broker.logs.open_logs.get(partition.topic, partition.index)
        if held is None or partition.touched or not partition.is_idle:
            return None
        self._forget(partition)
        partition.let_go_of_log()
        held.leave(partition)
        return held
