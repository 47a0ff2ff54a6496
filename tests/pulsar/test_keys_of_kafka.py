"""Keys of records that stock Kafka producers wrote, at stock Pulsar consumers of a Key_Shared subscription."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pulsar
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pulsar import ConsumerType

from tests.process import BrokerProcess
from tests.pulsar.conftest import connect, serving

RECORDS, KEYS = 300, 5
BRIEFLY_MS = 5


def make(broker: BrokerProcess, topic: str, entry_format: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, 1, 1, config={"entry.format": entry_format})])[topic].result()


def write(
    broker: BrokerProcess, topic: str, *, idempotent: bool, batch: int = 1, codec: str = "none"
) -> None:
    """Write numbers in order, ``batch`` of them in one record batch; the key of each is its rest by `KEYS`."""
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "enable.idempotence": idempotent,
            "compression.type": codec,
            "linger.ms": 0 if batch == 1 else 10_000,  # a flush ends it
        }
    )
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, b"k%d" % (number % KEYS))
        if number % batch == batch - 1:
            producer.flush()
    producer.flush()


def subscribe(client: pulsar.Client, topic: str, queue: int = 10) -> pulsar.Consumer:
    return client.subscribe(
        topic,
        "keys",
        ConsumerType.KeyShared,
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=queue,
    )


class Book:
    """What consumers have had, and did not acknowledge yet."""

    def __init__(self) -> None:
        self.order: dict[str, list[int]] = defaultdict(list)
        self.open: dict[str, dict[int, pulsar.Consumer]] = defaultdict(dict)
        self.messages: dict[int, pulsar.Message] = {}

    def take(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        number, key = int(message.data()), message.partition_key()
        elsewhere = {other for other, who in self.open[key].items() if who is not consumer}
        assert not elsewhere, f"{number} of {key} came while {elsewhere} were unacknowledged elsewhere"
        self.open[key][number] = consumer
        self.messages[number] = message

    def acknowledge(self, consumer: pulsar.Consumer) -> None:
        for key, those in self.open.items():
            for number in sorted(number for number, who in those.items() if who is consumer):
                consumer.acknowledge(self.messages[number])
                self.order[key].append(number)
                del those[number]

    def gone(self, consumer: pulsar.Consumer) -> None:
        for those in self.open.values():
            for number in [number for number, who in those.items() if who is consumer]:
                del those[number]

    @property
    def done(self) -> int:
        """How many numbers were acknowledged: a batch that was so in part comes again whole where a consumer left."""
        return sum(len(set(those)) for those in self.order.values())

    def is_right(self) -> bool:
        """Whether all came, those of a key in order as far as they came for the first time."""
        first = {key: list(dict.fromkeys(those)) for key, those in self.order.items()}
        return first == {f"k{key}": list(range(key, RECORDS, KEYS)) for key in range(KEYS)}


def work(book: Book, consumers: list[pulsar.Consumer], until: int, *, before_acknowledging: int = 4) -> None:
    """Have consumers receive in turns, each some messages before it acknowledges them, until so many are done."""
    held: dict[pulsar.Consumer, int] = defaultdict(int)
    while book.done < until:
        for consumer in consumers:
            try:
                book.take(consumer, consumer.receive(BRIEFLY_MS))
                held[consumer] += 1
            except pulsar.Timeout:
                held[consumer] = before_acknowledging if held[consumer] else 0
            if held[consumer] >= before_acknowledging:
                book.acknowledge(consumer)
                held[consumer] = 0


@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("entry_format", ["kafka", "mixed_kafka", "pulsar"])
def test_a_key_of_kafkas_records_is_at_one_consumer_and_in_order(
    pulsar_broker: BrokerProcess,
    client: pulsar.Client,
    topic: str,
    entry_format: str,
    idempotent: bool,
    batch: int,
) -> None:
    name = topic.rpartition("/")[2]
    make(pulsar_broker, name, entry_format)
    codec = "none" if batch == 1 else "zstd" if idempotent else "lz4"
    write(pulsar_broker, name, idempotent=idempotent, batch=batch, codec=codec)
    book, consumers = Book(), [subscribe(client, topic) for _ in range(3)]
    work(book, consumers, RECORDS)
    assert book.is_right(), book.order


@pytest.mark.parametrize("batch", [1, 7])
def test_consumers_leave_with_unacknowledged_keys_and_others_come(
    pulsar_broker: BrokerProcess, client: pulsar.Client, topic: str, batch: int
) -> None:
    name = topic.rpartition("/")[2]
    make(pulsar_broker, name, "kafka")
    write(pulsar_broker, name, idempotent=True, batch=batch)
    book, consumers = Book(), [subscribe(client, topic) for _ in range(3)]
    for part in range(1, 5):
        work(book, consumers, part * RECORDS // 6)
        leaving = consumers.pop(0)
        leaving.close()
        book.gone(leaving)
        consumers.append(subscribe(client, topic))
    work(book, consumers, RECORDS)
    assert book.is_right(), book.order


@pytest.mark.parametrize("batch", [1, 7])
def test_keys_stay_in_order_over_a_restart(tmp_path: Path, topic: str, batch: int) -> None:
    book = Book()
    with serving(tmp_path) as broker:
        write(broker, topic.rpartition("/")[2], idempotent=True, batch=batch)
        client = connect(broker)
        consumers = [subscribe(client, topic) for _ in range(3)]
        work(book, consumers, RECORDS // 3)
        client.close()
    book.open.clear()
    with serving(tmp_path) as broker:
        client = connect(broker)
        work(book, [subscribe(client, topic) for _ in range(3)], RECORDS)
        client.close()
    assert book.is_right(), book.order
