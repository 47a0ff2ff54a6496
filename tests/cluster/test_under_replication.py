"""A broker's ``/metrics`` has the number of ledgers of which BookKeeper's auditor found too few copies."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.cluster.brokers import BrokerProcess
from tests.cluster.servers import Cluster, class_path
from tests.waiting import until

class_path()
pytestmark = [pytest.mark.slow]

from kazoo.client import KazooClient  # noqa: E402

NAME = "magnetar_bookies_under_replicated_ledgers"


def test_marks_of_the_auditor_are_in_the_metrics(cluster: Cluster, tmp_path: Path) -> None:
    client = KazooClient(hosts=cluster.hosts)
    client.start()
    client.create("/ledgers/underreplication/ledgers/0000/0000/0000/0007/urL0000000007", b"", makepath=True)
    client.stop()
    client.close()
    broker = BrokerProcess(cluster, tmp_path, 1)
    broker.start()
    try:
        until(lambda: f"\n{NAME} 1\n" in metrics(broker))
        assert "\nmagnetar_zookeeper_answer_seconds" in metrics(broker)
        assert "INFO magnetar.broker: the start took" in broker.log.read_text()
    finally:
        broker.end()


def metrics(broker: BrokerProcess) -> str:
    return httpx.get(f"http://127.0.0.1:{broker.http}/metrics").text
