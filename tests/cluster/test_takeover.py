"""What a killed broker was writing is recovered by those that take its bundles, before any client asks for it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.brokers import BrokerProcess, bootstrap
from tests.cluster.servers import Cluster, class_path
from tests.waiting import until

class_path()  # skips the module where BookKeeper cannot be run
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

from kazoo.client import KazooClient  # noqa: E402

from magnetar.ledger.formats.info import decode_info, path_of  # noqa: E402

TOPICS = 60


@pytest.fixture
def pair(cluster: Cluster, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    brokers = [BrokerProcess(cluster, tmp_path, number) for number in (1, 2)]
    for each in brokers:
        each.start()
    yield brokers
    for each in brokers:
        each.end(signal.SIGKILL)


def test_logs_left_open_are_recovered_though_nobody_asks(cluster: Cluster, pair: list[BrokerProcess]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap(pair)})
    names = [f"left-{number}" for number in range(TOPICS)]
    for future in admin.create_topics([NewTopic(each, 1) for each in names]).values():
        future.result()

    def leaders() -> dict[str, int]:
        topics = admin.list_topics(timeout=10).topics
        return {each: topics[each].partitions[0].leader if topics[each].partitions else -1 for each in names}

    until(lambda: set(leaders().values()) == {1, 2})  # both have a part
    producer = Producer({"bootstrap.servers": bootstrap(pair), "enable.idempotence": True})
    for each in names:
        producer.produce(each, b"before")
    assert producer.flush(120) == 0
    of_the_dead = [name for name, leader in leaders().items() if leader == 1]
    assert len(of_the_dead) > 5
    client = KazooClient(cluster.hosts)
    client.start()

    def left_open() -> list[str]:
        paths = [path_of(f"public/default/persistent/{each}-partition-0") for each in of_the_dead]
        return [path for path in paths if not decode_info(client.get("/house" + path)[0]).ledgers[-1].sealed]

    try:
        assert len(left_open()) == len(of_the_dead)
        pair[0].end(signal.SIGKILL)
        until(lambda: not left_open())
    finally:
        client.stop()
        client.close()
    for each in of_the_dead:
        producer.produce(each, b"after")
    assert producer.flush(120) == 0
