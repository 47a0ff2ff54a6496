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
from magnetar.records.varint import encode_unsigned
from magnetar.wire.pulsar.pulsar_pb2 import SingleMessageMetadata

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
