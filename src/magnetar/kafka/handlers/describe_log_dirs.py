"""DescribeLogDirs: the one data directory, its room, and what each partition takes of it."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.kafka.errors import REFUSALS
from magnetar.serving.pace import paced
from magnetar.topics.topic import Topic
from magnetar.wire.kafka.messages.describe_log_dirs_request import DescribeLogDirsRequest
from magnetar.wire.kafka.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def describe_log_dirs(
    request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """Tell the sizes of the partitions asked for, None for all; those that this broker does not have are left out.

    Clients add up what brokers tell, and take a size of 0 for a replica.
    """
    directory = Path(context.kafka.broker.settings.node.data_dir).absolute()
    room = os.statvfs(directory)
    wanted = await _wanted(request, context)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=str(directory),
                topics=[
                    sizes
                    async for name, (topic, partitions) in paced(wanted.items())
                    if (sizes := await _sizes(context, name, topic, partitions)).partitions
                ],
                total_bytes=room.f_blocks * room.f_frsize,
                usable_bytes=room.f_bavail * room.f_frsize,
            )
        ]
    )


async def _wanted(
    request: DescribeLogDirsRequest, context: RequestContext
) -> dict[str, tuple[Topic, Collection[int]]]:
    """Return topics as they are named, each with its partitions that are asked for: once, however often they are."""
    broker = context.kafka.broker
    if request.topics is None:
        shown = (topic for topic in broker.topics() if broker.visible(topic))
        return {topic.kafka_name: (topic, range(topic.partitions)) for topic in shown}
    found: dict[str, tuple[Topic, dict[int, None]]] = {}
    async for asked in paced(request.topics):
        try:
            topic = broker.get(asked.topic)
        except REFUSALS:
            continue
        if topic is not None and broker.visible(topic):
            _, there = found.setdefault(asked.topic, (topic, {}))
            async for index in paced(asked.partitions):
                if 0 <= index < topic.partitions:
                    there[index] = None
    return dict(found)


async def _sizes(
    context: RequestContext, name: str, topic: Topic, partitions: Collection[int]
) -> DescribeLogDirsTopic:
    size_of, is_mine = context.kafka.partitions.size_of, context.kafka.broker.cluster.ownership.is_mine
    rows = [
        DescribeLogDirsPartition(partition_index=index, partition_size=await size_of(topic, index))
        async for index in paced(partitions)
        if is_mine(topic.name, index)
    ]
    return DescribeLogDirsTopic(name=name, partitions=rows)
