"""ApiVersions through the proxy: brokers' own but for what does not pass, and the proxy in their place."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.kafka.giving_up import IN_A_ROW
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from magnetar.wire.kafka.messages.produce_request import ProduceRequest
from tests.hostile.client import Wire, frame, request_bytes
from tests.proxy.processes import ClusterProcess, ProxyProcess

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "compat"))

import api_versions


@pytest.fixture
def wire(proxy: ProxyProcess) -> Iterator[Wire]:
    with Wire(address(proxy.kafka)) as made:
        yield made


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def test_it_lists_what_the_page_says(proxy: ProxyProcess) -> None:
    kept = json.loads(api_versions.FILE.read_text())
    assert api_versions.asked(proxy.kafka) == kept["proxy"], "run compat/api_versions.py proxy=HOST:PORT"


def test_lowest_versions_are_those_of_brokers(proxy: ProxyProcess, cluster: ClusterProcess) -> None:
    """librdkafka switches compression, and how it logs in, by them."""
    for version in ("0", "3", "4"):
        through, direct = (api_versions.asked(at)[version]["apis"] for at in (proxy.kafka, cluster.kafka))
        assert through.keys() < direct.keys()
        assert through == {key: direct[key] for key in through}
    assert through["0"][0] == through["17"][0] == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_that_are_only_listed_end_the_connection(wire: Wire, version: int) -> None:
    asked = request_bytes(ProduceRequest(acks=1), 3)
    wire.send(frame(asked[:2] + version.to_bytes(2, "big") + asked[4:]))
    assert wire.is_closed()


def test_a_client_looks_for_the_proxys_node(proxy: ProxyProcess, wire: Wire) -> None:
    """KIP-1242: no broker's own number counts, as clients of the proxy know none of them."""
    met = wire.ask(MetadataRequest(topics=[]), 12)
    (node,) = (each.node_id for each in met.brokers)
    for cluster, wanted, error in (
        (met.cluster_id, node, 0),
        (met.cluster_id, node + 1, 129),
        ("another", node, 129),
        (None, node, 42),
        (met.cluster_id, -1, 42),
        (None, -1, 0),
    ):
        request = ApiVersionsRequest(
            client_software_name="a", client_software_version="1", cluster_id=cluster, node_id=wanted
        )
        assert wire.ask(request, 5).error_code == error, (cluster, wanted)


def test_a_client_that_gives_up_is_named_in_the_proxys_log(proxy: ProxyProcess) -> None:
    for _ in range(IN_A_ROW + 1):
        with Wire(address(proxy.kafka)) as wire:
            wire.ask(ApiVersionsRequest(client_software_name="giver-up", client_software_version="3.1"), 3)
            wire.socket.shutdown(1)
            assert wire.is_closed()
    assert proxy.log.read_text().count("giver-up 3.1") == 1
