"""What the five APIs of share partitions' states have in common: rows by topic and partition, and their errors.

Brokers ask these of each other (KIP-932): who has a partition's log, and a group's coordinator, of who keeps the state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shares.runs import RecordState
from magnetar.coordination.shares.share_partition import StateBatch
from magnetar.kafka.shares.state import ShareKey
from magnetar.serving.pace import paced
from magnetar.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_STORED = frozenset(RecordState) - {RecordState.ACQUIRED}


async def each_state(
    group_id: str,
    topics: Iterable[Any],
    context: RequestContext,
    ask: Callable[[ShareKey, Any], Awaitable[Any]],
    row: Callable[..., Any],
) -> list[tuple[bytes, list[Any]]]:
    """Return for each topic a row for each of its partitions: what ``ask`` gives, or its error in a ``row``."""
    results = []
    async for topic in paced(topics):
        rows = []
        async for wanted in paced(topic.partitions):
            key = ShareKey(group_id, topic.topic_id, wanted.partition)
            try:
                rows.append(await _one(key, wanted, context, ask))
            except CoordinatorRefused as refused:
                rows.append(row(partition=key.partition, error_code=refused.code, error_message=str(refused)))
        results.append((topic.topic_id, rows))
    return results


async def _one(
    key: ShareKey, wanted: Any, context: RequestContext, ask: Callable[[ShareKey, Any], Awaitable[Any]]
) -> Any:
    if not key.group_id:
        raise CoordinatorRefused(ErrorCode.INVALID_REQUEST, "Group id must not be empty.")
    topic = context.kafka.broker.get_by_id(key.topic_id)
    if topic is None or not 0 <= key.partition < topic.partitions:
        raise CoordinatorRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return await ask(key, wanted)


def state_batches(rows: Iterable[Any]) -> list[StateBatch]:
    """Return what rows of a request say; raise `CoordinatorRefused` for what cannot be."""
    batches = []
    for each in rows:
        known = each.delivery_state in _STORED and 0 <= each.first_offset <= each.last_offset
        if not known or each.delivery_count < 0:
            raise CoordinatorRefused(
                ErrorCode.INVALID_REQUEST, "A state batch is not one that can be stored."
            )
        state = RecordState(each.delivery_state)
        batches.append(StateBatch(each.first_offset, each.last_offset, state, each.delivery_count))
    return batches
