"""Pulsar's own broker.conf says by ports where its clients are served; what the command line says comes first."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from magnetar.admin.listeners import parse_web_listeners
from magnetar.base.errors import InvalidConfig
from magnetar.pulsar.listeners import parse_pulsar_listeners
from magnetar.settings.settings import Settings
from tests.process import BrokerProcess
from tests.pulsar.conftest import connect

FILE = """
brokerServicePort=0
brokerServicePortTls=
webServicePort=0
webServicePortTls=
bindAddress=127.0.0.1
bindAddresses=
advertisedAddress=localhost
"""


def test_a_broker_conf_says_where_pulsars_clients_are_served(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(FILE)
    with BrokerProcess(tmp_path / "data", "--config", str(file)) as broker:
        assert broker.served["pulsar"][0].startswith("localhost:")
        assert "ignored" not in broker.log.read_text()
        with httpx.Client(base_url=f"http://{broker.served['http'][0]}", timeout=30) as http:
            assert http.get("/admin/v2/clusters/standalone").json()["brokerServiceUrl"] == broker.pulsar_url
        client = connect(broker)
        client.create_producer("t").send(b"there")
        client.close()


def told(**texts: str) -> Settings:
    return Settings().with_values({name.replace("_", "."): text for name, text in texts.items()})


def test_listeners_come_before_ports() -> None:
    ports = {"broker_service_port": "6650", "web_service_port": "8080"}
    given = told(pulsar_listeners="pulsar://127.0.0.1:7000", http_listeners="http://[::1]:80", **ports)
    assert [each.address for each in parse_pulsar_listeners(given)] == ["pulsar://127.0.0.1:7000"]
    assert [each.address for each in parse_web_listeners(given)] == ["http://[::1]:80"]
    alone = told(bind_address="::1", broker_service_port_tls="6651", **ports)
    assert [each.address for each in parse_pulsar_listeners(alone)] == [
        "pulsar://[::1]:6650",
        "pulsar+ssl://[::1]:6651",
    ]
    everywhere = told(bind_address="0.0.0.0", advertised_address="broker.example", **ports)
    (found,) = parse_web_listeners(everywhere)
    assert (found.bind.host, found.address) == ("0.0.0.0", "http://broker.example:8080")


@pytest.mark.parametrize("port", ["many", "70000", "-1"])
def test_a_port_that_is_none_is_named(port: str) -> None:
    with pytest.raises(InvalidConfig, match=port):
        parse_pulsar_listeners(told(broker_service_port=port))
