"""Transactions for operators, by Pulsar's paths: coordinators, what one has in it, which are slow, aborting them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from magnetar.auth import Right, may
from magnetar.coordination.transactions import (
    PulsarTransaction,
    TransactionNotFound,
    TxnId,
    TxnPartition,
    TxnStatus,
    TxnSubscription,
)
from magnetar.ledger.port import Position
from magnetar.pulsar.dispatch.pending_acks import PendingAcks
from magnetar.pulsar.errors import SubscriptionNotFound
from magnetar.pulsar.names import COORDINATOR_ASSIGN, PulsarName, partition_name
from magnetar.pulsar.rest.everywhere import check_not_elsewhere, of_names, part_without_opening
from magnetar.pulsar.rest.request import AdminRequest, RequiredLevel, RestError, RestRoute, address_of
from magnetar.pulsar.rest.topics import found, one
from magnetar.pulsar.topic import PulsarTopic
from magnetar.pulsar.transactions.service import TransactionService

_NOT_OPEN = {"startPosition": None, "aborted": False}
"""What is told of a transaction in a partition that is not open."""


def _service(ask: AdminRequest) -> TransactionService:
    found = ask.services.transactions
    if found is None:
        raise RestError(503, "This Broker is not configured with transactionCoordinatorEnabled=true.")
    return found


def _txn(ask: AdminRequest) -> TxnId:
    return TxnId(ask.number("most"), ask.number("least"))


def _name(number: int) -> str:
    return partition_name(COORDINATOR_ASSIGN, number)


def _wanted(ask: AdminRequest) -> list[str]:
    """Return the coordinator that the query names, or all; raise ``CoordinatorNotFound``."""
    coordinator = _service(ask).coordinator
    if "coordinatorId" in ask.query:
        coordinator.owner(ask.number("coordinatorId"))
        return [_name(ask.number("coordinatorId"))]
    return [_name(number) for number in range(coordinator.coordinators)]


def _all(ask: AdminRequest, name: PulsarName) -> list[PulsarTransaction]:
    """Return a coordinator's transactions; raise ``NotOwned`` for one that another broker has."""
    number = name.partition or 0
    _check_mine(ask, number)
    return list(_service(ask).coordinator.all(number))


def _check_mine(ask: AdminRequest, number: int) -> None:
    """Raise ``NotOwned`` for a coordinator that another broker has, ``CoordinatorNotFound`` for one that is not."""
    owner = _service(ask).coordinator.owner(number)
    check_not_elsewhere(ask, f"Transaction coordinator {number}", owner)


async def coordinators(ask: AdminRequest) -> list[dict[str, Any]]:
    """List the transaction coordinators, and the broker that has each."""
    coordinator, ownership = _service(ask).coordinator, ask.services.broker.cluster.ownership
    found = []
    for number in range(coordinator.coordinators):
        owner = coordinator.owner(number)
        where = None if owner is None else address_of(ownership, owner.node_id, ask.address)
        found.append({"id": number, "brokerServiceUrl": where and (where.pulsar or where.pulsar_tls)})
    return found


async def coordinator_stats(ask: AdminRequest) -> dict[str, Any]:
    """Return how coordinators are: of one, by its number, or of all."""
    stats = await of_names(ask, stats_on, _wanted(ask))
    if "coordinatorId" in ask.query:
        (found,) = stats.values()
        return dict(found)
    return {str(PulsarName.parse(name).partition): each for name, each in stats.items()}


@part_without_opening
async def stats_on(ask: AdminRequest, name: PulsarName) -> dict[str, Any]:
    transactions = _all(ask, name)
    numbers = [each.txn.least for each in transactions]
    going = [each for each in transactions if not each.ended_ms]
    return {
        "state": "Ready",
        "leastSigBits": max(numbers, default=-1),
        "lowWaterMark": min((each.txn.least for each in going), default=0) - 1,
        "ongoingTxnSize": len(going),
        "recoverStartTime": 0,
        "recoverEndTime": 0,
    }


async def internal_stats(ask: AdminRequest) -> dict[str, Any]:
    """Return where a coordinator keeps its transactions: in a partition of ``__transaction_state``."""
    number = ask.number("coordinator")
    _service(ask).coordinator.owner(number)  # that there is one, on whichever broker
    return {"transactionLogStats": {"managedLedgerName": f"__transaction_state-{number}"}}


async def metadata(ask: AdminRequest) -> dict[str, Any]:
    """Return a transaction of one's own: its state and, of its topics, those that whoever asks may see."""
    service, txn = _service(ask), _txn(ask)
    _check_mine(ask, txn.most)
    found = service.coordinator.find(txn)
    access = ask.services.broker.security.authorization.access_of(ask.principal)
    if access is not None and access.role != found.owner and not may(access, Right.operate):
        raise RestError(403, f"{access.role or 'anonymous'} did not begin transaction {txn}")  # PIP-301
    return await _described(ask, service, found)


