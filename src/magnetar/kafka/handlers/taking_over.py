"""Produce to a topic that another cluster leads still: its batches come as they are, at the offsets they have there.

`magnetar.migrate.from_kafka` sends them, under the transactional id that the topic's configuration names. So who
began an earlier migration of the topic writes nothing more into a later one.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

from magnetar.kafka.partitions.partition import Partition, TopicMigrating
from magnetar.records.check_kept import check_kept
from magnetar.records.errors import InvalidRecord
from magnetar.serving.pace import MAX_SECONDS
from magnetar.topics.topic import Topic
from magnetar.wire.kafka.messages.produce_request import PartitionProduceData


async def take_over(
    transactional_id: str | None, partition: Partition, asked: PartitionProduceData
) -> tuple[int, asyncio.Future[None] | None]:
    """Append the batches of one partition; give the first offset, and what tells that all is durable.

    Raises `TopicMigrating` for whoever else would write the topic, ``RecordsError`` and ``LedgerError``; the batches
    before one that cannot be appended are in the log then.
    """
    topic = partition.topic
    _check_writer(transactional_id, topic)
    if not asked.records:
        raise InvalidRecord("a partition without a whole record batch")
    batches = await asyncio.get_running_loop().run_in_executor(None, check_kept, memoryview(asked.records))
    if any(each.header.is_transactional for each in batches):
        await partition.may_end_transactions()
    done = None
    yields_at = perf_counter() + MAX_SECONDS
    for batch in batches:
        if perf_counter() > yields_at:
            await asyncio.sleep(0)
            yields_at = perf_counter() + MAX_SECONDS
        _check_writer(transactional_id, topic)  # it may have changed meanwhile
        done = partition.take_over(batch)
    return batches[0].header.base_offset, done


def _check_writer(transactional_id: str | None, topic: Topic) -> None:
    writer = topic.config.migration_writer
    if not writer:
        raise TopicMigrating(f"{topic.kafka_name} is not being migrated (any more)")
    if transactional_id != writer:
        raise TopicMigrating(
            f"{topic.kafka_name} is being migrated: another cluster takes what is written to it"
        )
