"""What another broker says of a transaction counts only if no marker has ended it here meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from magnetar.cluster.ownership import Owned
from magnetar.kafka.transactions.admission import Admission
from magnetar.kafka.transactions.decider import ProducerIdAndEpoch
from magnetar.kafka.transactions.markers import Markers
from magnetar.kafka.transactions.metadata import TransactionPartition
from magnetar.logs.producers import EndTransactionMarker
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

WHERE = TransactionPartition("t", 3)


def answer(code: ErrorCode) -> AddPartitionsToTxnResponse:
    row = AddPartitionsToTxnPartitionResult(partition_index=WHERE.partition, partition_error_code=code)
    topic = AddPartitionsToTxnTopicResult(name=WHERE.topic, results_by_partition=[row])
    return AddPartitionsToTxnResponse(
        results_by_transaction=[AddPartitionsToTxnResult(transactional_id="x", topic_results=[topic])]
    )


async def test_who_asked_while_a_marker_came_asks_again_and_adds_nothing_then() -> None:
    asked: list[bool] = []
    markers = Markers(
        cast(Any, SimpleNamespace(background=None)), cast(Any, None), cast(Any, None), cast(Any, None)
    )

    class Others:
        async def ask(self, node_id: int, request: Any, home: str) -> AddPartitionsToTxnResponse:
            assert node_id == 2
            asked.append(request.transactions[0].verify_only)
            if len(asked) > 1:
                return answer(ErrorCode.TRANSACTION_ABORTABLE)
            markers._ends(EndTransactionMarker(7, 0, committed=True), WHERE)
            return answer(ErrorCode.NONE)

    transactions = SimpleNamespace(owner_of=lambda transactional_id: Owned(2, 0))
    admission = Admission(cast(Any, transactions), markers, cast(Any, Others()), 1, "")
    code = await admission.admit("x", ProducerIdAndEpoch(7, 0), WHERE, 2, adds=True)
    assert code is ErrorCode.TRANSACTION_ABORTABLE
    assert asked == [False, True]
