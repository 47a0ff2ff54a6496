"""Pulsar's commands and messages of very many parts: numbers without end, messages within messages, properties, and
floods of what a transaction is told.
"""

from __future__ import annotations

import struct
import time
from typing import Any

from benchmarks.attacks.attack import Attack
from benchmarks.attacks.kafka import FETCH, fetch, nothing
from benchmarks.attacks.pulsar import PREY, ack, place, producer, sent, stored, subscribe
from benchmarks.attacks.pulsar_rows import (
    CONNECTED,
    TRANSACTION,
    TRANSACTIONS,
    add_partitions,
    add_subscriptions,
    flood,
    said,
)
from benchmarks.attacks.target import Target
from benchmarks.attacks.wires import KafkaWire, PulsarWire, command, entry, frame, request
from magnetar.records.pulsar_metadata import MessageMetadata, encode_metadata
from magnetar.records.pulsar_plain import framed_message
from magnetar.records.varint import encode_unsigned
from magnetar.wire.kafka.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from magnetar.wire.pulsar.pulsar_pb2 import KeyValue, SingleMessageMetadata

_ABORT = 1
_PING = b"\x08\x12"


def raw(content: bytes) -> Any:
    """Send a command as bytes, and wait until the broker answers or hangs up."""

    def strike(target: Target, _: Any) -> str:
        with PulsarWire(target) as client:
            client.send_as_taken(struct.pack(">II", len(content) + 4, len(content)) + content, 60)
            return client.heard_or_closed()

    return strike


def nested(depth: int) -> bytes:
    """Return an ACK of one id, which is in another one's, and so on."""
    within = b""
    for _ in range(depth):
        within = _field(7, within + b"\x08\x01\x10\x01")
    return b"\x08\x0a" + _field(10, b"\x08\x01\x10\x00" + _field(3, within))


def _field(number: int, content: bytes) -> bytes:
    return encode_unsigned(number << 3 | 2) + encode_unsigned(len(content)) + content


def batch_of_properties(target: Target) -> bytes:
    """Have the broker convert once; give a batch of 1,000 messages, each with a hundred properties."""
    single = SingleMessageMetadata(payload_size=1)
    for n in range(100):
        single.properties.add(key=f"p{n}", value="v")
    said = single.SerializeToString()
    with PulsarWire(target) as client:
        client.ask(producer())
        sent(client, entry(_one(b"\x18\x01"), num_messages_in_batch=1))
    with KafkaWire(target) as reader:
        reader.ask(fetch("prey"), FETCH)
        time.sleep(3)  # the compiler may be at work
        reader.ask(fetch("prey"), FETCH)
    return entry(_one(said) * 1000, num_messages_in_batch=1000)


def _one(metadata: bytes) -> bytes:
    return struct.pack(">I", len(metadata)) + metadata + b"x"


def read_properties(target: Target, content: bytes) -> str:
    """Store it three times, and have it read by Kafka and by a consumer of Pulsar's."""
    with PulsarWire(target) as client:
        client.ask(producer())
        for number in range(1, 4):
            sent(client, content, number, 1000)
        client.ask(subscribe(initialPosition=1))
        client.send(frame(command("FLOW", consumer_id=1, messagePermits=4000)))
        with KafkaWire(target) as reader:
            reader.send(request(fetch("prey", offset=1), FETCH))
            size = len(reader.frame())
        for _ in range(4):
            client.hear()
    return f"{len(content)} bytes each, {size} got"


def within_one_property(target: Target, _: Any) -> str:
    """Send a message, five times, one property of which is a message of millions of fields that mean nothing."""
    said = encode_metadata(MessageMetadata(b"p", 0, 1)) + _field(4, b"\x18\x00" * 2_400_000)
    content = bytes(framed_message(said, b"x", 1).framed)
    for _ in range(5):
        with PulsarWire(target) as client:
            client.ask(producer())
            client.send_as_taken(
                frame(command("SEND", producer_id=1, sequence_id=0, num_messages=1), content), 60
            )
            told = client.heard_or_closed()
    return told


def stored_properties(target: Target) -> None:
    """Store messages of as many properties as may be."""
    made = entry(b"x", properties=[KeyValue(key="k", value="v")] * 4_900)
    with PulsarWire(target) as client:
        client.ask(producer())
        for number in range(50):
            sent(client, made, number)
    ask_offset(target)


