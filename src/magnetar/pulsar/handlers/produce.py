"""PRODUCER, SEND and CLOSE_PRODUCER."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from magnetar.coordination.transactions import TxnId, TxnPartition
from magnetar.ledger.cursors.cursor import Start
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.port import NOWHERE, Pending
from magnetar.pulsar import backlog
from magnetar.pulsar.admission import (
    check_encryption,
    check_open,
    check_producer,
    check_schema,
    check_subscription,
)
from magnetar.pulsar.connection import Producing, Receipt
from magnetar.pulsar.dispatch.base import SubType
from magnetar.pulsar.dispatch.wanted import Wanted
from magnetar.pulsar.errors import (
    BadCommand,
    NotAllowed,
    NotAuthorized,
    PulsarError,
    SubscriptionNotFound,
    TopicTerminated,
    code_for,
)
from magnetar.pulsar.handlers.transactions import service_of
from magnetar.pulsar.names import PulsarName
from magnetar.pulsar.non_persistent import PLACE, NonPersistentTopic
from magnetar.pulsar.producers import Producer
from magnetar.pulsar.route import success
from magnetar.pulsar.settings import PulsarSettings
from magnetar.pulsar.topic import PulsarTopic
from magnetar.records.errors import InvalidRecord, RecordsError
from magnetar.records.pulsar_entries import Sent, open_send
from magnetar.records.pulsar_metadata import MAX_MESSAGES
from magnetar.wire.pulsar import encode
from magnetar.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandCloseProducer,
    CommandProducer,
    CommandSend,
    MessageMetadata,
    ServerError,
)

if TYPE_CHECKING:
    from magnetar.pulsar.connection import PulsarConnection

_NO_BOUND = 1 << 62


def producer(
    connection: PulsarConnection, command: CommandProducer, entry: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Make a producer; its client may send once it is told so."""
    known = connection.producers.get(command.producer_id)
    if known is not None:
        _tell(connection, command.request_id, known, ready=True)
        return None
    return connection.making_producers.begin(command.producer_id, lambda: _produce(connection, command))


async def _produce(connection: PulsarConnection, command: CommandProducer) -> None:
    services = connection.services
    name = PulsarName.parse(command.topic)
    if connection.access is not None and not connection.access.produces(name.topic):
        raise NotAuthorized.client("Produce", name.topic)
    first = command.initial_subscription_name
    if first and connection.access is not None and not connection.access.consumes(name.topic, first):
        raise NotAuthorized.client("subscribe", name.topic)
    if command.txn_enabled:
        service_of(connection)
    topic = await services.topics.any(name, create=True)
    if isinstance(topic, PulsarTopic):
        await backlog.check_producer(topic, services.clock())
    policies = services.broker.topic_policies(topic.topic)
    check_encryption(policies, topic, is_encrypted=command.encrypted)
    schema = command.schema if command.HasField("schema") else None
    await check_schema(services, topic.topic.name, schema, produces=True)
    version = await services.schemas.for_producer(topic.topic.name, schema, connection.role)
    if first and isinstance(topic, PulsarTopic) and first not in topic.subscriptions:
        try:
            check_subscription(services, topic, first, connection.role, durable=True)
        except SubscriptionNotFound:
            raise NotAllowed(
                "Could not create the initial subscription due to the auto subscription creation is not allowed."
            ) from None
        await topic.subscription(Wanted(first, SubType.Exclusive, True, Start.earliest))
    given = bool(command.producer_name) and command.user_provided_producer_name
    made = Producer(
        connection,
        command.producer_id,
        command.producer_name or services.producer_name(),
        command.epoch,
        given,
        command.producer_access_mode,
        command.topic_epoch if command.HasField("topic_epoch") else None,
        version,
        {pair.key: pair.value for pair in command.metadata},
        connection.role,
        services.clock(),
    )
    check_open(services.topics, topic)
    check_producer(topic, made.name)
    _check_not_terminated(topic)
    producing = Producing(made, topic)
    turn = topic.producers.add(made)
    try:
        if turn is not None:
            await _wait(connection, command.request_id, producing, turn)
        if isinstance(topic, PulsarTopic):
            await topic.keep_epoch(made)
        _check_not_terminated(topic)
    except BaseException:  # it is closed, fenced, or its client is gone: nobody waits for it any more
        topic.producers.remove(made)
        raise
    if topic.producers.by_name.get(made.name) is not made:
        raise PulsarError("Producer was sent away before it began", ServerError.ServiceNotReady)
    connection.producers[command.producer_id] = producing
    connection.sent_away.discard(command.producer_id)
    _tell(connection, command.request_id, producing, ready=True)


