"""Pulsar's commands, each with those that must come before it: who is refused one of them gets no further."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

from magnetar.coordination.transactions import TxnId
from magnetar.pulsar.handlers import ROUTES
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, Schema, ServerError
from tests.pulsar.raw import entry, flow, frame, hello, ping, producer, send, subscribe
from tests.security.matrix.asking import Ask, Outcome
from tests.security.matrix.house import Asker, Client, House

RUBY = "persistent://red/default/ruby"
_COORDINATORS = "persistent://pulsar/system/transaction_coordinator_assign"
_SILENT = {
    BaseCommand.AUTH_RESPONSE,
    BaseCommand.PONG,
    BaseCommand.SEND,
    BaseCommand.FLOW,
    BaseCommand.ACK,
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
}
"""Commands that have no answer of their own; what they bring about comes when it comes."""
_REFUSALS = {ServerError.AuthorizationError, ServerError.AuthenticationError}
_LAST_WORDS = 60  # turns of the loop in which what is brought about is waited for


def commands() -> Iterator[tuple[str, Ask]]:
    """Yield all ways to ask for every command."""
    for kind in ROUTES:
        for way in _WAYS.get(kind, ("",)):
            yield BaseCommand.Type.Name(kind) + (f", {way}" if way else ""), partial(_ask, kind, way)


async def _ask(kind: BaseCommand.Type, way: str, house: House, asker: Asker) -> tuple[Outcome, bytes]:
    client = Client(house.pulsar, house.pulsar_listener)
    try:
        greeting = hello()
        if asker.proof:
            greeting.connect.auth_method_name = "token"
            greeting.connect.auth_data = asker.proof.encode()
        client.send(frame(greeting))
        first = await client.frame()
        if first is None or _command(first).type != BaseCommand.CONNECTED:
            return Outcome.not_let_in, b""
        said, refused = bytearray(), False
        txn = TxnId(0, 0)
        if kind in _IN_TRANSACTION:
            txn = await house.transaction_of("root" if way == "another's" else asker.role)
        for command, content in _steps(kind, way, asker, txn):
            client.send(frame(command, content))
            for answer in await _answers(client, command):
                said += answer
                refused = refused or _is_refusal(_command(answer))
        return (Outcome.refused if refused else Outcome.answered), bytes(said)
    finally:
        client.close()
        await _turns(5)


async def _answers(client: Client, command: BaseCommand) -> list[bytes]:
    """Return what comes back: of a silent command what comes until it would have."""
    if command.type in _SILENT:
        await _turns(_LAST_WORDS)
        client.send(frame(ping()))
    found = []
    while (answer := await client.frame()) is not None:
        found.append(answer)
        if command.type not in _SILENT or _command(answer).type == BaseCommand.PONG:
            break
    return found


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _command(content: bytes) -> BaseCommand:
    size = int.from_bytes(content[:4], "big")
    return BaseCommand.FromString(content[4 : 4 + size])


def _is_refusal(answer: BaseCommand) -> bool:
    told = (
        answer.error.error,
        answer.lookupTopicResponse.error,
        answer.partitionMetadataResponse.error,
        answer.getSchemaResponse.error_code,
        answer.getOrCreateSchemaResponse.error_code,
        answer.addPartitionToTxnResponse.error,
        answer.addSubscriptionToTxnResponse.error,
    )
    of_another = (
        answer.addPartitionToTxnResponse.error,
        answer.addSubscriptionToTxnResponse.error,
        answer.endTxnResponse.error,
    )
    return bool(_REFUSALS.intersection(told)) or ServerError.NotAllowedError in of_another


# -- how each command is asked --------------------------------------------------------------------------------------

_WAYS = {
    BaseCommand.GET_TOPICS_OF_NAMESPACE: ("red's", "red's that is not there", "blue's"),
    BaseCommand.WATCH_TOPIC_LIST: ("red's", "red's that is not there", "blue's"),
    BaseCommand.PRODUCER: ("", "with a first subscription"),
    BaseCommand.GET_LAST_MESSAGE_ID: ("", "of a reader"),
    BaseCommand.LOOKUP: ("", "a coordinator"),
    BaseCommand.PARTITIONED_METADATA: ("", "coordinators"),
    BaseCommand.ADD_PARTITION_TO_TXN: ("one's own", "another's"),
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: ("one's own", "another's"),
    BaseCommand.END_TXN: ("one's own", "another's"),
}
_IN_TRANSACTION = {
    BaseCommand.ADD_PARTITION_TO_TXN,
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN,
    BaseCommand.END_TXN,
}
_NAMESPACES = {"blue's": "blue/default", "red's that is not there": "red/none"}
_AS_PRODUCER = {BaseCommand.SEND, BaseCommand.CLOSE_PRODUCER}
_AS_CONSUMER = {
    BaseCommand.FLOW,
    BaseCommand.ACK,
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
    BaseCommand.UNSUBSCRIBE,
    BaseCommand.CLOSE_CONSUMER,
    BaseCommand.SEEK,
    BaseCommand.GET_LAST_MESSAGE_ID,
    BaseCommand.CONSUMER_STATS,
}


def _steps(kind: BaseCommand.Type, way: str, asker: Asker, txn: TxnId) -> Iterator[tuple[BaseCommand, bytes]]:
    """Yield the command, after those without which it means nothing."""
    if kind in _AS_PRODUCER:
        yield producer(RUBY), b""
    if kind in _AS_CONSUMER:
        yield subscribe(RUBY, "readers", initialPosition=1, durable=way != "of a reader"), b""
    if kind is BaseCommand.CONNECT:  # has been
        return
    if kind is BaseCommand.SEND:
        yield send(), entry(b"pearl")
    elif kind is BaseCommand.SUBSCRIBE:
        yield subscribe(RUBY, "readers", initialPosition=1), b""
    elif kind is BaseCommand.PRODUCER:
        command = producer(RUBY)
        if way:
            command.producer.initial_subscription_name = "first"
        yield command, b""
    elif kind is BaseCommand.FLOW:
        yield flow(10), b""
    else:
        yield _plain(kind, way, asker, txn), b""


def _plain(kind: BaseCommand.Type, way: str, asker: Asker, txn: TxnId) -> BaseCommand:
    """Return a command with all that its fields must say, and the topic wherever one is asked for."""
    command = BaseCommand(type=kind)
    inner = getattr(command, ROUTES[kind].field)
    inner.SetInParent()
    given = {
        "topic": _COORDINATORS if "coordinator" in way else RUBY,
        "namespace": _NAMESPACES.get(way, "red/default"),
        "request_id": 5,
        "consumer_id": 1,
        "producer_id": 1,
        "watcher_id": 1,
        "topics_pattern": "persistent://(red|blue)/default/.*",
        "ack_type": 0,
        "tc_id": 0,
        "txnid_most_bits": txn.most,
        "txnid_least_bits": txn.least,
        "txn_ttl_millis": 3_600_000,
    }
    for field in inner.DESCRIPTOR.fields:
        if field.name in given and (kind in _IN_TRANSACTION or not field.name.startswith("txnid")):
            setattr(inner, field.name, given[field.name])
    if kind is BaseCommand.AUTH_RESPONSE:
        inner.response.auth_method_name, inner.response.auth_data = "token", asker.proof.encode()
    elif kind is BaseCommand.ADD_PARTITION_TO_TXN:
        inner.partitions.append(RUBY)
    elif kind is BaseCommand.ADD_SUBSCRIPTION_TO_TXN:
        inner.subscription.add(topic=RUBY, subscription="readers")
    elif kind is BaseCommand.ACK:
        inner.message_id.add(ledgerId=0, entryId=0)
    elif kind is BaseCommand.SEEK:
        inner.message_publish_time = 0
    elif kind is BaseCommand.GET_OR_CREATE_SCHEMA:
        inner.schema.name, inner.schema.type = "ruby", Schema.String
        inner.schema.schema_data = b""
    return command
