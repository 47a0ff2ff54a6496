"""What ShareFetch and ShareAcknowledge have in common: what members say of records, and whose session it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shares.linked import QueueBusy
from magnetar.coordination.shares.share_partition import AcknowledgeType, Judged, NeverGiven, NotHeld
from magnetar.kafka.errors import code_for
from magnetar.kafka.handlers.asked import find_topic
from magnetar.kafka.shares.sessions import SharedPartition
from magnetar.kafka.shares.state import ShareKey
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext
    from magnetar.kafka.shares.serving import ServedShare
    from magnetar.kafka.shares.shares import Shares

_MAX_TYPES = 1 << 16
"""Of one batch that says something of each record; more than anybody may hold, by far."""


class Refusal(NamedTuple):
    """Why something of one partition was not done."""

    code: ErrorCode
    message: str | None = None

    @classmethod
    def of(cls, error: Exception) -> Refusal:
        """Return what a client is told of an error."""
        if isinstance(error, CoordinatorRefused):
            return cls(error.code, message_of(error))
        if isinstance(error, QueueBusy):
            return cls(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error))
        if isinstance(error, NeverGiven):
            return cls(ErrorCode.INVALID_REQUEST, str(error))
        if isinstance(error, NotHeld):
            return cls(ErrorCode.INVALID_RECORD_STATE, str(error))
        return cls(code_for(error))


def message_of(refused: CoordinatorRefused) -> str | None:
    """Return what is said beside an error, None where the code says it all."""
    return None if str(refused) == refused.code.name else str(refused)


class Said(NamedTuple):
    """What a member says of a partition's records, as it came."""

    where: SharedPartition
    batches: Sequence[Any]


def said_in(topics: Iterable[Any]) -> list[Said]:
    """Return what a request says of records, by partition."""
    return [
        Said(SharedPartition(topic.topic_id, row.partition_index), row.acknowledgement_batches)
        for topic in topics
        for row in topic.partitions
        if row.acknowledgement_batches
    ]


async def serve(
    context: RequestContext, shares: Shares, group_id: str, where: SharedPartition
) -> ServedShare | Refusal:
    """Return a share partition, or why there is none."""
    try:
        topic = find_topic(context, "", where.topic_id)
        partition = await context.kafka.partitions.get(topic, where.partition)
        return await shares.get(group_id, topic, partition)
    except Exception as error:
        return Refusal.of(error)


async def acknowledge(
    context: RequestContext,
    shares: Shares,
    group_id: str,
    member_id: str,
    said: Iterable[Said],
    *,
    renews: bool,
) -> dict[SharedPartition, Refusal]:
    """Take in what a member says, durable on return; give what came of it by partition.

    ``renews`` tells whether it said that it might hold some of them for longer.
    """
    outcome: dict[SharedPartition, Refusal] = {}

    async def one(where: SharedPartition, batches: Sequence[Any]) -> None:
        try:
            served = await _at_work(context, shares, group_id, where)
            await served.judge(member_id, await _judged(batches, renews=renews, may_renew=served.renews))
        except Exception as error:
            outcome[where] = Refusal.of(error)
        else:
            outcome[where] = Refusal(ErrorCode.NONE)

    async with asyncio.TaskGroup() as tasks:
        async for each in paced(said):
            tasks.create_task(one(*each))
    return outcome


async def _at_work(
    context: RequestContext, shares: Shares, group_id: str, where: SharedPartition
) -> ServedShare:
    """Return a share partition that somebody was given something of; raise why there is none."""
    topic = find_topic(context, "", where.topic_id)
    await context.kafka.partitions.get(topic, where.partition)
    served = shares.served(ShareKey(group_id, *where))
    if served is None:
        raise CoordinatorRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return served


async def _judged(batches: Sequence[Any], *, renews: bool, may_renew: bool) -> list[Judged]:
    """Return what a partition's batches say; raise `CoordinatorRefused` for what contradicts itself, and `NotHeld` if
    what is held is to be held for longer where the group ``may_renew`` nothing.
    """
    judged: list[Judged] = []
    end = -1
    async for batch in paced(sorted(batches, key=lambda batch: batch.first_offset)):
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if last < first or first < 0:
            raise CoordinatorRefused(ErrorCode.INVALID_REQUEST, "A batch ends before it begins.")
        if first <= end:
            raise NotHeld(f"offset {first} is acknowledged twice")
        if len(types) not in (1, last - first + 1) or len(types) > _MAX_TYPES:
            raise CoordinatorRefused(
                ErrorCode.INVALID_REQUEST, "Acknowledgement types must be one, or one for each record."
            )
        end = last
        if len(types) == 1:
            judged.append(Judged(first, last, _verdict(types[0], renews=renews, may_renew=may_renew)))
            continue
        for kind, run in groupby(types):
            count = sum(1 for _ in run)
            judged.append(
                Judged(first, first + count - 1, _verdict(kind, renews=renews, may_renew=may_renew))
            )
            first += count
    return judged


def _verdict(kind: int, *, renews: bool, may_renew: bool) -> AcknowledgeType:
    if not AcknowledgeType.GAP <= kind <= AcknowledgeType.RENEW:
        raise CoordinatorRefused(ErrorCode.INVALID_REQUEST, f"Invalid acknowledge type: {kind}")
    if kind == AcknowledgeType.RENEW:
        if not renews:
            raise CoordinatorRefused(ErrorCode.INVALID_REQUEST, "The request does not say that it renews.")
        if not may_renew:
            raise NotHeld("the group's configuration says that nothing is renewed")
    return AcknowledgeType(kind)
