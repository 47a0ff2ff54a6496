"""All partitions of this broker: opened when somebody first asks, then found by a dictionary look-up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from magnetar.broker.background import Repeated, traced
from magnetar.broker.core import Broker
from magnetar.broker.errors import TopicNotFound
from magnetar.broker.settings import Settings
from magnetar.broker.slices import batched, sliced
from magnetar.broker.topic import Topic
from magnetar.kafka.partitions.conversions import Conversions, FrameOf
from magnetar.kafka.partitions.partition import Partition
from magnetar.kafka.partitions.read_ahead import ReadAhead
from magnetar.kafka.settings import KafkaSettings
from magnetar.ledger.errors import LedgerError
from magnetar.metadata import MetadataError
from magnetar.records.errors import RecordsError
from magnetar.schema_registry.settings import SchemaRegistrySettings

if TYPE_CHECKING:
    from magnetar.schema_registry.topic_schemas import TopicFrames

_UNUSED_S = 300.0
"""How long a partition that nobody asks for stays open, at least."""
_CLOSED_AT_ONCE = 100  # with one flush
_FAILURES = LedgerError, MetadataError, RecordsError, OSError
_log = logging.getLogger("magnetar.kafka")


class Partitions:
    """The partitions that are open, by topic name and index."""

    def __init__(self, broker: Broker, clock: Callable[[], int]) -> None:
        self._broker = broker
        self._clock = clock
        self._open: dict[tuple[str, int], Partition] = {}
        self._open_by_id: dict[tuple[bytes, int], Partition] = {}
        self._opening: dict[tuple[str, int], asyncio.Future[Partition]] = {}
        self._ahead = ReadAhead()
        memory = broker.memory.account(lambda: None, known=True)
        self._conversions = Conversions(
            chunked_bytes=broker.settings.of(KafkaSettings).chunked_message_max_bytes, charge=memory.charge
        )
        self._frames: TopicFrames | None = None
        if broker.settings.of(SchemaRegistrySettings).kafka_apply_avro_schema_on_decode:
            from magnetar.schema_registry.registries import Registries
            from magnetar.schema_registry.topic_schemas import TopicFrames

            self._frames = TopicFrames(broker, broker.offers.get(Registries))
            if not broker.settings.of(SchemaRegistrySettings).asks_to_serve:
                _log.warning(
                    "kafka.apply.avro.schema.on.decode gives consumers ids of schemas, but no registry is served to "
                    "ask for them: set schema.registry.listeners"
                )
        self._sweeper: Repeated | None = None
        self._letting_go: Repeated | None = None
        broker.events.topic_deleted.append(self._deleted)
        broker.events.topic_changed.append(self._changed)
        broker.events.settings_changed.append(self._settings_changed)

    def start(self) -> None:
        """Begin to look after retention."""
        self._sweeper = self._broker.background.repeat(
            "retention",
            lambda: self._broker.settings.topics.log_retention_check_interval_ms / 1000,
            self.retain,
            essential=True,
        )
        self._letting_go = self._broker.background.repeat(
            "letting go of partitions that nobody uses", lambda: _UNUSED_S, self.let_go
        )

    async def close(self) -> None:
        for work in (self._sweeper, self._letting_go):
            if work is not None:
                await work.stop()

    def opened(self, topic: str, topic_id: bytes, index: int) -> Partition | None:
        """Give a partition that is open already, by the name its topic is kept under or, without one, by its id."""
        found = self._open.get((topic, index)) if topic else self._open_by_id.get((topic_id, index))
        if found is not None:
            found.touched = True
        return found

    def all_open(self) -> list[Partition]:
        return list(self._open.values())

    async def get(self, topic: Topic, index: int) -> Partition:
        """Give a partition, opened if need be; raise ``TopicNotFound`` if the topic has no such partition."""
        key = (topic.kafka_name, index)
        found = self._open.get(key)
        if found is not None:
            found.touched = True
            return found
        if not 0 <= index < topic.partitions:
            raise TopicNotFound(f"topic {topic.kafka_name} has no partition {index}")
        opening = self._opening.get(key)
        if opening is None:
            opening = self._opening[key] = asyncio.ensure_future(self._load(topic, index))
            opening.add_done_callback(lambda _: self._opening.pop(key, None))
        return await asyncio.shield(opening)

    async def _load(self, topic: Topic, index: int) -> Partition:
        log = await self._broker.engine.open(topic.name.ledger_name(index), self._broker.ledger_policy(topic))
        partition = Partition(
            topic, index, log, self._clock, self._ahead, self._conversions, self._frame_of(topic)
        )
        await partition.load()
        if self._broker.get(topic.kafka_name) is not topic:
            await self._broker.engine.delete(log.name)  # it was made again while its topic was being deleted
            raise TopicNotFound(f"topic {topic.kafka_name} was deleted")
        self._open[topic.kafka_name, index] = self._open_by_id[topic.topic_id, index] = partition
        return partition

    def _frame_of(self, topic: Topic) -> FrameOf | None:
        frames = self._frames
        return None if frames is None else partial(frames.of, topic)

    def size_of(self, topic: Topic, index: int) -> int:
        """Give the bytes that a partition takes on disk."""
        return sum(ledger.size for ledger in self._broker.engine.summaries(topic.name.ledger_name(index)))

    async def _deleted(self, topic: Topic) -> None:
        for index in range(topic.partitions):
            partition = self._open.pop((topic.kafka_name, index), None)
            self._open_by_id.pop((topic.topic_id, index), None)
            if partition is not None:
                partition.let_go_of_log()

    def _changed(self, topic: Topic) -> None:
        policy = self._broker.ledger_policy(topic)
        for index in range(topic.partitions):
            partition = self._open.get((topic.kafka_name, index))
            if partition is not None:
                partition.log.policy = policy

    def _settings_changed(self, _: Settings) -> None:
        for topic in self._broker.topics():
            self._changed(topic)

    async def retain(self) -> None:
        """Let go of what retention no longer holds, and forget producers long silent; done regularly by itself."""
        now_ms = self._clock()
        await self._open_overdue(now_ms)
        for partition in self.all_open():
            partition.producers.expire(self._expired_ms())
            try:
                if "delete" in partition.topic.config.cleanup_policy:
                    partition.log.retain(now_ms)
            except _FAILURES as error:
                _tell(partition.topic, partition.index, error)
            await asyncio.sleep(0)

    async def let_go(self) -> None:
        """Close partitions that nobody has asked for since this was done last; who does opens them again.

        Producers' states are kept with the log, as at a clean end.
        """
        untouched: list[Partition] = []
        async for partition in sliced(self._open.values()):
            if partition.is_idle and not partition.touched:
                untouched.append(partition)
            partition.touched = False
        for some in batched(untouched, _CLOSED_AT_ONCE):
            logs = []
            for partition in some:
                name, topic_id = partition.topic.kafka_name, partition.topic.topic_id
                still = self._open.get((name, partition.index)) is partition
                if still and partition.is_idle and not partition.touched:
                    del self._open[name, partition.index], self._open_by_id[topic_id, partition.index]
                    partition.let_go_of_log()
                    logs.append(partition.log)
            await self._broker.engine.let_go(logs)

    def _expired_ms(self) -> int:
        """Give from when on back a producer's last batch is too old for it to be remembered."""
        return self._clock() - self._broker.settings.of(KafkaSettings).producer_id_expiration_ms

    async def _open_overdue(self, now_ms: int) -> None:
        """Open the partitions that nobody has asked for, but that hold something which retention may take."""
        for topic in self._broker.topics():
            config = topic.config
            if "delete" not in config.cleanup_policy or (
                config.retention_ms < 0 and config.retention_bytes < 0
            ):
                continue
            async for index in sliced(range(topic.partitions)):
                if (topic.kafka_name, index) in self._open:
                    continue
                try:
                    if self._is_overdue(topic, index, now_ms):
                        await self.get(topic, index)
                except TopicNotFound:
                    pass  # deleted meanwhile
                except _FAILURES as error:
                    _tell(topic, index, error)
            await asyncio.sleep(0)

    def _is_overdue(self, topic: Topic, index: int, now_ms: int) -> bool:
        config = topic.config
        ledgers = self._broker.engine.summaries(topic.name.ledger_name(index))
        aged = bool(ledgers) and 0 <= config.retention_ms < now_ms - ledgers[0].created_ms
        return aged or 0 <= config.retention_bytes < sum(ledger.size for ledger in ledgers)


def _tell(topic: Topic, index: int, error: Exception) -> None:
    _log.error("retention of %s-%d failed: %s", topic.kafka_name, index, error, exc_info=traced(error))
