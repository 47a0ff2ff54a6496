"""A broker of a cluster with a name of its own: policies, tenants and figures have that name, as Pulsar keeps them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from magnetar.topics.limits import NAMESPACE_KEYS, Rate, decode_limits
from tests.pulsar.conftest import serving

NAMESPACE = "/admin/v2/namespaces/public/default"
SLOW = {"dispatchThrottlingRateInMsg": 10, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}
FAST = SLOW | {"dispatchThrottlingRateInMsg": 100_000}


def test_a_map_of_clusters_is_read_for_ones_own() -> None:
    content = {
        "topicDispatchRate": {"standalone": FAST, "house": SLOW},
        "publishMaxMessageRate": {"other": {}},
    }
    found = decode_limits(content, NAMESPACE_KEYS, "house")
    assert found.dispatch_rate == Rate(10, 0, 1)
    assert decode_limits(content, NAMESPACE_KEYS, "third").dispatch_rate is None, (
        "the broker's own rate is in force"
    )
    assert decode_limits({"topicDispatchRate": {}}, NAMESPACE_KEYS, "house").dispatch_rate is None


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Any]:
    with (
        serving(tmp_path, "cluster.name=house") as broker,
        httpx.Client(base_url=f"http://{broker.served['http'][0]}", timeout=30) as http,
    ):
        yield broker, http


def test_it_is_told_and_asked_for_by_its_name(house: Any) -> None:
    _, http = house
    assert http.get("/admin/v2/clusters").json() == ["house"]
    assert http.get("/admin/v2/tenants/public").json()["allowedClusters"] == ["house"]
    assert http.put("/admin/v2/tenants/t", json={"allowedClusters": ["standalone"]}).status_code == 412
    assert http.put("/admin/v2/tenants/t", json={"allowedClusters": ["house"]}).status_code == 204
    assert http.get(f"{NAMESPACE}/replication").json() == ["house"]
    assert http.post(f"{NAMESPACE}/replication", json=["standalone"]).status_code == 403
    assert http.post(f"{NAMESPACE}/replication", json=["house"]).status_code == 204
    assert set(re.findall('cluster="([^"]*)"', http.get("/metrics").text)) == {"house"}


def test_rates_are_kept_for_its_name_beside_others_and_are_in_force(house: Any) -> None:
    broker, http = house
    assert http.post(f"{NAMESPACE}/dispatchRate", json=SLOW).status_code == 204
    assert http.get(NAMESPACE).json()["topicDispatchRate"] == {"house": SLOW}
    assert http.get(f"{NAMESPACE}/dispatchRate").json() == SLOW
    client = pulsar.Client(f"pulsar://{broker.served['pulsar'][0]}")
    reader = client.subscribe("t", "s")
    producer = client.create_producer("t", batching_enabled=False)
    for _ in range(60):
        producer.send_async(b"m", None)
    producer.flush()
    began = time.monotonic()
    for _ in range(40):
        reader.acknowledge(reader.receive(30_000))
    assert time.monotonic() - began > 1, "forty messages at ten in a second"
    client.close()
    assert http.delete(f"{NAMESPACE}/dispatchRate").status_code == 204
    assert http.get(f"{NAMESPACE}/dispatchRate").status_code == 204


def test_what_is_there_is_not_taken_for_another_clusters(tmp_path: Path) -> None:
    with serving(tmp_path, "cluster.name=house"):
        pass
    with (
        pytest.raises(Exception, match="holds the metadata of cluster house, not of 'standalone'"),
        serving(tmp_path),
    ):
        pass
    with serving(tmp_path, "cluster.name=house"):
        pass
