"""A broker that is started again without brokerDeduplicationEnabled says which topics deduplicate no longer."""

from __future__ import annotations

from pathlib import Path

import httpx
import pulsar

from tests.process import BrokerProcess

SERVED = ("--pulsar", "127.0.0.1:0", "--http", "127.0.0.1:0")
DEDUPLICATES = ("--set", "brokerDeduplicationEnabled=true")
WARNING = "stores what producers send twice twice"


def send(broker: BrokerProcess, *topics: str) -> None:
    client = pulsar.Client(broker.pulsar_url, logger=None)
    try:
        for topic in topics:
            client.create_producer(topic, producer_name="p", batching_enabled=False).send(b"v")
    finally:
        client.close()


def warnings(broker: BrokerProcess) -> list[str]:
    return [line for line in broker.log_lines() if WARNING in line]


def test_topics_that_deduplicated_are_named_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, *SERVED, *DEDUPLICATES) as broker:
        send(broker, "a", "b")
        url = f"http://{broker.served['http'][0]}/admin/v2/persistent/public/default/b/deduplicationEnabled"
        assert httpx.post(url, json=False).status_code == 204, "b does without it on purpose"
    with BrokerProcess(data, *SERVED, *DEDUPLICATES) as broker:
        send(broker, "a", "b")
        assert not warnings(broker)
    with BrokerProcess(data, *SERVED) as broker:
        send(broker, "a", "b", "new")
        send(broker, "a", "b", "new")
        (line,) = warnings(broker)
        assert "persistent://public/default/a " in line
