"""NEW_TXN, ADD_PARTITION_TO_TXN, ADD_SUBSCRIPTION_TO_TXN and END_TXN: what clients ask a transaction coordinator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from magnetar.coordination.transactions import InvalidTxnStatus, TxnId, TxnSubscription
from magnetar.pulsar.errors import NotAllowed, NotAuthorized
from magnetar.pulsar.names import PulsarName
from magnetar.pulsar.route import Refusal
from magnetar.pulsar.settings import PulsarSettings
from magnetar.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandAddPartitionToTxn,
    CommandAddSubscriptionToTxn,
    CommandEndTxn,
    CommandNewTxn,
    CommandTcClientConnectRequest,
    ServerError,
    TxnAction,
)

if TYPE_CHECKING:
    from magnetar.pulsar.connection import PulsarConnection
    from magnetar.pulsar.transactions.service import TransactionService

_MAX_TIMEOUT_MS = 1 << 53
MOST_AT_ONCE = 1000
"""Topics, or subscriptions, that one command adds: names are looked at at a stretch. Clients add one at a time."""


def service_of(connection: PulsarConnection) -> TransactionService:
    """Return what serves transactions; raise ``NotAllowed`` where they are switched off."""
    found = connection.services.transactions
    if found is None:
        raise NotAllowed("Transaction manager is not started or not enabled")
    return found


async def connect(
    connection: PulsarConnection, command: CommandTcClientConnectRequest, entry: memoryview
) -> None:
    """Tell a client whether the coordinator that it looked up is here."""
    coordinator = service_of(connection).coordinator
    await coordinator.loaded()
    coordinator.check(command.tc_id)
    answer = BaseCommand(type=BaseCommand.TC_CLIENT_CONNECT_RESPONSE)
    answer.tcClientConnectResponse.request_id = command.request_id
    connection.answer(answer)


async def new_txn(connection: PulsarConnection, command: CommandNewTxn, entry: memoryview) -> None:
    """Begin a transaction."""
    coordinator = service_of(connection).coordinator
    settings = connection.services.broker.settings.of(PulsarSettings)
    txn = await coordinator.begin(
        command.tc_id,
        min(command.txn_ttl_millis, _MAX_TIMEOUT_MS),
        connection.role,
        settings.max_active_transactions_per_coordinator,
    )
    _answer(connection, BaseCommand.NEW_TXN_RESPONSE, "newTxnResponse", command.request_id, txn)


async def add_partition(
    connection: PulsarConnection, command: CommandAddPartitionToTxn, entry: memoryview
) -> None:
    """Have topics be of a transaction, before its messages come."""
    service, txn = service_of(connection), TxnId(command.txnid_most_bits, command.txnid_least_bits)
    _check_owner(connection, service, txn)
    _check_count(len(command.partitions))
    names = [PulsarName.parse(each) for each in command.partitions]
    for name in names:
        if connection.access is not None and not connection.access.produces(name.topic):
            raise NotAuthorized.client("Produce", name.topic)
        if not name.persistent:
            raise NotAllowed(f"{name} keeps no messages, and so none of transactions")
    partitions = {
        service.partition_of(name): spelled for name, spelled in zip(names, command.partitions, strict=True)
    }
    await service.coordinator.add_partitions(txn, partitions)
    await asyncio.gather(*(service.participants.begin(txn, where) for where in partitions))
    late = [where for where in partitions if not service.coordinator.is_open(txn, where)]
    if late:
        # It ended meanwhile, and those who have the partitions may have heard of that first.
        await service.participants.end(txn, committed=False, partitions=late, acks={})
        raise InvalidTxnStatus(f"transaction {txn} ended while it was given topics")
    _answer(
        connection,
        BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
        "addPartitionToTxnResponse",
        command.request_id,
        txn,
    )


async def add_subscription(
    connection: PulsarConnection, command: CommandAddSubscriptionToTxn, entry: memoryview
) -> None:
    """Have subscriptions be of a transaction, before it acknowledges."""
    service, txn = service_of(connection), TxnId(command.txnid_most_bits, command.txnid_least_bits)
    _check_owner(connection, service, txn)
    _check_count(len(command.subscription))
    subscriptions = {}
    for each in command.subscription:
        name = PulsarName.parse(each.topic)
        if connection.access is not None and not connection.access.consumes(name.topic, each.subscription):
            raise NotAuthorized.client("subscribe", name.topic)
        subscriptions[TxnSubscription(*service.partition_of(name), each.subscription)] = each.topic
    await service.coordinator.add_subscriptions(txn, subscriptions)
    _answer(
        connection,
        BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
        "addSubscriptionToTxnResponse",
        command.request_id,
        txn,
    )


async def end_txn(connection: PulsarConnection, command: CommandEndTxn, entry: memoryview) -> None:
    """Commit or abort; the answer says that it counts everywhere."""
    service, txn = service_of(connection), TxnId(command.txnid_most_bits, command.txnid_least_bits)
    _check_owner(connection, service, txn)
    await service.coordinator.end(txn, committed=command.txn_action == TxnAction.COMMIT)
    _answer(connection, BaseCommand.END_TXN_RESPONSE, "endTxnResponse", command.request_id, txn)


def _check_count(count: int) -> None:
    if count > MOST_AT_ONCE:
        raise NotAllowed(f"at most {MOST_AT_ONCE} are added to a transaction at once, not {count}")


def _check_owner(connection: PulsarConnection, service: TransactionService, txn: TxnId) -> None:
    """Raise ``NotAllowed`` unless the client began the transaction, or may do everything (PIP-301)."""
    owner = service.coordinator.find(txn).owner
    if connection.access is not None and owner != connection.role:
        raise NotAllowed(
            f"Client (role {connection.role}) is neither the owner of the transaction nor a super user"
        )


def _answer(
    connection: PulsarConnection, kind: BaseCommand.Type, field: str, request_id: int, txn: TxnId
) -> None:
    answer = BaseCommand(type=kind)
    body: Any = getattr(answer, field)
    body.request_id = request_id
    body.txnid_most_bits, body.txnid_least_bits = txn
    connection.answer(answer)


def refusal(answer_type: BaseCommand.Type, field: str) -> Refusal:
    """Return how one of the commands is refused: with its own answer."""

    def refused(command: Any, code: ServerError, message: str) -> BaseCommand | None:
        answer = BaseCommand(type=answer_type)
        body = getattr(answer, field)
        body.request_id = command.request_id
        body.error = code
        body.message = message
        if hasattr(command, "txnid_most_bits"):
            body.txnid_most_bits = command.txnid_most_bits
            body.txnid_least_bits = command.txnid_least_bits
        elif answer_type == BaseCommand.NEW_TXN_RESPONSE:
            # By this Pulsar's client in Java finds who asked; who does not hear of it waits, and looks nowhere else.
            body.txnid_most_bits = command.tc_id
        return answer

    return refused
