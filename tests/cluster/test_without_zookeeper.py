"""A broker whose ZooKeeper is gone for good."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.brokers import BrokerProcess
from tests.cluster.servers import Cluster, class_path

class_path()  # skips the module where BookKeeper cannot be run
pytestmark = [pytest.mark.slow]
# Its session of 4 s is over then, and BookKeeper's client has begun anew, for which it makes threads.
BEGINS_ANEW_S = 20


def test_a_broker_without_its_zookeeper_can_be_ended(tmp_path: Path) -> None:
    """Its process too, though threads of BookKeeper's client go on looking for ZooKeeper."""
    cluster = Cluster(tmp_path / "cluster", bookies=2)
    cluster.start()
    broker = BrokerProcess(cluster, tmp_path, 1)
    process = broker.begin()
    try:
        while "ready " not in broker.log.read_text():
            assert process.poll() is None, broker.log.read_text()
            time.sleep(0.05)
        cluster.zookeeper.kill()
        while "ZooKeeper" not in broker.log.read_text().split("ready ")[1]:
            time.sleep(0.05)
        time.sleep(BEGINS_ANEW_S)
        process.terminate()
        process.wait(120)
    finally:
        process.kill()
        cluster.kill()
