"""ApiVersions is answered as Kafka answers it, but for differences that have a reason each."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.describe_cluster_request import DescribeClusterRequest
from magnetar.wire.kafka.messages.produce_request import ProduceRequest
from tests.hostile.client import Wire, frame, request_bytes
from tests.process import BrokerProcess

COMPAT = Path(__file__).resolve().parents[2] / "compat"
sys.path.insert(0, str(COMPAT))

import api_versions  # noqa: E402

JAVA = {"client_software_name": "apache-kafka-java", "client_software_version": "4.4.0"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("versions") / "data") as process:
        yield process


def kept() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(api_versions.FILE.read_text())
    return found


def test_a_broker_answers_what_the_page_says(broker: BrokerProcess) -> None:
    assert api_versions.asked(broker.address) == kept()["magnetar"], (
        "run compat/api_versions.py magnetar=HOST:PORT"
    )


@pytest.mark.parametrize("name", sorted(kept().keys() - {"kafka"}))
def test_each_difference_from_kafka_has_a_reason(name: str) -> None:
    found = api_versions.differences(kept()["kafka"], kept()[name])
    assert found.keys() == api_versions.reasons(name).keys()


@pytest.mark.parametrize("version", ["0", "1", "2", "3"])
def test_java_clients_of_3_3_to_3_7_find_no_feature_that_they_cannot_read(version: str) -> None:
    """Their lowest level is 1; at 0 the client's I/O thread ends (KAFKA-17492)."""
    for name, answers in kept().items():
        lowest = [first for first, _ in answers[version]["supported"].values()]
        assert 0 not in lowest, name


def test_produce_is_listed_from_0_and_those_before_3_end_the_connection(broker: BrokerProcess) -> None:
    """librdkafka before 2.11 compresses only where Produce 0 is listed, and never sends it (KAFKA-18659)."""
    with Wire(broker.host_and_port) as wire:
        listed = {row.api_key: row for row in wire.ask(ApiVersionsRequest(), 0).api_keys}
        assert (listed[0].min_version, listed[0].max_version) == (0, 13)
    body = request_bytes(ProduceRequest(acks=1, timeout_ms=1000), 3)
    for version in (0, 1, 2):
        with Wire(broker.host_and_port) as wire:
            # Before version 3 there was no transactional id; the header has the version behind the API's key.
            old = body[:2] + version.to_bytes(2, "big") + body[4:]
            wire.send(frame(old.replace(b"\xff\xff\x00\x01", b"\x00\x01", 1)))
            assert wire.is_closed()


@pytest.mark.parametrize(
    ("cluster", "node", "error"),
    [
        (None, -1, 0),
        (None, 0, 42),
        ("own", -1, 42),
        ("own", 0, 0),
        ("own", 1, 129),
        ("another", 0, 129),
        ("", 0, 129),
    ],
)
def test_a_client_that_looks_for_another_broker_is_sent_back_to_its_bootstrap(
    broker: BrokerProcess, cluster: str | None, node: int, error: int
) -> None:
    """KIP-1242, as Kafka 4.4.0 answers it."""
    with Wire(broker.host_and_port) as wire:
        own = wire.ask(DescribeClusterRequest()).cluster_id
        wanted = own if cluster == "own" else cluster
        answer = wire.ask(ApiVersionsRequest(cluster_id=wanted, node_id=node, **JAVA), 5)
        assert (answer.error_code, bool(answer.api_keys)) == (error, not error)
        assert wire.ask(ApiVersionsRequest(), 0).error_code == 0, "the connection goes on"
