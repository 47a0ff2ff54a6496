"""librdkafka, by confluent-kafka."""

from __future__ import annotations

import sys
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from lines import SECONDS, b64, serve, shown, unb64

BOOTSTRAP = sys.argv[1]


def write(request: dict[str, Any]) -> list[int]:
    """Produce the records in order; give their offsets."""
    settings = {
        "bootstrap.servers": BOOTSTRAP,
        "compression.type": request["codec"],
        "linger.ms": 50 if request["batched"] else 0,
        "batch.num.messages": 1000 if request["batched"] else 1,
    }
    producer = Producer(settings)
    offsets: list[int] = []

    def delivered(error: object, message: Message) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        offsets.append(message.offset())

    for record in request["records"]:
        producer.produce(
            request["topic"],
            unb64(record["value"]),
            unb64(record["key"]),
            headers=[(name, unb64(data)) for name, data in record["headers"]],
            timestamp=record["time"],
            partition=0,
            on_delivery=delivered,
        )
    if producer.flush(SECONDS):
        raise TimeoutError("not everything was delivered")
    return offsets


def read(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Consume ``count`` records."""
    consumer = Consumer(
        {"bootstrap.servers": BOOTSTRAP, "group.id": "cross", "receive.message.max.bytes": 200 << 20}
    )
    start = OFFSET_BEGINNING if request["from"] is None else request["from"]
    consumer.assign([TopicPartition(request["topic"], 0, start)])
    records = []
    while len(records) < request["count"]:
        message = consumer.poll(SECONDS)
        if message is None or message.error() is not None:
            raise RuntimeError(f"after {len(records)} records: {message and message.error()}")
        records.append(
            {
                "key": b64(message.key()),
                "value": shown(message.value(), request["whole"]),
                "headers": [[name, b64(data)] for name, data in message.headers() or ()],
                "time": message.timestamp()[1],
                "place": message.offset(),
            }
        )
    consumer.close()
    return records


library = ".".join(str(confluent_kafka.libversion()[1] >> shift & 0xFF) for shift in (24, 16, 8))
serve(f"{confluent_kafka.__version__} (librdkafka {library})", write, read)
