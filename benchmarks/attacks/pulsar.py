"""Pulsar clients: much in few bytes, much asked and nothing read, many commands in one write."""

from __future__ import annotations

import json
import struct
import time
from typing import Any

from benchmarks.attacks.attack import Attack
from benchmarks.attacks.kafka import FETCH, fetch, nothing
from benchmarks.attacks.target import Target
from benchmarks.attacks.wires import KafkaWire, PulsarWire, command, entry, frame, request
from magnetar.records.compression import Codec, compress
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, CompressionType, Schema

PREY = "persistent://public/default/prey"
_INDIVIDUAL = 0
_KEY_SHARED, _STICKY = 3, 1


def subscribe(topic: str = PREY, name: str = "s", consumer_id: int = 1, **options: Any) -> BaseCommand:
    """Return a SUBSCRIBE command, of a shared subscription unless told otherwise."""
    said = {"subType": 1, "request_id": consumer_id} | options
    return command("SUBSCRIBE", topic=topic, subscription=name, consumer_id=consumer_id, **said)


def producer(topic: str = PREY, producer_id: int = 1) -> BaseCommand:
    return command("PRODUCER", topic=topic, producer_id=producer_id, request_id=producer_id)


def sent(client: PulsarWire, said: bytes, number: int = 0, messages: int = 1) -> Any:
    """Send an entry; give the id of what was stored."""
    made = command("SEND", producer_id=1, sequence_id=number, num_messages=messages)
    return client.ask(made, said).send_receipt.message_id


def stored(target: Target) -> list[Any]:
    """Prepare a topic of three messages; give their ids."""
    with PulsarWire(target) as client:
        client.ask(producer())
        return [sent(client, entry(b"x"), number) for number in range(3)]


def ack(ids: list[Any], **options: Any) -> BaseCommand:
    return command("ACK", consumer_id=1, ack_type=_INDIVIDUAL, message_id=ids, request_id=9, **options)


def place(position: Any, ack_set: list[int]) -> Any:
    made = type(position)(ledgerId=position.ledgerId, entryId=position.entryId, partition=-1)
    made.ack_set.extend(ack_set)
    return made


def ack_sets(words: int, times: int) -> Any:
    def strike(target: Target, ids: list[Any]) -> str:
        with PulsarWire(target) as client:
            client.ask(subscribe())
            said = frame(ack([place(ids[0], [0] * words + [1])]))
            for _ in range(times):
                client.send_as_taken(said, 60)
            return client.heard_or_closed()

    return strike


def many_ids(count: int) -> Any:
    def strike(target: Target, ids: list[Any]) -> str:
        kind = type(ids[0])
        wanted = [kind(ledgerId=ids[0].ledgerId, entryId=number) for number in range(count)]
        with PulsarWire(target) as client:
            client.ask(subscribe())
            client.send_as_taken(frame(ack(wanted)), 60)
            return client.heard_or_closed()

    return strike


def again(count: int) -> Any:
    def strike(target: Target, ids: list[Any]) -> None:
        kind = type(ids[0])
        wanted = [kind(ledgerId=ids[0].ledgerId, entryId=number) for number in range(count)]
        with PulsarWire(target) as client:
            client.ask(subscribe())
            made = command(
                "REDELIVER_UNACKNOWLEDGED_MESSAGES",
                "redeliverUnacknowledgedMessages",
                consumer_id=1,
                message_ids=wanted,
            )
            client.send_as_taken(frame(made), 60)
            return client.heard_or_closed()

    return strike


def properties(count: int) -> Any:
    def strike(target: Target, _: Any) -> str:
        made = subscribe()
        for _ in range(count):
            made.subscribe.metadata.add(key="", value="")
        with PulsarWire(target) as client:
            client.send_as_taken(frame(made), 60)
            return client.heard_or_closed()

    return strike


def hash_ranges(count: int) -> Any:
    def strike(target: Target, _: Any) -> str:
        made = subscribe(subType=_KEY_SHARED)
        made.subscribe.keySharedMeta.keySharedMode = _STICKY
        step = 65536 // count
        for number in range(count):
            made.subscribe.keySharedMeta.hashRanges.add(start=number * step, end=number * step)
        with PulsarWire(target) as client:
            return BaseCommand.Type.Name(client.ask(made).type)

    return strike