def ask_offset(target: Target) -> None:
    """Have a Kafka client ask for the offset of a time."""
    with KafkaWire(target) as client:
        asked = ListOffsetsPartition(partition_index=0, timestamp=1)
        client.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name="prey", partitions=[asked])]), 9)


def look_up(target: Target, _: Any) -> str:
    """Ask for times, and for the last message, again and again."""
    with PulsarWire(target) as client:
        client.ask(subscribe())
        for _ in range(100):
            ask_offset(target)
            client.ask(command("GET_LAST_MESSAGE_ID", "getLastMessageId", consumer_id=1, request_id=1))
    return "100 of each"


def aborted_properties(target: Target) -> None:
    """Store messages of as many properties as may be in a transaction that is aborted, and one behind them."""
    made = entry(b"x", properties=[KeyValue(key="k", value="v")] * 4_900)
    with PulsarWire(target) as client:
        client.ask(CONNECTED)
        number = client.ask(TRANSACTION).newTxnResponse
        mine = {"txnid_least_bits": number.txnid_least_bits, "txnid_most_bits": number.txnid_most_bits}
        client.ask(producer())
        client.ask(
            command("ADD_PARTITION_TO_TXN", "addPartitionToTxn", request_id=2, partitions=[PREY], **mine)
        )
        for number in range(50):
            client.ask(
                command("SEND", producer_id=1, sequence_id=number, num_messages=1, **mine),
                made,
            )
        client.ask(command("END_TXN", "endTxn", request_id=3, txn_action=_ABORT, **mine))
        sent(client, entry(b"x"), 50)


def read_past_aborted(target: Target, _: Any) -> str:
    """Have subscription after subscription read to the one message that is none of an aborted transaction's."""
    with PulsarWire(target) as client:
        for number in range(1, 21):
            client.ask(subscribe(name=f"s{number}", consumer_id=number, initialPosition=1))
            client.send(frame(command("FLOW", consumer_id=number, messagePermits=1)))
            assert client.hear().message.message_id.entryId > 0
            client.ask(
                command("GET_LAST_MESSAGE_ID", "getLastMessageId", consumer_id=number, request_id=number)
            )
    return "20 subscriptions"


def long_words(ids: list[Any]) -> Any:
    return ack([place(ids[0], [-1] * 65_000)])


def acknowledged(n: int) -> Any:
    made = ack([])
    made.ack.message_id.add(ledgerId=1, entryId=n)
    made.ack.request_id = n
    return made


def in_transaction(n: int) -> Any:
    made = acknowledged(n)
    made.ack.txnid_least_bits = made.ack.txnid_most_bits = 0
    return made


def added_topic(n: int) -> Any:
    return add_partitions(n, [f"{PREY}{n}"])


def added_subscription(n: int) -> Any:
    return add_subscriptions(n, [f"{PREY}{n}"])


ATTACKS = (
    Attack("pulsar: a number of 5 MB", nothing, raw(_PING + b"\x10" + b"\x80" * 5_000_000 + b"\x01")),
    Attack("pulsar: ids in ids, 3,000 deep", nothing, raw(nested(3_000))),
    Attack("pulsar: 65,000 words of ten bytes", stored, said(long_words, before=(subscribe(),))),
    Attack("pulsar: batches of 100,000 properties", batch_of_properties, read_properties),
    Attack("pulsar: 2,400,000 fields within a property", nothing, within_one_property),
    Attack("pulsar: lookups among 4,900 properties", stored_properties, look_up),
    Attack(
        "pulsar: reading past aborted properties",
        aborted_properties,
        read_past_aborted,
        TRANSACTIONS,
    ),
    Attack("pulsar: 20,000 ACKs", stored, flood(acknowledged, before=(subscribe(),))),
    Attack(
        "pulsar: 20,000 ACKs in no open transaction",
        stored,
        flood(in_transaction, before=(subscribe(),)),
        TRANSACTIONS,
    ),
    Attack(
        "pulsar: 20,000 ADD_PARTITION_TO_TXNs",
        nothing,
        flood(added_topic, before=(CONNECTED, TRANSACTION)),
        TRANSACTIONS,
    ),
    Attack(
        "pulsar: 20,000 ADD_SUBSCRIPTION_TO_TXNs",
        nothing,
        flood(added_subscription, before=(CONNECTED, TRANSACTION)),
        TRANSACTIONS,
    ),
)
