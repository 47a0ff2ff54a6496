"""Clients that log in nowhere, on brokers that have grants for them: by way of the proxy, and between brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import httpx
import pytest

from tests.proxy.processes import PATIENCE_S, ClusterProcess, ProxyProcess
from tests.security.signing import SECRET_URL, token

PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[ClusterProcess]:
    settings = (
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:root",
        f"token.secret.key={SECRET_URL}",
    )
    with ClusterProcess(home, 3, *settings) as made:
        yield made
        assert "Traceback" not in made.log.read_text()


def test_who_logs_in_nowhere_writes_transactions_across_brokers(
    cluster: ClusterProcess, proxy: ProxyProcess
) -> None:
    """What a broker asks another one for takes more than a client may, so they know each other all the same."""
    root = {"Authorization": f"Bearer {token('root')}"}
    with httpx.Client(base_url=f"{cluster.http}/admin/v2", headers=root, timeout=PATIENCE_S) as http:
        topic = http.put("/persistent/public/default/granted/partitions", content=str(PARTITIONS))
        assert topic.status_code == 204, topic.text
        http.put("/persistent/public/default/withheld/partitions", content="1").raise_for_status()
        path = "/persistent/public/default/granted/permissions/ANONYMOUS"
        assert http.post(path, json=["produce", "consume"]).status_code == 204
    settings = {"bootstrap.servers": proxy.kafka, "transactional.id": "t"}
    producer = ck.Producer(settings)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce("granted", str(partition), partition=partition)
    producer.commit_transaction(PATIENCE_S)
    consumer = ck.Consumer(
        {"bootstrap.servers": proxy.kafka, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.assign([ck.TopicPartition("granted", each, 0) for each in range(PARTITIONS)])
    found = [consumer.poll(PATIENCE_S) for _ in range(PARTITIONS)]
    assert {each.value() for each in found if each is not None} == {
        b"%d" % each for each in range(PARTITIONS)
    }
    consumer.close()
    told: list[str] = []
    plain = ck.Producer({"bootstrap.servers": proxy.kafka})
    plain.produce("withheld", b"x", on_delivery=lambda error, _: told.append(error.name()))
    plain.flush(PATIENCE_S)
    assert told == ["TOPIC_AUTHORIZATION_FAILED"]