def many_in_one_write(made: Any, count: int) -> Any:
    """So many commands, each of a topic of its own, and the last answer waited for."""

    def strike(target: Target, _: Any) -> None:
        said = b"".join(frame(made(f"{PREY}{number}", number)) for number in range(1, count + 1))
        with PulsarWire(target) as client:
            client.send(said)
            for _ in range(count):
                client.hear()

    return strike


def topics_200(target: Target) -> None:
    with target.kafka() as client:
        client.create_topics([f"a-topic-with-a-long-name-{number}" for number in range(200)], 1)


def unread_topics(target: Target, _: Any) -> None:
    made = command(
        "GET_TOPICS_OF_NAMESPACE", "getTopicsOfNamespace", request_id=1, namespace="public/default"
    )
    with PulsarWire(target) as client:
        client.send_as_taken(frame(made) * 20_000, 3)
        time.sleep(3)


def large_schema(target: Target) -> None:
    made = producer()
    made.producer.schema.name, made.producer.schema.type = "s", Schema.Avro
    fields = [{"name": f"f{n}", "type": "string", "doc": "x" * 1000} for n in range(900)]
    made.producer.schema.schema_data = json.dumps({"type": "record", "name": "r", "fields": fields}).encode()
    with PulsarWire(target) as client:
        client.ask(made)


def unread_schemas(target: Target, _: Any) -> None:
    made = command("GET_SCHEMA", "getSchema", request_id=1, topic=PREY)
    with PulsarWire(target) as client:
        client.send_as_taken(frame(made) * 2000, 3)
        time.sleep(3)


def chain(records: int) -> dict[str, Any]:
    """Return an Avro schema in which each record has two fields of the next."""
    made: dict[str, Any] = {"type": "record", "name": "r0", "fields": [{"name": "f", "type": "int"}]}
    for number in range(1, records):
        fields = [{"name": "a", "type": made}, {"name": "b", "type": f"r{number - 1}"}]
        made = {"type": "record", "name": f"r{number}", "fields": fields}
    return made


def avro(records: int) -> Any:
    def strike(target: Target, _: Any) -> str:
        made = producer()
        made.producer.schema.name, made.producer.schema.type = "s", Schema.Avro
        made.producer.schema.schema_data = json.dumps(chain(records)).encode()
        with PulsarWire(target) as client:
            client.send_as_taken(frame(made), 60)
            return client.heard_or_closed()

    return strike


def pattern(text: str) -> Any:
    def strike(target: Target, _: Any) -> str:
        made = command(
            "WATCH_TOPIC_LIST",
            "watchTopicList",
            request_id=1,
            watcher_id=1,
            namespace="public/default",
            topics_pattern=text,
        )
        with PulsarWire(target) as client:
            client.send_as_taken(frame(made), 60)
            return client.heard_or_closed()

    return strike


def bomb_warm(target: Target) -> bytes:
    """Have the broker convert once; give a batch of 860,000 empty messages."""
    bomb = empties(860_000)
    with PulsarWire(target) as client:
        client.ask(producer())
        sent(client, empties(10), 0, 10)
    with KafkaWire(target) as reader:
        reader.ask(fetch("prey"), FETCH)
    time.sleep(3)  # the compiler may be at work
    with KafkaWire(target) as reader:
        reader.ask(fetch("prey"), FETCH)
    return bomb


def empties(count: int) -> bytes:
    """Return an entry of so many messages without a byte, which together take next to nothing."""
    payload = (struct.pack(">I", 2) + b"\x18\x00") * count  # SingleMessageMetadata with payload_size 0
    packed = bytes(compress(Codec.zstd, payload))
    return entry(
        packed, num_messages_in_batch=count, compression=CompressionType.ZSTD, uncompressed_size=len(payload)
    )