def _check_not_terminated(topic: PulsarTopic | NonPersistentTopic) -> None:
    if isinstance(topic, PulsarTopic) and topic.log.terminated is not None:
        raise TopicTerminated("Topic was already terminated")
    _check_not_migrating(topic)


def _check_not_migrating(topic: PulsarTopic | NonPersistentTopic) -> None:
    if topic.topic.config.is_migrating:  # clients connect again until it is over
        raise PulsarError(
            "Topic is being migrated: another cluster takes what is written to it",
            ServerError.ServiceNotReady,
        )


async def _wait(
    connection: PulsarConnection, request_id: int, producing: Producing, turn: asyncio.Future[None]
) -> None:
    """Tell the client to be patient, until the topic is its own."""
    _tell(connection, request_id, producing, ready=False)
    with connection.parked():
        await turn


def _tell(connection: PulsarConnection, request_id: int, producing: Producing, *, ready: bool) -> None:
    made, dedup = producing.producer, producing.topic.dedup
    answer = BaseCommand(type=BaseCommand.PRODUCER_SUCCESS)
    done = answer.producer_success
    done.request_id = request_id
    done.producer_name = made.name
    done.last_sequence_id = -1 if dedup is None else dedup.last_sequence_id(made.name)
    done.schema_version = made.schema_version
    done.producer_ready = ready
    if made.topic_epoch is not None:
        done.topic_epoch = made.topic_epoch
    connection.answer(answer)


def send(connection: PulsarConnection, command: CommandSend, entry: memoryview) -> None:
    """Store what a producer sends; its receipt follows once it is durable."""
    producing = connection.producers.get(command.producer_id)
    if producing is None:
        if command.producer_id in connection.sent_away:
            return  # it was on its way when its producer was closed: the client sends it again
        raise BadCommand(f"a message of producer {command.producer_id}, which is not there")
    topic, made = producing.topic, producing.producer
    try:
        _check_size(connection, entry, topic.limits.max_message_bytes)
        sent = open_send(
            entry, num_messages=command.num_messages if command.HasField("num_messages") else None
        )
        if sent.messages > MAX_MESSAGES:
            raise NotAllowed(f"A batch of {sent.messages} messages, {MAX_MESSAGES} may be")
        metadata = _check_metadata(sent)
        if not metadata.encryption_keys and _must_encrypt(connection, topic):
            raise PulsarError("Messages must be encrypted", ServerError.MetadataError)
        sent = _in_transaction(connection, command, sent, topic)
        if isinstance(topic, NonPersistentTopic):
            _pass_on(connection, command, sent, metadata, producing)
        else:
            _check_delay(metadata, topic.max_delay_ms)
            _store(connection, command, sent, topic, made)
        if topic.publish_rate is not None:
            topic.publish_rate.spend(sent.messages, len(sent.framed))
            if (wait_s := topic.publish_rate.wait_s()) > 0:
                connection.throttle(wait_s)
    except (RecordsError, LedgerError, PulsarError) as error:
        frame = _refused(command, error)
        connection.receipt(Receipt(None, lambda _: frame))


def _in_transaction(
    connection: PulsarConnection, command: CommandSend, sent: Sent, topic: PulsarTopic | NonPersistentTopic
) -> Sent:
    """Return the message with the transaction that its command names in its metadata, if it names one.

    Raises ``NotAllowed`` unless that is open and has the topic: none that comes late hangs there.
    """
    said = sent.metadata.txnid_most_bits, sent.metadata.txnid_least_bits
    in_command = command.HasField("txnid_most_bits") or command.HasField("txnid_least_bits")
    if not in_command and said == (None, None):
        return sent
    service = service_of(connection)
    txn = TxnId(command.txnid_most_bits, command.txnid_least_bits)
    if not in_command or (said != (None, None) and sent.metadata.txn != txn):
        raise NotAllowed("a message whose metadata name another transaction than its command does")
    where = TxnPartition(topic.topic.kafka_name, topic.index)
    if isinstance(topic, NonPersistentTopic) or not (
        txn in topic.open_txns or service.coordinator.is_open(txn, where)
    ):
        raise NotAllowed(f"transaction {txn} is not open, or {topic.name} is not of it")
    if topic.log.transactions is None:
        raise NotAllowed(f"transaction {txn} had {topic.name} before it was made anew")
    if said != (None, None):
        return sent
    from magnetar.records.pulsar_markers import in_transaction  # most brokers have no transactions

    return in_transaction(sent, txn)


