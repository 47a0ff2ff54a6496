"""Brokers of which one has transactionCoordinatorEnabled and one has not, as amid a rolling change of it."""

from __future__ import annotations

from pathlib import Path

import pulsar
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.cluster.brokers import PARTITIONS, BrokerProcess, bootstrap, make_topic, until_shared
from tests.cluster.servers import Cluster, class_path

class_path()  # skips the module where BookKeeper cannot be run
pytestmark = [pytest.mark.slow]


def test_topics_of_both_are_served(cluster: Cluster, tmp_path: Path) -> None:
    brokers = [
        BrokerProcess(cluster, tmp_path, 1, conf="transactionCoordinatorEnabled=true\n"),
        BrokerProcess(cluster, tmp_path, 2),
    ]
    for each in brokers:
        each.start()
    try:
        admin = AdminClient({"bootstrap.servers": bootstrap(brokers)})
        make_topic(admin, "mixed")
        until_shared(admin, "mixed")
        producer = Producer({"bootstrap.servers": bootstrap(brokers), "transactional.id": "one"})
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(PARTITIONS):
            producer.produce("mixed", b"%d" % number, partition=number)
        producer.commit_transaction()
        for each in brokers:
            client = pulsar.Client(f"pulsar://127.0.0.1:{each.pulsar}")
            consumer = client.subscribe(
                "persistent://public/default/mixed",
                f"through-{each.number}",
                initial_position=pulsar.InitialPosition.Earliest,
            )
            found = {consumer.receive(60_000).data() for _ in range(PARTITIONS)}
            assert found == {b"%d" % number for number in range(PARTITIONS)}
            client.close()
        for each in brokers:
            assert "closed: " not in each.log.read_text(), "no broker ends another's connection"
    finally:
        for each in brokers:
            each.end()
