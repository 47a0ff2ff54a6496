"""ShareAcknowledge: a member of a share group says what became of records that it holds (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.handlers.leaders import TELLS_LEADER, Misled, tell_leaders
from magnetar.kafka.handlers.share_acknowledging import (
    acknowledge,
    message_of,
    said_in,
)
from magnetar.kafka.shares.sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, check_member, check_rows
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.share_acknowledge_request import ShareAcknowledgeRequest
from magnetar.wire.kafka.messages.share_acknowledge_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


async def share_acknowledge(
    request: ShareAcknowledgeRequest, context: RequestContext
) -> ShareAcknowledgeResponse:
    """Answer once what it says is durable."""
    shares = await context.kafka.shares.get()
    try:
        check_member(request.group_id, request.member_id)
        check_rows(request.topics)
        assert request.group_id is not None
        assert request.member_id is not None
        if request.share_session_epoch == INITIAL_EPOCH:
            raise CoordinatorRefused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        key = SessionKey(request.group_id, request.member_id)
        session = shares.sessions.go_on(key, request.share_session_epoch)
    except CoordinatorRefused as refused:
        return ShareAcknowledgeResponse(error_code=refused.code, error_message=message_of(refused))
    outcome = await acknowledge(context, shares, *key, said_in(request.topics), renews=request.is_renew_ack)
    if request.share_session_epoch == FINAL_EPOCH:
        shares.sessions.end(session)
    topics: dict[bytes, list[PartitionData]] = {}
    misled = []
    for where, said in outcome.items():
        row = PartitionData(partition_index=where.partition, error_code=said.code, error_message=said.message)
        topics.setdefault(where.topic_id, []).append(row)
        if said.code in TELLS_LEADER:
            misled.append(Misled("", where.topic_id, where.partition, row))
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=shares.settings_of(key.group_id).group_share_record_lock_duration_ms,
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=rows)
            for topic_id, rows in topics.items()
        ],
        node_endpoints=await tell_leaders(context, misled, LeaderIdAndEpoch, NodeEndpoint),
    )
