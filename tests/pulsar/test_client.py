"""What a user of the stock Python client does, against a broker as a user starts it."""

from __future__ import annotations

import pulsar

WAIT_MS = 10_000


def test_what_a_producer_sends_a_consumer_receives_and_acknowledges(
    client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "reads")
    producer = client.create_producer(topic)
    for number in range(10):
        producer.send(f"message {number}".encode(), properties={"n": str(number)})
    for number in range(10):
        message = consumer.receive(WAIT_MS)
        assert message.data() == f"message {number}".encode()
        assert message.properties() == {"n": str(number)}
        consumer.acknowledge(message)
