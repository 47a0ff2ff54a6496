"""AlterReplicaLogDirs: where partitions lie on a broker's disks (KIP-113). This broker has one directory for all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magnetar.auth import Right
from magnetar.kafka.authorization.checks import Checks
from magnetar.kafka.handlers.named_topic import named_topic
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest
from magnetar.wire.kafka.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.route import Handler


async def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Agree to have partitions where they are; there is nowhere else."""
    broker = context.kafka.broker
    here = str(Path(broker.settings.node.data_dir).absolute())

    def outcome(path: str, name: str, index: int) -> ErrorCode:
        if path != here:
            return ErrorCode.LOG_DIR_NOT_FOUND
        topic = named_topic(broker, name)
        is_there = topic is not None and broker.visible(topic) and 0 <= index < topic.partitions
        return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    return await _answered(request, outcome)


async def _answered(
    request: AlterReplicaLogDirsRequest, outcome: Callable[[str, str, int], ErrorCode]
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=outcome(path, topic.name, index)
                    )
                    async for index in paced(topic.partitions)
                ],
            )
            async for path, topic in paced(
                (each.path, topic) for each in request.dirs for topic in each.topics
            )
        ]
    )


async def guard(request: Any, context: RequestContext, checks: Checks, answer: Handler) -> Any:
    """ALTER on the cluster."""
    if checks.on_cluster(Right.alter_cluster):
        return await answer(request, context)
    return await _answered(request, lambda *_: ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
