"""What a record's page tells of Pulsar subscriptions: those past it, and those that acknowledged it alone."""

from __future__ import annotations

import uuid

import httpx
import pulsar

from tests.console.test_pages import facts, page
from tests.process import BrokerProcess
from tests.waiting import until


def test_subscriptions_that_have_acknowledged_a_record(house: BrokerProcess, http: httpx.Client) -> None:
    topic = f"passport-{uuid.uuid4().hex[:8]}"
    client = pulsar.Client(house.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    name = f"persistent://public/default/{topic}"
    past = client.subscribe(name, "past")
    some = client.subscribe(name, "some", consumer_type=pulsar.ConsumerType.Shared)
    client.subscribe(name, "none")
    producer = client.create_producer(name, batching_enabled=False)
    for number in range(3):
        producer.send(b"%d" % number)
    past.acknowledge_cumulative([past.receive(60_000) for _ in range(2)][-1])
    some.acknowledge([some.receive(60_000) for _ in range(2)][-1])

    def of(offset: int) -> dict[str, bool]:
        told = facts(http, "/console/record", topic=topic, offset=str(offset))["subscriptions"]
        return {each["subscription"]: each["acknowledged"] for each in told}

    until(lambda: of(0) == {"past": True, "some": False, "none": False})
    until(lambda: of(1) == {"past": True, "some": True, "none": False})
    assert of(2) == {"past": False, "some": False, "none": False}
    assert "not acknowledged" in page(http, "/console/record", topic=topic, offset="2")
    client.close()
