"""Pulsar's commands with as much in their repeated fields as they take, and floods of what costs little to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

from benchmarks.attacks.attack import Attack
from benchmarks.attacks.kafka import FETCH, fetch, nothing
from benchmarks.attacks.pulsar import PREY, ack, place, producer, sent, stored, subscribe
from benchmarks.attacks.target import Target
from benchmarks.attacks.wires import KafkaWire, PulsarWire, command, entry, frame
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, Schema

_ROWS = 3_000
"""A command has 10,000 texts at most."""
_FLOOD = 20_000
Made = Callable[[Any], BaseCommand]


def said(make: Made, times: int = 5, *, before: tuple[BaseCommand, ...] = ()) -> Any:
    """Say one command some times, and wait for an answer to each, or until the broker hangs up."""

    def strike(target: Target, ids: Any) -> str:
        told = ""
        with PulsarWire(target) as client:
            for each in before:
                client.ask(each)
            content = frame(make(ids))
            for _ in range(times):
                client.send_as_taken(content, 60)
                told = client.heard_or_closed()
                if told == "closed":
                    break
        return told

    return strike


def flood(make: Callable[[int], BaseCommand], *, before: tuple[BaseCommand, ...] = ()) -> Any:
    """Many commands in one write, and then a PING; all answers are taken until that one's comes."""

    def strike(target: Target, _: Any) -> str:
        content = b"".join(frame(make(n)) for n in range(_FLOOD)) + frame(command("PING"))
        with PulsarWire(target) as client:
            for each in before:
                client.ask(each)
            sending = Thread(target=client.send_as_taken, args=(content, 60), daemon=True)
            sending.start()
            answers = 0
            try:
                while client.hear().type != BaseCommand.PONG:
                    answers += 1
            except ConnectionError:
                return f"{answers:,} answers, then closed"
            except TimeoutError:
                return f"{answers:,} answers, then none"
            sending.join()
            return f"{answers:,} answers"

    return strike


def with_properties(made: BaseCommand, rows: Any) -> BaseCommand:
    for n in range(_ROWS):
        rows.add(key=f"k{n}", value="")
    return made


def producer_metadata(_: Any) -> BaseCommand:
    made = producer()
    return with_properties(made, made.producer.metadata)


def producer_schema(_: Any) -> BaseCommand:
    made = producer()
    made.producer.schema.name, made.producer.schema.type = "s", Schema.String
    made.producer.schema.schema_data = b""
    return with_properties(made, made.producer.schema.properties)


def subscription_properties(_: Any) -> BaseCommand:
    made = subscribe()
    return with_properties(made, made.subscribe.subscription_properties)


def start_of_words(ids: Any) -> BaseCommand:
    made = subscribe()
    made.subscribe.start_message_id.CopyFrom(place(ids[0], [0] * 40_000 + [1]))
    return made


def seek_of_words(ids: Any) -> BaseCommand:
    made = command("SEEK", consumer_id=1, request_id=9)
    made.seek.message_id.CopyFrom(place(ids[0], [0] * 40_000 + [1]))
    return made


def ack_properties(ids: Any) -> BaseCommand:
    made = ack([ids[0]])
    for n in range(23_000):
        made.ack.properties.add(key=f"k{n}", value=0)
    return made


def lookup(n: int = 0) -> BaseCommand:
    return command("LOOKUP", "lookupTopic", topic=f"{PREY}{n}", request_id=n)


def lookup_properties(_: Any) -> BaseCommand:
    made = lookup()
    return with_properties(made, made.lookupTopic.properties)


def topics_properties(_: Any) -> BaseCommand:
    made = command(
        "GET_TOPICS_OF_NAMESPACE", "getTopicsOfNamespace", request_id=1, namespace="public/default"
    )
    return with_properties(made, made.getTopicsOfNamespace.properties)


def schema_properties(_: Any) -> BaseCommand:
    made = command("GET_OR_CREATE_SCHEMA", "getOrCreateSchema", request_id=1, topic=PREY)
    made.getOrCreateSchema.schema.name, made.getOrCreateSchema.schema.type = "s", Schema.String
    made.getOrCreateSchema.schema.schema_data = b""
    return with_properties(made, made.getOrCreateSchema.schema.properties)


TRANSACTION = command("NEW_TXN", "newTxn", request_id=1, txn_ttl_millis=60_000, tc_id=0)
TRANSACTIONS = ("transaction.coordinator.enabled=true",)
CONNECTED = command("TC_CLIENT_CONNECT_REQUEST", "tcClientConnectRequest", request_id=0, tc_id=0)


def add_partitions(request_id: int, topics: Sequence[str]) -> BaseCommand:
    return command(
        "ADD_PARTITION_TO_TXN",
        "addPartitionToTxn",
        request_id=request_id,
        txnid_least_bits=0,
        txnid_most_bits=0,
        partitions=topics,
    )


