"""What users of the stock Python client do, against a broker as a user starts it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pulsar
import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer as KafkaProducer
from pulsar import ConsumerKeySharedPolicy, ConsumerType, KeySharedMode, ProducerAccessMode
from pulsar.schema import AvroSchema, Integer, Record, String

from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand
from tests.process import BrokerProcess
from tests.pulsar import raw
from tests.pulsar.conftest import PULSAR, connect

WAIT_MS = 10_000
SHORT_MS = 300
EARLIEST = pulsar.InitialPosition.Earliest


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [f"message {number}".encode() for number in range(start, start + count)]


def send(client: pulsar.Client, topic: str, messages: list[bytes], **options: object) -> None:
    producer = client.create_producer(topic, **options)
    for message in messages:
        producer.send_async(message, None)
    producer.flush()
    producer.close()


def receive(consumer: pulsar.Consumer, count: int, *, acknowledge: bool = True) -> list[bytes]:
    found = []
    for _ in range(count):
        message = consumer.receive(WAIT_MS)
        found.append(message.data())
        if acknowledge:
            consumer.acknowledge(message)
    return found


def nothing_comes(consumer: pulsar.Consumer) -> bool:
    try:
        consumer.receive(SHORT_MS)
    except pulsar.Timeout:
        return True
    return False


# -- producing


def test_what_a_producer_sends_a_consumer_receives_and_acknowledges(
    client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "reads")
    producer = client.create_producer(topic)
    for number in range(10):
        producer.send(f"message {number}".encode(), properties={"n": str(number)}, partition_key=f"k{number}")
    for number in range(10):
        message = consumer.receive(WAIT_MS)
        assert message.data() == f"message {number}".encode()
        assert message.properties() == {"n": str(number)}
        assert message.partition_key() == f"k{number}"
        consumer.acknowledge(message)


@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_batches_of_every_codec_arrive_as_they_were_sent(
    client: pulsar.Client, topic: str, codec: str
) -> None:
    consumer = client.subscribe(topic, "reads")
    messages = [bytes([number]) * 300 for number in range(100)]
    send(
        client,
        topic,
        messages,
        batching_enabled=True,
        compression_type=getattr(pulsar.CompressionType, codec),
    )
    assert receive(consumer, 100) == messages


def test_a_message_larger_than_the_limit_travels_in_chunks(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "reads")
    large = bytes(range(256)) * (12 << 12)  # 12 MB
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    producer.send(large)
    assert receive(consumer, 1) == [large]


def test_what_is_sent_twice_is_stored_once(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "reads")
    producer = client.create_producer(topic, producer_name="steady", batching_enabled=False)
    for sequence_id in (1, 2, 2, 1, 3):
        producer.send(f"{sequence_id}".encode(), sequence_id=sequence_id)
    producer.close()
    again = client.create_producer(topic, producer_name="steady", batching_enabled=False)
    assert again.last_sequence_id() == 3
    again.send(b"again 3", sequence_id=3)
    again.send(b"4", sequence_id=4)
    assert receive(consumer, 4) == [b"1", b"2", b"3", b"4"]
    assert nothing_comes(consumer)


def test_an_exclusive_producer_has_the_topic_to_itself_and_another_waits_for_it(
    client: pulsar.Client, topic: str
) -> None:
    first = client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
    with pytest.raises(pulsar.PulsarException, match="ProducerFenced"):
        client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
    with pytest.raises(pulsar.PulsarException, match="ProducerBusy"):
        client.create_producer(topic)
    second = client.create_producer(topic, access_mode=ProducerAccessMode.ExclusiveWithFencing)
    with pytest.raises(pulsar.PulsarException):
        first.send(b"too late")
    second.send(b"mine")


def test_two_producers_cannot_have_one_name(client: pulsar.Client, topic: str) -> None:
    client.create_producer(topic, producer_name="only")
    with pytest.raises(pulsar.PulsarException, match="ProducerBusy"):
        client.create_producer(topic, producer_name="only")


# -- subscribing


def test_an_exclusive_subscription_takes_one_consumer(client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "mine")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "mine")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "mine", consumer_type=ConsumerType.Shared)


def test_a_failover_consumer_takes_over_what_was_not_acknowledged(
    pulsar_broker: BrokerProcess, client: pulsar.Client, topic: str
) -> None:
    other = connect(pulsar_broker)
    first = other.subscribe(topic, "one", ConsumerType.Failover, consumer_name="a")
    second = client.subscribe(topic, "one", ConsumerType.Failover, consumer_name="b")
    send(client, topic, numbers(10))
    assert receive(first, 4) == numbers(4)
    assert nothing_comes(second)
    other.close()
    assert receive(second, 6) == numbers(6, 4)


def test_shared_consumers_divide_messages_and_inherit_those_of_one_that_leaves(
    pulsar_broker: BrokerProcess, client: pulsar.Client, topic: str
) -> None:
    other = connect(pulsar_broker)
    leaves = other.subscribe(topic, "many", ConsumerType.Shared, receiver_queue_size=5)
    stays = client.subscribe(topic, "many", ConsumerType.Shared, receiver_queue_size=5)
    send(client, topic, numbers(40), batching_enabled=False)
    had = receive(leaves, 5, acknowledge=False)
    other.close()
    found = receive(stays, 40)
    assert set(had) <= set(found)
    assert sorted(found) == sorted(numbers(40))
    assert nothing_comes(stays)


def test_a_message_that_is_refused_comes_again_until_it_goes_to_the_dead_letters(
    client: pulsar.Client, topic: str
) -> None:
    dead = client.subscribe(f"{topic}-DLQ", "bury")
    consumer = client.subscribe(
        topic,
        "tries",
        ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(
            max_redeliver_count=2, dead_letter_topic=f"{topic}-DLQ"
        ),
    )
    send(client, topic, [b"hopeless"], batching_enabled=False)
    counts = []
    for _ in range(3):
        message = consumer.receive(WAIT_MS)
        counts.append(message.redelivery_count())
        consumer.negative_acknowledge(message)
    assert counts == [0, 1, 2]
    assert receive(dead, 1) == [b"hopeless"]
    # The client crashes if it is closed while it still has to do with the dead letter.
    assert nothing_comes(consumer)
    consumer.close()


def test_an_unacknowledged_message_comes_again_after_the_clients_time(
    client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "slow", ConsumerType.Shared, unacked_messages_timeout_ms=10_000)
    send(client, topic, [b"once more"])
    assert consumer.receive(WAIT_MS).redelivery_count() == 0
    consumer.redeliver_unacknowledged_messages()
    again = consumer.receive(WAIT_MS)
    assert (again.data(), again.redelivery_count()) == (b"once more", 1)


def test_each_key_goes_to_one_consumer_in_order(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "keys", ConsumerType.KeyShared) for _ in range(3)]
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(300):
        producer.send_async(str(number).encode(), None, partition_key=f"key {number % 20}")
    producer.flush()
    owners: dict[str, int] = {}
    last: dict[str, int] = {}
    count = 0
    deadline = time.monotonic() + 20
    while count < 300 and time.monotonic() < deadline:
        for place, consumer in enumerate(consumers):
            try:
                message = consumer.receive(20)
            except pulsar.Timeout:
                continue
            consumer.acknowledge(message)
            key, number = message.partition_key(), int(message.data())
            assert owners.setdefault(key, place) == place
            assert number > last.get(key, -1)
            last[key] = number
            count += 1
    assert count == 300
    assert len(set(owners.values())) > 1


def test_sticky_consumers_bring_their_ranges(client: pulsar.Client, topic: str) -> None:
    def policy(*ranges: tuple[int, int]) -> ConsumerKeySharedPolicy:
        return ConsumerKeySharedPolicy(key_shared_mode=KeySharedMode.Sticky, sticky_ranges=list(ranges))

    low = client.subscribe(topic, "keys", ConsumerType.KeyShared, key_shared_policy=policy((0, 30_000)))
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "keys", ConsumerType.KeyShared, key_shared_policy=policy((20_000, 40_000)))
    high = client.subscribe(topic, "keys", ConsumerType.KeyShared, key_shared_policy=policy((30_001, 65_535)))
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(50):
        producer.send_async(str(number).encode(), None, partition_key=f"key {number}")
    producer.flush()
    found = []
    for consumer in (low, high):
        while True:
            try:
                message = consumer.receive(SHORT_MS)
            except pulsar.Timeout:
                break
            found.append(int(message.data()))
            consumer.acknowledge(message)
    assert sorted(found) == list(range(50))


def test_delayed_messages_come_at_their_time(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "later", ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=False)
    sent = time.monotonic()
    producer.send(b"later", deliver_after=timedelta(milliseconds=700))
    producer.send(b"now")
    assert receive(consumer, 1) == [b"now"]
    assert receive(consumer, 1) == [b"later"]
    assert time.monotonic() - sent >= 0.65


def test_part_of_a_batch_can_be_acknowledged(
    pulsar_broker: BrokerProcess, client: pulsar.Client, topic: str
) -> None:
    other = connect(pulsar_broker)
    options = {"consumer_type": ConsumerType.Shared, "batch_index_ack_enabled": True}
    consumer = other.subscribe(topic, "parts", **options)
    send(client, topic, numbers(10), batching_enabled=True, batching_max_publish_delay_ms=200)
    messages = [consumer.receive(WAIT_MS) for _ in range(10)]
    assert len({(m.message_id().ledger_id(), m.message_id().entry_id()) for m in messages}) == 1
    for message in messages[::2]:
        consumer.acknowledge(message)
    other.close()
    rest = client.subscribe(topic, "parts", **options)
    assert receive(rest, 5) == numbers(10)[1::2]
    assert nothing_comes(rest)


def test_a_cumulative_acknowledgement_is_for_all_before(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "sums")
    send(client, topic, numbers(10), batching_enabled=False)
    messages = [consumer.receive(WAIT_MS) for _ in range(10)]
    consumer.acknowledge_cumulative(messages[5])
    consumer.close()
    assert receive(client.subscribe(topic, "sums"), 4) == numbers(4, 6)


def test_a_consumer_seeks_by_id_and_by_time(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "seeks")
    producer = client.create_producer(topic, batching_enabled=False)
    times = []
    for message in numbers(5):
        times.append(int(time.time() * 1000))
        producer.send(message)
        time.sleep(0.03)
    ids = [consumer.receive(WAIT_MS).message_id() for _ in range(5)]
    consumer.seek(ids[1])
    assert receive(consumer, 3, acknowledge=False) == numbers(3, 2)
    consumer.seek(times[3])
    assert receive(consumer, 2, acknowledge=False) == numbers(2, 3)
    consumer.seek(pulsar.MessageId.earliest)
    assert receive(consumer, 5, acknowledge=False) == numbers(5)


def test_a_reader_begins_where_it_says(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(message) for message in numbers(5)]
    from_start = client.create_reader(topic, pulsar.MessageId.earliest)
    assert [from_start.read_next(WAIT_MS).data() for _ in range(5)] == numbers(5)
    assert not from_start.has_message_available()
    behind = client.create_reader(topic, ids[2])
    assert behind.read_next(WAIT_MS).data() == b"message 3"
    assert behind.has_message_available()
    latest = client.create_reader(topic, pulsar.MessageId.latest)
    assert not latest.has_message_available()
    producer.send(b"new")
    assert latest.read_next(WAIT_MS).data() == b"new"


def test_a_pattern_finds_topics(client: pulsar.Client) -> None:
    family = f"family-{uuid4().hex[:8]}"
    for name in ("a", "b"):
        send(client, f"public/default/{family}-{name}", [name.encode()])
    consumer = client.subscribe(
        re.compile(f"persistent://public/default/{family}-.*"), "all", initial_position=EARLIEST
    )
    assert sorted(receive(consumer, 2)) == [b"a", b"b"]


def test_an_ended_subscription_is_forgotten(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "gone")
    send(client, topic, numbers(3))
    consumer.unsubscribe()
    again = client.subscribe(topic, "gone")
    assert nothing_comes(again)


def test_schemas_have_versions_and_must_fit(client: pulsar.Client, topic: str) -> None:
    class Bird(Record):
        name = String()
        wings = Integer()

    class Stone(Record):
        weight = Integer(required=True)

    producer = client.create_producer(topic, schema=AvroSchema(Bird))
    consumer = client.subscribe(topic, "flies", schema=AvroSchema(Bird), initial_position=EARLIEST)
    producer.send(Bird(name="wren", wings=2))
    assert consumer.receive(WAIT_MS).value().name == "wren"
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=AvroSchema(Stone))


# -- both worlds


def test_kafkas_and_pulsars_clients_see_the_same_records(
    pulsar_broker: BrokerProcess, client: pulsar.Client
) -> None:
    name = f"both-{uuid4().hex[:8]}"
    kafka = KafkaProducer({"bootstrap.servers": pulsar_broker.address})
    kafka.produce(name, b"from kafka", key=b"k", headers={"h": b"1"})
    kafka.flush(10)
    consumer = client.subscribe(f"persistent://public/default/{name}", "reads", initial_position=EARLIEST)
    message = consumer.receive(WAIT_MS)
    assert (message.data(), message.properties()["h"]) == (b"from kafka", "1")
    consumer.acknowledge(message)
    client.create_producer(f"persistent://public/default/{name}").send(
        b"from pulsar", partition_key="p", properties={"h": "2"}
    )
    assert receive(consumer, 1) == [b"from pulsar"]
    reads = KafkaConsumer(
        {"bootstrap.servers": pulsar_broker.address, "group.id": name, "auto.offset.reset": "earliest"}
    )
    reads.subscribe([name])
    found = []
    deadline = time.monotonic() + 20
    while len(found) < 2 and time.monotonic() < deadline:
        record = reads.poll(1)
        if record is not None and record.error() is None:
            found.append((record.offset(), record.key(), record.value(), record.headers()))
    reads.close()
    assert found == [(0, b"k", b"from kafka", [("h", b"1")]), (1, b"p", b"from pulsar", [("h", b"2")])]


def test_subscriptions_and_sequence_ids_outlive_the_broker(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    settings = (*PULSAR, "--set", "brokerDeduplicationEnabled=true")
    topic = "persistent://public/default/kept"
    broker = start_broker(tmp_path / "data", *settings)
    client = connect(broker)
    consumer = client.subscribe(topic, "stays", ConsumerType.Shared)
    producer = client.create_producer(topic, producer_name="p", batching_enabled=False)
    for number, message in enumerate(numbers(6)):
        producer.send(message, sequence_id=number)
    for message in [consumer.receive(WAIT_MS) for _ in range(6)]:
        if message.data() in (b"message 0", b"message 1", b"message 3"):
            consumer.acknowledge(message)
    consumer.close()
    client.close()
    assert broker.end() == 0
    again = connect(start_broker(broker.data, *settings))
    producer = again.create_producer(topic, producer_name="p", batching_enabled=False)
    assert producer.last_sequence_id() == 5
    consumer = again.subscribe(topic, "stays", ConsumerType.Shared)
    assert receive(consumer, 3) == [b"message 2", b"message 4", b"message 5"]
    again.close()


def test_what_was_acknowledged_to_a_producer_survives_a_kill(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    settings = (*PULSAR, "--set", "brokerDeduplicationEnabled=true")
    topic = "persistent://public/default/killed"
    broker = start_broker(tmp_path / "data", *settings)
    client = connect(broker)
    client.subscribe(topic, "reads").close()
    producer = client.create_producer(topic, producer_name="p", batching_enabled=False)
    for number, message in enumerate(numbers(30)):
        producer.send(message, sequence_id=number)
    broker.kill()
    client.shutdown()
    again = connect(start_broker(broker.data, *settings))
    producer = again.create_producer(topic, producer_name="p", batching_enabled=False)
    assert producer.last_sequence_id() == 29
    producer.send(b"once more", sequence_id=29)
    consumer = again.subscribe(topic, "reads")
    assert receive(consumer, 30) == numbers(30)
    assert nothing_comes(consumer)
    again.close()


@pytest.mark.parametrize("flush", ["always", "os"])
def test_a_receipt_comes_before_the_message_does(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, topic: str, flush: str
) -> None:
    """Who reads what it writes knows it by its id, which the receipt tells; Pulsar sends it first, too."""
    broker = start_broker(tmp_path / "data", *PULSAR, "--set", f"flush={flush}")
    with raw.Raw(broker) as client:
        client.ask(raw.producer(topic))
        client.ask(raw.subscribe(topic))
        client.send(raw.frame(raw.flow(1000)))
        for number in range(30):
            receipt = client.ask(raw.send(sequence_id=number), raw.entry(b"m"))
            assert receipt.type == BaseCommand.SEND_RECEIPT
            message = client.hear()[0].message
            assert message.message_id.entryId == receipt.send_receipt.message_id.entryId == number


def test_the_example_of_the_page_runs(pulsar_broker: BrokerProcess) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pulsar-protocol.md").read_text()
    example = page.split("```python\n")[1].split("```")[0]
    example = example.replace("pulsar://127.0.0.1:6650", pulsar_broker.pulsar_url)
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, timeout=60)
    assert "b'hello' who {'from': 'pulsar'}" in done.stdout, done.stderr[-2000:]
