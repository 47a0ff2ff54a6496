"""DescribeLogDirs: the one data directory, its room, and what each partition takes of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.broker.topic import Topic
from magnetar.kafka.errors import REFUSALS
from magnetar.kafka.pace import paced
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
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=str(directory),
                topics=[
                    sizes
                    async for wanted in paced(_wanted(request, context))
                    if (sizes := await _sizes(context, *wanted)).partitions
                ],
                total_bytes=room.f_blocks * room.f_frsize,
                usable_bytes=room.f_bavail * room.f_frsize,
            )
        ]
    )


def _wanted(request: DescribeLogDirsRequest, context: RequestContext) -> list[tuple[str, Topic, list[int]]]:
    broker = context.kafka.broker
    if request.topics is None:
        shown = (topic for topic in broker.topics() if broker.visible(topic))
        return [(topic.kafka_name, topic, list(range(topic.partitions))) for topic in shown]
    found = []
    for asked in request.topics:
        try:
            topic = broker.get(asked.topic)
        except REFUSALS:
            continue
        if topic is not None and broker.visible(topic):
            there = [index for index in asked.partitions if 0 <= index < topic.partitions]
            found.append((asked.topic, topic, there))
    return found


async def _sizes(
    context: RequestContext, name: str, topic: Topic, partitions: list[int]
) -> DescribeLogDirsTopic:
    size_of, is_mine = context.kafka.partitions.size_of, context.kafka.broker.ownership.is_mine
    rows = [
        DescribeLogDirsPartition(partition_index=index, partition_size=await size_of(topic, index))
        for index in partitions
        if is_mine(topic.name, index)
    ]
    return DescribeLogDirsTopic(name=name, partitions=rows)
