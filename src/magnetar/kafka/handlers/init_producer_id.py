"""InitProducerId: an id for an idempotent producer (KIP-98, KIP-360). Transactions are not served yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.errors import code_for
from magnetar.kafka.wire.errors import ErrorCode
from magnetar.kafka.wire.messages.init_producer_id_request import InitProducerIdRequest
from magnetar.kafka.wire.messages.init_producer_id_response import InitProducerIdResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_LAST_EPOCH = 0x7FFF - 1


async def init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Give a new id, or the next epoch of the one that a producer has."""
    if request.transactional_id is not None:
        code = ErrorCode.UNSUPPORTED_VERSION if request.transactional_id else ErrorCode.INVALID_REQUEST
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    if request.producer_id >= 0 and 0 <= request.producer_epoch < _LAST_EPOCH:
        return InitProducerIdResponse(
            producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1
        )
    try:
        return InitProducerIdResponse(producer_id=context.kafka.producer_ids.take(), producer_epoch=0)
    except Exception as error:
        return InitProducerIdResponse(error_code=code_for(error), producer_epoch=-1)
