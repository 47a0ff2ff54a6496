"""SEEK, GET_LAST_MESSAGE_ID and CONSUMER_STATS: where a subscription is, and where it shall be."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from magnetar.ledger.formats.ack_sets import set_of
from magnetar.ledger.looking import looked_at
from magnetar.ledger.port import Position, StoredEntry
from magnetar.pulsar.connection import Consuming
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.subscription import Subscription
from magnetar.pulsar.errors import PulsarError, SubscriptionNotFound
from magnetar.pulsar.handlers.consume import consumer_of, place_of
from magnetar.pulsar.non_persistent import NonPersistentTopic
from magnetar.pulsar.route import success
from magnetar.pulsar.topic import PulsarTopic
from magnetar.records.copied import copied_from
from magnetar.records.entry import decode_entry
from magnetar.records.pulsar_metadata import MessageMetadata
from magnetar.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandConsumerStats,
    CommandGetLastMessageId,
    CommandSeek,
    MessageIdData,
    ServerError,
)

if TYPE_CHECKING:
    from magnetar.pulsar.connection import PulsarConnection

_UINT64 = (1 << 64) - 1


def seek(connection: PulsarConnection, command: CommandSeek, entry: memoryview) -> Coroutine[Any, Any, None]:
    """Begin a subscription anew; as in Pulsar all its consumers are sent away first, and come back."""
    return _seek(connection, command, consumer_of(connection, command.consumer_id))


async def _seek(connection: PulsarConnection, command: CommandSeek, consuming: Consuming) -> None:
    topic, subscription = consuming.topic, consuming.subscription
    if isinstance(topic, NonPersistentTopic):  # there is nothing to move to
        connection.answer(success(command.request_id))
        return
    assert isinstance(subscription, Subscription)
    if command.HasField("message_publish_time"):
        position = await topic.places.at(command.message_publish_time)
    elif command.HasField("message_id"):
        position = await topic.places.of(place_of(command.message_id))
        subscription.acks.forget_part(position)
    else:
        raise PulsarError("Seek without a message id or a time", ServerError.MetadataError)
    remaining = (
        await _remaining(subscription, position, command.message_id) if command.HasField("message_id") else 0
    )
    if topic.subscriptions.get(subscription.name) is not subscription:
        raise SubscriptionNotFound(f"Subscription {subscription.name} has ended meanwhile")
    async with connection.services.groups.seeking(topic, subscription):
        topic.seek(subscription, position)
        if remaining:
            subscription.acks.begin_within(position, remaining)
    connection.answer(success(command.request_id))


async def _remaining(subscription: Subscription, position: Position, message_id: MessageIdData) -> int:
    """Return which messages of the entry at ``position`` shall come again, 0 for all of them."""
    if not message_id.ack_set or position != place_of(message_id):
        return 0  # behind the end, or behind an entry that was let go of, there is nothing to begin within
    return set_of(message_id.ack_set, await subscription.stored_batch_size(position))


def last_message_id(
    connection: PulsarConnection, command: CommandGetLastMessageId, entry: memoryview
) -> Coroutine[Any, Any, None]:
    """Tell the id of the topic's last message, and up to where the consumer's subscription is done."""
    return _last_message_id(connection, command, consumer_of(connection, command.consumer_id))


async def _last_message_id(
    connection: PulsarConnection, command: CommandGetLastMessageId, consuming: Consuming
) -> None:
    topic, subscription = consuming.topic, consuming.subscription
    if isinstance(topic, NonPersistentTopic):
        raise PulsarError("getLastMessageId is not supported on non-persistent topics")
    assert isinstance(subscription, Subscription)
    answer = BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE)
    response = answer.getLastMessageIdResponse
    response.request_id = command.request_id
    compacted = consuming.consumer.read_compacted
    await fill_last_message_id(response.last_message_id, topic, compacted=compacted)
    subscription.flush_acks()
    mark = subscription.cursor.mark_delete_position
    response.consumer_mark_delete_position.ledgerId = mark.ledger_id & _UINT64
    response.consumer_mark_delete_position.entryId = mark.entry_id & _UINT64
    connection.answer(answer)


async def fill_last_message_id(filled: MessageIdData, topic: PulsarTopic, *, compacted: bool = False) -> None:
    """Write the id of a topic's last message, as a reader of what is compacted sees it or any; -1:-1 for none."""
    last = await topic.places.last_message(compacted=compacted)
    filled.partition = topic.partition
    if last is None:
        filled.ledgerId = filled.entryId = _UINT64
        return
    filled.ledgerId, filled.entryId = last.ledger_id, last.entry_id
    message = await looked_at(last, _message)
    if message.batched or message.entry_format != "pulsar":
        there = copied_from(last.data).there if last.copy >= 0 else b""
        messages = int.from_bytes(there, "little").bit_length() or message.num_messages_in_batch
        filled.batch_index = messages - 1
        filled.batch_size = message.num_messages_in_batch


def _message(entry: StoredEntry) -> MessageMetadata:
    return decode_entry(entry.data).message


def consumer_stats(connection: PulsarConnection, command: CommandConsumerStats, entry: memoryview) -> None:
    """Answer with a consumer's figures."""
    consuming = connection.consumers.get(command.consumer_id)
    answer = BaseCommand(type=BaseCommand.CONSUMER_STATS_RESPONSE)
    response = answer.consumerStatsResponse
    response.request_id = command.request_id
    if consuming is None:
        response.error_code = ServerError.ConsumerNotFound
        response.error_message = f"Consumer {command.consumer_id} not found"
        connection.answer(answer)
        return
    consumer, subscription = consuming.consumer, consuming.subscription
    since_s = max((connection.services.clock() - consumer.connected_ms) / 1000, 1.0)
    response.msgRateOut = consumer.delivered_messages / since_s
    response.msgThroughputOut = consumer.delivered_bytes / since_s
    response.msgRateRedeliver = consumer.redelivered / since_s
    response.messageAckRate = consumer.acknowledged / since_s
    response.msgRateExpired = subscription.expired / since_s
    response.consumerName = consumer.name
    response.availablePermits = max(consumer.permits, 0)
    response.unackedMessages = consumer.unacked
    response.blockedConsumerOnUnackedMsgs = subscription.holds_back(consumer)
    response.address = connection.address
    response.connectedSince = datetime.fromtimestamp(consumer.connected_ms / 1000, UTC).isoformat()
    response.type = SubType.Name(subscription.sub_type)
    response.msgBacklog = subscription.backlog
    connection.answer(answer)
