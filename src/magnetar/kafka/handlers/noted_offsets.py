"""The offsets that OffsetCommit or TxnOffsetCommit names of one topic, and the rows that they are answered in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from magnetar.kafka.coordinators.facts import OffsetCommit
from magnetar.kafka.handlers.named_topic import known_topic, not_found
from magnetar.node.broker import Broker
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode

Row = TypeVar("Row")


async def noted_offsets(
    broker: Broker, asked: Any, new_row: Callable[..., Row], rows: list[Row], commits: list[OffsetCommit]
) -> list[Row]:
    """Return the rows of the answer's topic; those for the coordinator to fill in are noted beside their commits."""
    topic = await known_topic(broker, asked.name, asked.topic_id)
    answered: list[Row] = []
    async for wanted in paced(asked.partitions):
        partition, code = wanted.partition_index, ErrorCode.NONE
        if topic is None:
            code = not_found(asked.name)
        elif not 0 <= partition < topic.partitions:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        row = new_row(partition_index=partition, error_code=code)
        answered.append(row)
        if topic is not None and code is ErrorCode.NONE:
            rows.append(row)
            commits.append(
                OffsetCommit(
                    topic.kafka_name,
                    topic.topic_id,
                    partition,
                    wanted.committed_offset,
                    wanted.committed_leader_epoch,
                    wanted.committed_metadata or "",
                )
            )
    return answered