def bomb(readers: int) -> Any:
    def strike(target: Target, said: bytes) -> str:
        with PulsarWire(target) as client:
            client.ask(producer())
            sent(client, said, 1, 860_000)
        size = 0
        clients = [KafkaWire(target) for _ in range(readers)]
        for client in clients:
            client.send(request(fetch("prey", offset=10), FETCH))
        for client in clients:
            size += len(client.frame())
            client.close()
        return f"{len(said)} bytes sent, {size / readers / 1e6:.0f} MB got"

    return strike


def first_chunks(target: Target) -> None:
    """20,000 first pieces of messages that never end."""
    with PulsarWire(target) as client:
        client.ask(producer())
        for number in range(20_000):
            piece = entry(b"x", uuid=f"u{number}", num_chunks_from_msg=2, total_chunk_msg_size=2, chunk_id=0)
            client.send(frame(command("SEND", producer_id=1, sequence_id=number), piece))
            if number % 1000 == 999:
                for _ in range(1000):
                    client.hear()
    with KafkaWire(target) as reader:
        reader.ask(fetch("prey"), FETCH)
    time.sleep(3)


def read_chunks(target: Target, _: Any) -> None:
    with KafkaWire(target) as reader:
        for _ in range(5):
            reader.ask(fetch("prey"), FETCH)
            reader.ask(fetch("prey", offset=10_000), FETCH)


def strangers(target: Target, _: Any) -> None:
    said = struct.pack(">I", 5_200_000) + bytes(5_100_000)
    clients = [PulsarWire(target, connect=False) for _ in range(120)]
    for client in clients:
        client.send_as_taken(said, 0.05)
    time.sleep(1)
    for client in clients:
        client.close()


ATTACKS = (
    Attack("pulsar: ack set of 500,000 words", stored, ack_sets(500_000, 1)),
    Attack("pulsar: 3 ack sets of 2.4 MB", stored, ack_sets(2_400_000, 3)),
    Attack("pulsar: 20,000 words, 50 times", stored, ack_sets(20_000, 50)),
    Attack("pulsar: ACK of 300,000 ids", stored, many_ids(300_000)),
    Attack("pulsar: ACK of 4.8 MB", stored, many_ids(600_000)),
    Attack("pulsar: ACK of 23,000 ids", stored, many_ids(23_000)),
    Attack("pulsar: REDELIVER of 23,000 ids", stored, again(23_000)),
    Attack("pulsar: REDELIVER of 4.8 MB", stored, again(600_000)),
    Attack("pulsar: SUBSCRIBE with 3,000 properties", nothing, properties(3_000)),
    Attack("pulsar: SUBSCRIBE with 800,000 properties", nothing, properties(800_000)),
    Attack("pulsar: 16,000 hash ranges", stored, hash_ranges(16_000)),
    Attack("pulsar: 65,536 hash ranges", stored, hash_ranges(65_536)),
    Attack("pulsar: unread GET_TOPICS", topics_200, unread_topics),
    Attack("pulsar: unread GET_SCHEMA", large_schema, unread_schemas),
    Attack("pulsar: 3,000 PRODUCERs in one write", nothing, many_in_one_write(producer, 3000)),
    Attack(
        "pulsar: 3,000 SUBSCRIBEs in one write",
        nothing,
        many_in_one_write(lambda topic, number: subscribe(topic, consumer_id=number), 3000),
    ),
    Attack("pulsar: Avro of 19 records", nothing, avro(19)),
    Attack("pulsar: Avro of 60 records", nothing, avro(60)),
    Attack(
        "pulsar: (a|a) 29 times",
        lambda target: target.have_topic("a" * 29 + "c"),
        pattern("(a|a)" * 29 + "b"),
    ),
    Attack("pulsar: pattern of 5 MB", nothing, pattern("a" * 5_000_000)),
    Attack("pulsar: 860,000 messages, read by Kafka", bomb_warm, bomb(1)),
    Attack("pulsar: the same by six consumers", bomb_warm, bomb(6)),
    Attack("pulsar: 20,000 first chunks, read by Kafka", first_chunks, read_chunks),
    Attack("pulsar: 120 strangers' halves", nothing, strangers),
)
