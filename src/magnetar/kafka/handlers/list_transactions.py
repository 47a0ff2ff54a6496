"""ListTransactions (KIP-664): the transactional ids of this broker, filtered by state, producer, age and pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.transactions.metadata import NO_TIME, State
from magnetar.serving.pace import distinct, paced
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.list_transactions_request import ListTransactionsRequest
from magnetar.wire.kafka.messages.list_transactions_response import (
    ListTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

_STATES = {state.kafka_name: state for state in State}


async def list_transactions(
    request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    """Answer with those that every filter lets through; states that do not exist are named, and let nothing through."""
    transactions = await context.kafka.transactions.get()
    try:
        found = transactions.list()
    except CoordinatorRefused as refused:
        return ListTransactionsResponse(error_code=refused.code)
    states, unknown = set(), []
    async for name in paced(distinct(request.state_filters)):
        state = _STATES.get(name)
        if state is None:
            unknown.append(name)
        else:
            states.add(state)
    producers = {producer_id async for producer_id in paced(request.producer_id_filters)}
    matches = None
    if request.transactional_id_pattern:
        import re2  # not every broker is asked

        try:
            matches = re2.compile(request.transactional_id_pattern)
        except re2.error:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    now_ms = transactions.now_ms()
    rows = []
    async for each in paced(found):
        if request.state_filters and each.state not in states:
            continue
        if producers and each.producer_id not in producers:
            continue
        if request.duration_filter >= 0 and (
            each.start_ms == NO_TIME or now_ms - each.start_ms <= request.duration_filter
        ):
            continue
        if matches is not None and matches.fullmatch(each.transactional_id) is None:
            continue
        rows.append(
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.kafka_name,
            )
        )
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)
