"""InitProducerId: an id for an idempotent producer (KIP-98). Transactions are not served yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.errors import code_for
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from magnetar.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_NONE = -1


async def init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Return a new id, whatever id the producer has: only those with a transactional id may go on with theirs
    (KIP-360).

    Idempotent producers count their epochs by themselves, and an id that was not given may be given to others later.
    """
    if request.transactional_id is not None:
        code = ErrorCode.UNSUPPORTED_VERSION if request.transactional_id else ErrorCode.INVALID_REQUEST
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    try:
        return InitProducerIdResponse(producer_id=await context.kafka.producer_ids.take(), producer_epoch=0)
    except Exception as error:
        return InitProducerIdResponse(error_code=code_for(error), producer_epoch=-1)