async def _described(
    ask: AdminRequest, service: TransactionService, each: PulsarTransaction
) -> dict[str, Any]:
    spelled = dict(sorted(each.names))
    access = ask.services.broker.security.authorization.access_of(ask.principal)
    parse = ask.services.broker.naming.parse

    def is_shown(where: TxnPartition | TxnSubscription) -> bool:
        return may(access, Right.see, parse(where.topic))

    produced = {}
    for where in sorted(filter(is_shown, each.partitions)):
        produced[spelled.get(where) or service.name_of(where)] = await _in_buffer(ask, where, each.txn)
    acked: dict[str, dict[str, Any]] = {}
    for of in sorted(filter(is_shown, each.subscriptions)):
        where = TxnPartition(of.topic, of.partition)
        name = spelled.get(where) or service.name_of(where)
        acked.setdefault(name, {})[of.subscription] = _in_pending_acks(
            service, each.txn, of.subscription, where
        )
    return {
        "txnId": str(each.txn),
        "status": str(each.status),
        "openTimestamp": each.start_ms,
        "timeoutAt": each.timeout_ms,
        "owner": each.owner or None,
        "producedPartitions": produced,
        "ackedPartitions": acked,
    }


async def _in_buffer(ask: AdminRequest, where: TxnPartition, txn: TxnId) -> dict[str, Any]:
    name = _service(ask).name_of(where)
    asked = replace(ask, query={"most": str(txn.most), "least": str(txn.least)})
    try:
        (found,) = (await of_names(asked, buffer_on, [name])).values()
    except RestError:  # its broker is not there now: nothing is known of it
        return _NOT_OPEN
    return dict(found)


@part_without_opening
async def buffer_on(ask: AdminRequest, name: PulsarName) -> dict[str, Any]:
    topic = ask.services.topics.find(name)
    found = None if topic is None else ask.services.topics.opened(topic, name.partition or 0)
    txn = TxnId(int(ask.query["most"]), int(ask.query["least"]))
    return _NOT_OPEN if found is None else await _buffered(found, txn)


async def _buffered(topic: PulsarTopic, txn: TxnId) -> dict[str, Any]:
    """Return where a transaction begins in a topic, and whether it was aborted there."""
    transactions = topic.log.transactions
    first = None if transactions is None else transactions.first_of(txn.producer_id)
    aborted = transactions is not None and any(
        each.producer_id == txn.producer_id for each in transactions.aborted()
    )
    position = None
    if first is not None and first >= topic.log.log_start_offset:
        entries = await topic.log.read(first, max_bytes=1)
        position = f"{entries[0].ledger_id}:{entries[0].entry_id}" if entries else None
    return {"startPosition": position, "aborted": aborted}


def _in_pending_acks(
    service: TransactionService, txn: TxnId, subscription: str, where: TxnPartition
) -> dict[str, Any]:
    acks = [
        each
        for of, those in service.coordinator.acks_of(txn).items()
        if of.subscription == subscription and of[:2] == where
        for each in those
    ]
    cumulative = [f"{each.ledger_id}:{each.entry_id}" for each in acks if each.cumulative]
    return {"cumulativeAckPosition": cumulative[-1] if cumulative else None}


async def slow(ask: AdminRequest) -> dict[str, Any]:
    """Return the transactions that are open for longer than so many milliseconds, by id."""
    ask.number("timeout")
    found: dict[str, Any] = {}
    for each in (await of_names(ask, slow_on, _wanted(ask))).values():
        found |= each
    return found


@part_without_opening
async def slow_on(ask: AdminRequest, name: PulsarName) -> dict[str, Any]:
    service, least_ms, now_ms = _service(ask), ask.number("timeout"), ask.services.clock()
    found = {}
    for each in _all(ask, name):
        await asyncio.sleep(0)
        if not each.ended_ms and now_ms - each.start_ms > least_ms:
            found[str(each.txn)] = await _described(ask, service, each)
    return found


async def in_buffer(ask: AdminRequest) -> dict[str, Any]:
    """Return what a topic knows of a transaction's messages."""
    _service(ask)
    return await _buffered(await one(ask), _txn(ask))


async def in_pending_ack(ask: AdminRequest) -> dict[str, Any]:
    """Return what a transaction has acknowledged in a subscription."""
    _subscription(ask, await one(ask))
    (found,) = (await of_names(ask, in_pending_ack_on, [_name(_txn(ask).most)])).values()
    return dict(found)


@part_without_opening
async def in_pending_ack_on(ask: AdminRequest, name: PulsarName) -> dict[str, Any]:
    service, txn = _service(ask), _txn(ask)
    _check_mine(ask, txn.most)
    service.coordinator.find(txn)
    return _in_pending_acks(service, txn, ask.path["subscription"], _where(ask))


def _where(ask: AdminRequest) -> TxnPartition:
    return TxnPartition(found(ask).kafka_name, ask.topic.partition or 0)


