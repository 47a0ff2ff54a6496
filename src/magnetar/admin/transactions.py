"""Transactions: which there are, what one of them holds up, and how an operator ends it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import Declined, NotThere
from magnetar.admin.partition_name import PartitionName
from magnetar.admin.refusals import check
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from magnetar.wire.kafka.messages.describe_producers_response import DescribeProducersResponse, ProducerState
from magnetar.wire.kafka.messages.describe_transactions_request import DescribeTransactionsRequest
from magnetar.wire.kafka.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TransactionState,
)
from magnetar.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from magnetar.wire.kafka.messages.init_producer_id_response import InitProducerIdResponse
from magnetar.wire.kafka.messages.list_transactions_request import ListTransactionsRequest
from magnetar.wire.kafka.messages.list_transactions_response import ListTransactionsResponse
from magnetar.wire.kafka.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from magnetar.wire.kafka.messages.write_txn_markers_response import WriteTxnMarkersResponse

ONGOING = "Ongoing"
_STABLE_INIT = 5  # the last version of InitProducerId that Kafka calls stable
_TRANSACTION = 1
"""The key type of FindCoordinator."""
_LIST = "'magnetar txn list' shows those there are."


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """One transactional id of many."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDetail:
    """One transactional id. Times in ms; ``open_ms`` is None where no transaction is open."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    open_ms: int | None
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TransactionAborted:
    """What was aborted: a transactional id's transaction, or that of a producer in one partition."""

    producer_id: int
    transactional_id: str | None
    partitions: tuple[str, ...]


def list_transactions(cluster: ClusterAdmin, states: Iterable[str] = ()) -> list[TransactionRow]:
    """Return the transactional ids, those in these states alone if any are given."""
    request = ListTransactionsRequest(state_filters=list(states))
    rows: dict[str, TransactionRow] = {}
    for answer in cluster.ask_all(request, ListTransactionsResponse, most=1):
        check(answer.error_code, None, "the list of transactions", "Try again in a moment.")
        if answer.unknown_state_filters:
            raise NotThere(
                f"no transaction can be {', '.join(answer.unknown_state_filters)}",
                "States are Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit and CompleteAbort.",
            )
        for each in answer.transaction_states:
            row = TransactionRow(each.transactional_id, each.producer_id, each.transaction_state)
            rows[row.transactional_id] = row
    return sorted(rows.values(), key=lambda row: row.transactional_id)


def describe_transaction(cluster: ClusterAdmin, transactional_id: str) -> TransactionDetail:
    """Return one transactional id; raise `NotThere`."""
    found = _described(cluster, transactional_id)
    is_open = found.transaction_start_time_ms > 0 and found.transaction_state == ONGOING
    return TransactionDetail(
        transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.transaction_state,
        found.transaction_timeout_ms,
        max(time.time_ns() // 1_000_000 - found.transaction_start_time_ms, 0) if is_open else None,
        tuple(
            str(PartitionName(topic.topic, partition))
            for topic in found.topics
            for partition in topic.partitions
        ),
    )


def _described(cluster: ClusterAdmin, transactional_id: str) -> TransactionState:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    answer = cluster.ask_coordinator(
        transactional_id, request, DescribeTransactionsResponse, key_type=_TRANSACTION
    )
    (found,) = answer.transaction_states
    if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise NotThere(f"transactional id {transactional_id!r} does not exist", _LIST)
    check(found.error_code, None, f"transactional id {transactional_id!r}")
    return found


def abort_transaction(cluster: ClusterAdmin, transactional_id: str) -> TransactionAborted:
    """Abort what a transactional id has open, and fence its producer; raise `NotThere` or `Declined`."""
    found = describe_transaction(cluster, transactional_id)
    if found.state != ONGOING:
        raise Declined(f"transactional id {transactional_id!r} has no transaction open: {found.state}", _LIST)
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=found.timeout_ms
    )
    answer = cluster.ask_coordinator(
        transactional_id, request, InitProducerIdResponse, most=_STABLE_INIT, key_type=_TRANSACTION
    )
    if (
        answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS
    ):  # it is aborted, and its markers are on their way
        check(answer.error_code, None, f"transactional id {transactional_id!r}")
    return TransactionAborted(found.producer_id, transactional_id, found.partitions)


def abort_in_partition(cluster: ClusterAdmin, place: PartitionName, producer_id: int) -> TransactionAborted:
    """Abort what a producer has open in one partition, though no coordinator may know of it any more.

    Raises `NotThere`.
    """
    asked = DescribeProducersRequest(
        topics=[TopicRequest(name=place.topic, partition_indexes=[place.partition])]
    )
    where = [(place.topic, place.partition)]
    (told,) = cluster.ask_leaders(where, lambda _: asked, DescribeProducersResponse)
    row = told.topics[0].partitions[0]
    check(row.error_code, row.error_message, f"partition {place}")
    found = next((each for each in row.active_producers if _is_open(each, producer_id)), None)
    if found is None:
        raise NotThere(
            f"producer {producer_id} has no transaction open in {place}",
            f"'magnetar why {place}' names the one that is, if any is.",
        )
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=found.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=place.topic, partition_indexes=[place.partition])],
        coordinator_epoch=max(found.coordinator_epoch, 0),
    )
    order = WriteTxnMarkersRequest(markers=[marker])
    (answer,) = cluster.ask_leaders(where, lambda _: order, WriteTxnMarkersResponse)
    check(answer.markers[0].topics[0].partitions[0].error_code, None, f"partition {place}")
    return TransactionAborted(producer_id, None, (str(place),))


def _is_open(producer: ProducerState, producer_id: int) -> bool:
    return producer.producer_id == producer_id and producer.current_txn_start_offset >= 0