def add_subscriptions(request_id: int, topics: Sequence[str]) -> BaseCommand:
    made = command(
        "ADD_SUBSCRIPTION_TO_TXN",
        "addSubscriptionToTxn",
        request_id=request_id,
        txnid_least_bits=0,
        txnid_most_bits=0,
    )
    for topic in topics:
        made.addSubscriptionToTxn.subscription.add(topic=topic, subscription="s")
    return made


def partitions_of_transaction(_: Any) -> BaseCommand:
    return add_partitions(2, [f"{PREY}{n}" for n in range(2 * _ROWS)])


def subscriptions_of_transaction(_: Any) -> BaseCommand:
    return add_subscriptions(2, [f"{PREY}{n}" for n in range(_ROWS)])


def watch(n: int) -> BaseCommand:
    return command(
        "WATCH_TOPIC_LIST",
        "watchTopicList",
        request_id=n,
        watcher_id=n,
        namespace="public/default",
        topics_pattern="persistent://public/default/none.*",
    )


def many_properties(target: Target, _: Any) -> str:
    """A message of 100,000 properties, ten times, read by Kafka."""
    properties = [{"key": "", "value": ""}] * 100_000
    content = entry(b"x", properties=properties)
    with PulsarWire(target) as client:
        client.ask(producer())
        for number in range(10):
            sent(client, content, number)
    with KafkaWire(target) as reader:
        reader.ask(fetch("prey"), FETCH)
    return f"{len(content)} bytes each"


ATTACKS = (
    Attack("pulsar: PRODUCER with 3,000 properties", nothing, said(producer_metadata)),
    Attack("pulsar: PRODUCER, schema of 3,000 properties", nothing, said(producer_schema)),
    Attack("pulsar: SUBSCRIBE, 3,000 of the subscription", nothing, said(subscription_properties)),
    Attack("pulsar: SUBSCRIBE at 40,000 words", stored, said(start_of_words)),
    Attack("pulsar: SEEK to 40,000 words", stored, said(seek_of_words, before=(subscribe(),))),
    Attack("pulsar: ACK with 23,000 properties", stored, said(ack_properties, before=(subscribe(),))),
    Attack("pulsar: LOOKUP with 3,000 properties", nothing, said(lookup_properties)),
    Attack("pulsar: GET_TOPICS with 3,000 properties", nothing, said(topics_properties)),
    Attack("pulsar: GET_OR_CREATE_SCHEMA, 3,000 properties", nothing, said(schema_properties)),
    Attack(
        "pulsar: ADD_PARTITION_TO_TXN of 6,000",
        nothing,
        said(partitions_of_transaction, before=(CONNECTED, TRANSACTION)),
        TRANSACTIONS,
    ),
    Attack(
        "pulsar: ADD_SUBSCRIPTION_TO_TXN of 3,000",
        nothing,
        said(subscriptions_of_transaction, before=(CONNECTED, TRANSACTION)),
        TRANSACTIONS,
    ),
    Attack("pulsar: 10 messages of 100,000 properties", nothing, many_properties),
    Attack("pulsar: 20,000 LOOKUPs", nothing, flood(lookup)),
    Attack(
        "pulsar: 20,000 PARTITIONED_METADATA",
        nothing,
        flood(
            lambda n: command("PARTITIONED_METADATA", "partitionMetadata", topic=f"{PREY}{n}", request_id=n)
        ),
    ),
    Attack("pulsar: 20,000 WATCH_TOPIC_LISTs", nothing, flood(watch)),
    Attack(
        "pulsar: 20,000 NEW_TXNs",
        nothing,
        flood(
            lambda n: command("NEW_TXN", "newTxn", request_id=n, txn_ttl_millis=60_000, tc_id=0),
            before=(CONNECTED,),
        ),
        TRANSACTIONS,
    ),
    Attack(
        "pulsar: 20,000 END_TXNs",
        nothing,
        flood(
            lambda n: command("END_TXN", "endTxn", request_id=n, txnid_least_bits=n, txnid_most_bits=0),
            before=(CONNECTED,),
        ),
        TRANSACTIONS,
    ),
    Attack(
        "pulsar: 20,000 GET_LAST_MESSAGE_IDs",
        stored,
        flood(
            lambda n: command("GET_LAST_MESSAGE_ID", "getLastMessageId", consumer_id=1, request_id=n),
            before=(subscribe(),),
        ),
    ),
    Attack(
        "pulsar: 20,000 SEEKs",
        stored,
        flood(
            lambda n: command("SEEK", consumer_id=1, request_id=n, message_publish_time=0),
            before=(subscribe(),),
        ),
    ),
    Attack(
        "pulsar: 20,000 CLOSEs of no consumer",
        nothing,
        flood(lambda n: command("CLOSE_CONSUMER", consumer_id=n, request_id=n)),
    ),
    Attack(
        "pulsar: 20,000 CLOSEs of no producer",
        nothing,
        flood(lambda n: command("CLOSE_PRODUCER", producer_id=n, request_id=n)),
    ),
    Attack(
        "pulsar: 20,000 FLOWs",
        stored,
        flood(lambda n: command("FLOW", consumer_id=1, messagePermits=1), before=(subscribe(),)),
    ),
)
