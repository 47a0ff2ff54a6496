"""SUBSCRIBE, FLOW, REDELIVER_UNACKNOWLEDGED_MESSAGES, UNSUBSCRIBE and CLOSE_CONSUMER."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from magnetar.base.errors import TopicNotFound
from magnetar.ledger.cursors.cursor import Start
from magnetar.pulsar.admission import (
    check_consumer,
    check_open,
    check_schema,
    check_subscribe_rate,
    check_subscription,
)
from magnetar.pulsar.connection import Consuming
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.consumer import Consumer
from magnetar.pulsar.dispatch.keys import Division, check_count
from magnetar.pulsar.dispatch.wanted import Wanted
from magnetar.pulsar.errors import (
    BadCommand,
    ConsumerAssignError,
    NotAllowed,
    NotAuthorized,
    PulsarError,
)
from magnetar.pulsar.names import PulsarName
from magnetar.pulsar.route import success
from magnetar.pulsar.settings import PulsarSettings
from magnetar.pulsar.topic import PulsarTopic
from magnetar.wire.pulsar.pulsar_pb2 import (
    CommandCloseConsumer,
    CommandFlow,
    CommandRedeliverUnacknowledgedMessages,
    CommandSubscribe,
    CommandUnsubscribe,
    KeySharedMode,
    MessageIdData,
    ServerError,
)

if TYPE_CHECKING:
    from magnetar.pulsar.connection import PulsarConnection

_INT64 = 1 << 63
_RANGES_AT_ONCE = 1024
MAX_IDS = 25_000
"""Of one command; clients name a thousand at a time."""
_IDS_AT_ONCE = 1000


def subscribe(
    connection: PulsarConnection, command: CommandSubscribe, entry: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Let a consumer in; it gets messages as far as it gives permits."""
    if command.consumer_id in connection.consumers:
        connection.answer(success(command.request_id))
        return None
    return connection.making_consumers.begin(command.consumer_id, lambda: _subscribe(connection, command))


async def _subscribe(connection: PulsarConnection, command: CommandSubscribe) -> None:
    services = connection.services
    name = PulsarName.parse(command.topic)
    if not command.subscription:
        # Pulsar's number for a name that cannot be.
        raise PulsarError("Empty subscription name", ServerError.ProducerBusy)
    if connection.access is not None and not connection.access.consumes(name.topic, command.subscription):
        raise NotAuthorized.client("subscribe", name.topic)
    if await services.topics.known(name) is None and not command.force_topic_creation:
        raise TopicNotFound(f"Topic {name} does not exist")
    if command.read_compacted and not name.persistent:
        raise NotAllowed("readCompacted only valid on persistent topics")
    if command.read_compacted and command.subType not in (SubType.Exclusive, SubType.Failover):
        raise NotAllowed("readCompacted only allowed on failover or exclusive subscriptions")
    ranges = await _ranges(command)
    topic = await services.topics.any(name, create=True)
    schema = command.schema if command.HasField("schema") else None
    await check_schema(services, topic.topic.name, schema, produces=False)
    await services.schemas.for_consumer(topic.topic.name, schema, connection.role)
    check_subscription(services, topic, command.subscription, connection.role, durable=command.durable)
    check_consumer(topic, command.subscription)
    wanted = await services.groups.shares.as_linked(topic, _wanted(connection, command))
    subscription = await topic.subscription(wanted)
    consumer = Consumer(
        connection,
        command.consumer_id,
        command.consumer_name or services.producer_name(),
        topic.partition,
        command.priority_level,
        ranges,
        command.keySharedMeta.allowOutOfOrderDelivery,
        command.consumer_epoch if command.HasField("consumer_epoch") else None,
        {pair.key: pair.value for pair in command.metadata},
        services.clock(),
        connection.role,
        command.read_compacted,
    )
    try:
        check_open(services.topics, topic)
        check_consumer(topic, command.subscription)
        check_subscribe_rate(topic, consumer, asyncio.get_running_loop().time())
        subscription.check(consumer)
    except PulsarError:
        topic.left(subscription)
        raise
    connection.consumers[command.consumer_id] = Consuming(consumer, subscription, topic)
    connection.answer(success(command.request_id))
    subscription.add(consumer)
    subscription.tell_end()


def _wanted(connection: PulsarConnection, command: CommandSubscribe) -> Wanted:
    place = None
    if command.HasField("start_message_id") and not command.durable:
        # The entry that is named comes again: the client knows which of its messages it has had.
        place = place_of(command.start_message_id)
    earliest = command.initialPosition == CommandSubscribe.Earliest
    return Wanted(
        command.subscription,
        command.subType,
        command.durable,
        Start.earliest if earliest else Start.latest,
        place,
        command.start_message_rollback_duration_sec * 1000,
        division=_division(connection, command),
        any_order=command.keySharedMeta.allowOutOfOrderDelivery,
        properties={pair.key: pair.value for pair in command.subscription_properties},
    )


