"""ACK: messages are done with. A client that acknowledges what is not there gets no error, unless it asks.

What one command asks is bounded by what is stored: of a batch's *ack set* no more is looked at than the batch has
messages, and very many ids give the loop a turn now and then. (Pulsar takes a set of any length as it comes.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from magnetar.base.errors import BrokerError
from magnetar.coordination.transactions import Ack, TxnId, TxnSubscription
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.formats.ack_sets import set_of
from magnetar.pulsar.connection import Consuming
from magnetar.pulsar.dispatch.base import AnySubscription
from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.deliveries import Place
from magnetar.pulsar.dispatch.shared import Shared
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.errors import NotAllowed, PulsarError, code_for
from magnetar.pulsar.handlers.consume import check_ids, place_of
from magnetar.pulsar.handlers.transactions import service_of
from magnetar.pulsar.topic import PulsarTopic
from magnetar.records.errors import RecordsError
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, CommandAck, MessageIdData, ServerError

if TYPE_CHECKING:
    from magnetar.pulsar.connection import PulsarConnection

_AT_ONCE = 500  # ids that are done in one go: a millisecond or so
_WORDS_AT_ONCE = 10_000  # of ack sets, likewise
_TURN_S = 0.002  # after which others have a turn


def ack(
    connection: PulsarConnection, command: CommandAck, entry: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Be done with messages, at once where nothing has to be looked up and it does not take long."""
    check_ids(len(command.message_id))
    consuming = connection.consumers.get(command.consumer_id)
    if consuming is None:
        _answer(connection, command, None, _gone())
    elif command.HasField("txnid_most_bits") or command.HasField("txnid_least_bits"):
        return _acknowledge_in_transaction(connection, command, consuming)
    elif len(command.message_id) > _AT_ONCE or not _is_quick(consuming.subscription, command):
        return _acknowledge_slowly(connection, command, consuming)
    else:
        failed: Exception | None = None
        acknowledge = _way(consuming.subscription, command)
        for message_id in command.message_id:
            place = place_of(message_id)
            size = consuming.subscription.batch_size(place) if message_id.ack_set else None
            failed = _try(acknowledge, consuming.consumer, place, _remaining(message_id, size)) or failed
        _answer(connection, command, consuming, failed)
    return None


def _is_quick(subscription: AnySubscription, command: CommandAck) -> bool:
    """Whether no batch's size has to be looked up, and ack sets are not large all together."""
    words = 0
    for message_id in command.message_id:
        if message_id.ack_set:
            size = subscription.batch_size(place_of(message_id))
            if size is None:
                return False
            words += min(len(message_id.ack_set), size // 64 + 1)  # further ones are not looked at
            if words > _WORDS_AT_ONCE:
                return False
    return True


async def _acknowledge_slowly(
    connection: PulsarConnection, command: CommandAck, consuming: Consuming
) -> None:
    """Do the same with turns for others, and with sizes of batches from storage."""
    subscription, begun = consuming.subscription, consuming.subscription.begun_anew
    failed: Exception | None = None
    acknowledge = _way(subscription, command)
    time = asyncio.get_running_loop().time
    until = time() + _TURN_S
    for message_id in command.message_id:
        if time() > until:
            await asyncio.sleep(0)
            until = time() + _TURN_S
            if consuming.topic.subscriptions.get(subscription.name) is not subscription:
                return  # it ended meanwhile
            if subscription.begun_anew != begun:  # a SEEK that came behind wants these messages again
                _answer(connection, command, None, _gone())
                return
        place = place_of(message_id)
        size = None
        if message_id.ack_set and (size := subscription.batch_size(place)) is None:
            try:
                size = await subscription.stored_batch_size(place)
            except (PulsarError, LedgerError, RecordsError) as error:
                failed = error
                continue
            if subscription.begun_anew != begun:
                _answer(connection, command, None, _gone())
                return
        failed = _try(acknowledge, consuming.consumer, place, _remaining(message_id, size)) or failed
    _answer(connection, command, consuming, failed)


async def _acknowledge_in_transaction(
    connection: PulsarConnection, command: CommandAck, consuming: Consuming
) -> None:
    """Set messages aside until their transaction ends; the answer says that it is kept.

    Of one command all is set aside or nothing.
    """
    failed: Exception | None = None
    try:
        await _set_aside(connection, command, consuming)
    except (PulsarError, BrokerError, LedgerError, RecordsError) as error:
        failed = error
    _answer(connection, command, consuming, failed)


async def _set_aside(connection: PulsarConnection, command: CommandAck, consuming: Consuming) -> None:
    service, txn = service_of(connection), TxnId(command.txnid_most_bits, command.txnid_least_bits)
    subscription, topic = consuming.subscription, consuming.topic
    if not isinstance(subscription, Subscription) or not isinstance(topic, PulsarTopic):
        raise NotAllowed("messages that are not kept cannot be acknowledged in a transaction")
    cumulative = command.ack_type == CommandAck.Cumulative
    if cumulative and isinstance(subscription, Shared):
        raise NotAllowed("Cumulative ack is not allowed on a shared subscription")
    begun = subscription.begun_anew
    acks: list[Ack] = []
    time = asyncio.get_running_loop().time
    until = time() + _TURN_S
    for message_id in command.message_id:
        if time() > until:
            await asyncio.sleep(0)
            until = time() + _TURN_S
        place = place_of(message_id)
        remaining, size = None, 0
        if message_id.ack_set:
            known = subscription.batch_size(place)
            size = await subscription.stored_batch_size(place) if known is None else known
            remaining = _remaining(message_id, size)
        acks.append(Ack(*place, remaining or None, size, cumulative))
    if subscription.begun_anew != begun or topic.subscriptions.get(subscription.name) is not subscription:
        raise _gone()
    subscription.set_aside(consuming.consumer, txn, acks)
    where = TxnSubscription(topic.topic.kafka_name, topic.index, subscription.name)
    try:
        await service.anywhere.acknowledge(txn, where, acks)
    except BrokerError:
        await subscription.give_back(txn, acks)
        raise


def _gone() -> PulsarError:
    return PulsarError("Consumer not found", ServerError.ConsumerNotFound)


def _way(subscription: AnySubscription, command: CommandAck) -> Callable[[Consumer, Place, int | None], None]:
    cumulative = command.ack_type == CommandAck.Cumulative
    return subscription.acknowledge_up_to if cumulative else subscription.acknowledge


def _remaining(message_id: MessageIdData, size: int | None) -> int | None:
    return None if size is None else set_of(message_id.ack_set, size)


def _try(
    acknowledge: Callable[[Consumer, Place, int | None], None],
    consumer: Consumer,
    place: Place,
    remaining: int | None,
) -> Exception | None:
    """Be done with what can be done with; give what stood against it."""
    try:
        acknowledge(consumer, place, remaining)
    except (PulsarError, LedgerError) as error:
        return error
    return None


def _answer(
    connection: PulsarConnection, command: CommandAck, consuming: Consuming | None, error: Exception | None
) -> None:
    if not command.HasField("request_id"):
        return
    if consuming is not None:
        consuming.subscription.flush_acks()
    answer = BaseCommand(type=BaseCommand.ACK_RESPONSE)
    answer.ackResponse.consumer_id = command.consumer_id
    answer.ackResponse.request_id = command.request_id
    if error is not None:
        answer.ackResponse.error = code_for(error)
        answer.ackResponse.message = str(error)
    connection.answer(answer)