def _must_encrypt(connection: PulsarConnection, topic: PulsarTopic | NonPersistentTopic) -> bool:
    return connection.services.broker.topic_policies(topic.topic).requires_encryption


def _check_metadata(sent: Sent) -> MessageMetadata:
    """Return a message's metadata, or raise what stands against it: it is read again with each delivery."""
    if sent.metadata.marker_type is not None:
        raise NotAllowed("markers are the brokers' own")
    at = 10 if bytes(sent.framed[:2]) == b"\x0e\x01" else 4
    end = at + int.from_bytes(sent.framed[at - 4 : at], "big")
    metadata = MessageMetadata()
    try:
        metadata.ParseFromString(bytes(sent.framed[at:end]))
    except DecodeError as error:
        raise InvalidRecord(f"metadata that cannot be read: {error}") from None
    if not metadata.IsInitialized():
        raise InvalidRecord("metadata without producer name, sequence id or publish time")
    if isinstance(metadata.producer_name, bytes) or isinstance(metadata.partition_key, bytes):
        raise InvalidRecord("a producer name or key that is not UTF-8")
    return metadata


def _check_delay(metadata: MessageMetadata, max_ms: int) -> None:
    if max_ms and metadata.deliver_at_time - metadata.publish_time > max_ms:
        raise NotAllowed(f"Exceeds max allowed delivery delay of {max_ms} milliseconds")


def _check_size(connection: PulsarConnection, entry: memoryview, most: int | None) -> None:
    most = min(
        connection.services.broker.settings.of(PulsarSettings).pulsar_max_message_size, most or _NO_BOUND
    )
    if len(entry) >= 10 and bytes(entry[:2]) == b"\x0e\x01":
        size = len(entry) - 10 - int.from_bytes(entry[6:10], "big")
        if size > most:
            raise NotAllowed(f"Exceed maximum message size: {size} bytes, {most} may be")


def _pass_on(
    connection: PulsarConnection,
    command: CommandSend,
    sent: Sent,
    metadata: MessageMetadata,
    producing: Producing,
) -> None:
    """Send a message on to who listens now; its receipt says no more than that."""
    topic = producing.topic
    assert isinstance(topic, NonPersistentTopic)
    topic.publish(producing.producer, sent, metadata)
    _check_not_migrating(topic)
    highest = _highest(command)
    frame = encode.send_receipt(command.producer_id, command.sequence_id, highest, PLACE, topic.partition)
    connection.receipt(Receipt(None, lambda _: frame))


def _store(
    connection: PulsarConnection, command: CommandSend, sent: Sent, topic: PulsarTopic, made: Producer
) -> None:
    highest = _highest(command)
    dedup, metadata = topic.dedup, sent.metadata
    # Of a chunked message all parts have one sequence id; it counts when the last one is there.
    counts = not metadata.is_chunk or metadata.chunk_id == metadata.num_chunks_from_msg - 1
    pending: Pending | None = None
    if dedup is None or not dedup.is_repeated(made.name, highest):
        pending = topic.publish(made, sent)
        if pending.position is NOWHERE:
            connection.wait_for_place(pending.done)
        if topic.noting is not None:
            topic.noting.note(pending, made.name, highest if counts else -1)

    def frame(error: BaseException | None) -> bytes:
        if error is not None:
            return _refused(command, error)
        position = NOWHERE if pending is None else pending.position
        return encode.send_receipt(
            command.producer_id, command.sequence_id, highest, position, topic.partition
        )

    # What is sent again is acknowledged like what was sent first, and not before it.
    done = topic.last_done if pending is None else pending.done
    connection.receipt(Receipt(done, frame, 0 if pending is None else len(sent.framed)))


def _highest(command: CommandSend) -> int:
    """Return the sequence id by which clients know a batch."""
    return max(command.highest_sequence_id, command.sequence_id)


def _refused(command: CommandSend, error: BaseException) -> bytes:
    answer = BaseCommand(type=BaseCommand.SEND_ERROR)
    refused = answer.send_error
    refused.producer_id = command.producer_id
    refused.sequence_id = _highest(command)
    refused.error = code_for(error)
    refused.message = str(error)
    return encode.frame(answer)


def close_producer(connection: PulsarConnection, command: CommandCloseProducer, entry: memoryview) -> None:
    """Let a producer go, after all that it sent is stored."""
    connection.making_producers.close(command.producer_id)
    connection.sent_away.discard(command.producer_id)
    producing = connection.producers.pop(command.producer_id, None)
    if producing is not None:
        producing.topic.producers.remove(producing.producer)
    frame = encode.frame(success(command.request_id))
    connection.receipt(Receipt(None, lambda _: frame))
