"""EndTxn: commit or abort a transaction; from version 5 on the producer goes on under its next epoch (KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.errors import code_for
from magnetar.kafka.handlers.transactional import EACH_DECLARED, EPOCH_BUMPED, fenced_as
from magnetar.kafka.transactions.decider import ProducerIdAndEpoch
from magnetar.wire.kafka.messages.end_txn_request import EndTxnRequest
from magnetar.wire.kafka.messages.end_txn_response import EndTxnResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_FIRST_WITH_BUMP = 5


async def end_txn(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    """Answer when the decision is durable; its markers are written after that."""
    version = context.api_version
    try:
        transactions = await context.kafka.transactions.get()
        code, producer = await transactions.end(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            committed=request.committed,
            version=EPOCH_BUMPED if version >= _FIRST_WITH_BUMP else EACH_DECLARED,
        )
    except CoordinatorRefused as refused:
        return EndTxnResponse(error_code=fenced_as(refused.code, version))
    except Exception as error:
        return EndTxnResponse(error_code=code_for(error))
    return EndTxnResponse(error_code=code, producer_id=producer.producer_id, producer_epoch=producer.epoch)
