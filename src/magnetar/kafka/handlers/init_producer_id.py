"""InitProducerId: an id for an idempotent producer (KIP-98), and the next epoch for a transactional one (KIP-360)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.auth import Right
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.errors import code_for
from magnetar.kafka.handlers.transactional import fenced_as
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from magnetar.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_NONE = -1
_FIRST_WITH_FENCED = 4


async def init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Return a new id, whatever id the producer has, or to one with a transactional id its next epoch.

    Idempotent producers count their epochs by themselves, and an id that was not given may be given to others later.
    """
    if request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        if request.transactional_id is None:
            return InitProducerIdResponse(
                producer_id=await context.kafka.producer_ids.take(), producer_epoch=0
            )
        from magnetar.kafka.transactions.decider import NO_USER, IdUser, ProducerIdAndEpoch

        expected = None
        if request.producer_id != _NONE:
            expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        user = NO_USER
        if (access := context.access) is not None:
            user = IdUser(access.role, access.may(Right.operate))
        transactions = await context.kafka.transactions.get()
        code, producer = await transactions.init_producer_id(
            request.transactional_id, request.transaction_timeout_ms, expected, user
        )
    except CoordinatorRefused as refused:
        return _refused(fenced_as(refused.code, context.api_version, _FIRST_WITH_FENCED))
    except Exception as error:
        return _refused(code_for(error))
    return InitProducerIdResponse(
        error_code=code, producer_id=producer.producer_id, producer_epoch=producer.epoch
    )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)