def _division(connection: PulsarConnection, command: CommandSubscribe) -> Division:
    if command.keySharedMeta.keySharedMode == KeySharedMode.STICKY:
        return Division.RANGES
    settings = connection.services.broker.settings.of(PulsarSettings)
    return Division.RING if settings.subscription_key_shared_use_consistent_hashing else Division.HALVES


async def _ranges(command: CommandSubscribe) -> tuple[tuple[int, int], ...]:
    """Return the hashes that a consumer of Key_Shared brings, or that alone a reader wants."""
    if (
        command.subType not in (SubType.Key_Shared, SubType.Exclusive)
        or command.keySharedMeta.keySharedMode != KeySharedMode.STICKY
    ):
        return ()
    check_count(len(command.keySharedMeta.hashRanges))
    ranges: list[tuple[int, int]] = []
    for each in command.keySharedMeta.hashRanges:
        ranges.append((each.start, each.end))
        if len(ranges) % _RANGES_AT_ONCE == 0:
            await asyncio.sleep(0)  # 65,536 take tens of milliseconds in all
    if not ranges and command.subType == SubType.Key_Shared:
        raise ConsumerAssignError("Ranges for KeyShared policy must not be empty.")
    return tuple(ranges)


def place_of(message_id: MessageIdData) -> tuple[int, int]:
    """Return ledger and entry, as the signed numbers that clients mean: -1:-1 is the earliest message."""
    return _signed(message_id.ledgerId), _signed(message_id.entryId)


def check_ids(count: int) -> None:
    """Raise `BadCommand` for more ids than are gone through for one command."""
    if count > MAX_IDS:
        raise BadCommand(f"{count} message ids in a command; {MAX_IDS} may be")


def _signed(number: int) -> int:
    return number - 2 * _INT64 if number >= _INT64 else number


def flow(connection: PulsarConnection, command: CommandFlow, entry: memoryview) -> None:
    """The consumer has room for more."""
    consuming = connection.consumers.get(command.consumer_id)
    if consuming is not None and command.messagePermits > 0:
        consuming.consumer.flowed_ms = connection.services.clock()
        consuming.subscription.flow(consuming.consumer, command.messagePermits)


def redeliver(
    connection: PulsarConnection, command: CommandRedeliverUnacknowledgedMessages, entry: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Send again what a consumer did not acknowledge: what it names, or everything."""
    check_ids(len(command.message_ids))
    consuming = connection.consumers.get(command.consumer_id)
    if consuming is None:
        return None
    if len(command.message_ids) > _IDS_AT_ONCE:
        return _redeliver_slowly(connection, command, consuming)
    _redeliver(consuming, command, list(map(place_of, command.message_ids)))
    return None


def _redeliver(
    consuming: Consuming, command: CommandRedeliverUnacknowledgedMessages, places: Sequence[tuple[int, int]]
) -> None:
    epoch = command.consumer_epoch if command.HasField("consumer_epoch") else None
    consuming.subscription.redeliver(consuming.consumer, places, epoch)


async def _redeliver_slowly(
    connection: PulsarConnection, command: CommandRedeliverUnacknowledgedMessages, consuming: Consuming
) -> None:
    """Do the same with turns for others before it, if the consumer is still there then."""
    places: list[tuple[int, int]] = []
    for message_id in command.message_ids:
        places.append(place_of(message_id))
        if len(places) % _IDS_AT_ONCE == 0:
            await asyncio.sleep(0)
    if connection.consumers.get(command.consumer_id) is consuming:
        _redeliver(consuming, command, places)


async def unsubscribe(connection: PulsarConnection, command: CommandUnsubscribe, entry: memoryview) -> None:
    """End a subscription with all its state."""
    consuming = consumer_of(connection, command.consumer_id)
    if not command.force:
        consuming.subscription.check_unsubscribe()
    consuming.subscription.remove(consuming.consumer)
    del connection.consumers[command.consumer_id]
    if consuming.subscription.name in consuming.topic.subscriptions:
        topic, name = consuming.topic, consuming.subscription.name
        if isinstance(topic, PulsarTopic):
            await topic.unsubscribe(name)
        else:
            topic.unsubscribe(name)
    connection.answer(success(command.request_id))


def close_consumer(connection: PulsarConnection, command: CommandCloseConsumer, entry: memoryview) -> None:
    """Let a consumer go; what it had not acknowledged is for others."""
    connection.making_consumers.close(command.consumer_id)
    consuming = connection.consumers.pop(command.consumer_id, None)
    if consuming is not None:
        consuming.subscription.remove(consuming.consumer)
        consuming.topic.left(consuming.subscription)
    connection.answer(success(command.request_id))


def consumer_of(connection: PulsarConnection, consumer_id: int) -> Consuming:
    """Return a consumer of the connection; raise ``PulsarError``."""
    consuming = connection.consumers.get(consumer_id)
    if consuming is None:
        raise PulsarError(f"Consumer {consumer_id} not found", ServerError.ConsumerNotFound)
    return consuming