async def buffer_stats(ask: AdminRequest) -> dict[str, Any]:
    """Return how many transactions a topic has open, how many were aborted, and how far it can be read."""
    _service(ask)
    topic = await one(ask)
    transactions, last = topic.log.transactions, await topic.places.last()
    return {
        "state": "Ready" if transactions is not None else "NoSnapshot",
        "maxReadPosition": f"{last.ledger_id}:{last.entry_id}",
        "lastSnapshotTimestamps": 0,
        "ongoingTxnSize": 0 if transactions is None else len(transactions),
        "recoverStartTime": 0,
        "recoverEndTime": 0,
        "totalAbortedTransactions": 0 if transactions is None else transactions.aborted_count,
        "segmentsStats": {"segmentsSize": 0, "currentSegmentCapacity": 0, "unsealedAbortTxnIDSize": 0},
        "snapshotType": "Single",
    }


async def pending_ack_stats(ask: AdminRequest) -> dict[str, Any]:
    """Return how many entries of a subscription open transactions have acknowledged."""
    held = _subscription(ask, await one(ask))
    of_coordinators = await of_names(ask, acknowledging_on, _wanted(ask))
    ongoing = {txn for each in of_coordinators.values() for txn in each}
    return {
        "state": "Ready" if ongoing else "None",
        "ongoingTxnSize": len(ongoing),
        "pendingAcks": len(held),
        "recoverStartTime": 0,
        "recoverEndTime": 0,
    }


@part_without_opening
async def acknowledging_on(ask: AdminRequest, name: PulsarName) -> list[str]:
    """The transactions of a coordinator that have acknowledged something in the subscription of the path."""
    _check_mine(ask, name.partition or 0)
    return [
        str(txn)
        for txn, of, _ in _service(ask).coordinator.acks_on(*_where(ask))
        if of.subscription == ask.path["subscription"] and txn.most == name.partition
    ]


async def position_in_pending_ack(ask: AdminRequest) -> dict[str, str]:
    """Tell whether an entry is acknowledged, or is by a transaction that is open."""
    _service(ask)
    topic = await one(ask)
    held = _subscription(ask, topic)
    place = Position(ask.number("ledger"), ask.number("entry"))
    if topic.subscriptions[ask.path["subscription"]].cursor.is_done_with(place):
        return {"state": "MarkDelete"}
    return {"state": held.state_of(place)}


def _subscription(ask: AdminRequest, topic: PulsarTopic) -> PendingAcks:
    name = ask.path["subscription"]
    if name not in topic.subscriptions:
        raise SubscriptionNotFound(f"Subscription {name} not found")
    return topic.pending_acks(name)


async def abort(ask: AdminRequest) -> None:
    """Abort a transaction."""
    coordinator, txn = _service(ask).coordinator, _txn(ask)
    _check_mine(ask, txn.most)
    if coordinator.find(txn).status is not TxnStatus.OPEN:
        raise TransactionNotFound(f"transaction {txn} is not open")
    await coordinator.end(txn, committed=False)


_ANY, _SUPER, _TENANT = RequiredLevel.anybody, RequiredLevel.super_user, RequiredLevel.tenant
_ROOT = "//admin/v3/transactions"
_TOPIC = "{tenant}/{namespace}/{topic}"
_TXN = "{most}/{least}"
ROUTES = (
    RestRoute("GET", f"{_ROOT}/coordinators", coordinators, _SUPER),
    RestRoute("GET", f"{_ROOT}/coordinatorStats", coordinator_stats, _SUPER),
    RestRoute("GET", f"{_ROOT}/coordinatorInternalStats/{{coordinator}}", internal_stats, _SUPER),
    RestRoute("GET", f"{_ROOT}/transactionMetadata/{_TXN}", metadata, _ANY),
    RestRoute("GET", f"{_ROOT}/slowTransactions/{{timeout}}", slow, _SUPER),
    RestRoute("GET", f"{_ROOT}/transactionInBufferStats/{_TOPIC}/{_TXN}", in_buffer, _TENANT),
    RestRoute(
        "GET",
        f"{_ROOT}/transactionInPendingAckStats/{_TOPIC}/{{subscription}}/{_TXN}",
        in_pending_ack,
        _TENANT,
    ),
    RestRoute("GET", f"{_ROOT}/transactionBufferStats/{_TOPIC}", buffer_stats, _TENANT),
    RestRoute("GET", f"{_ROOT}/pendingAckStats/{_TOPIC}/{{subscription}}", pending_ack_stats, _TENANT),
    RestRoute(
        "GET",
        f"{_ROOT}/positionStatsInPendingAck/{_TOPIC}/{{subscription}}/{{ledger}}/{{entry}}",
        position_in_pending_ack,
        _TENANT,
    ),
    RestRoute("POST", f"{_ROOT}/abortTransaction/{_TXN}", abort, _SUPER),
)
