"""What people say of a subscription: from its first consumer or by REST, shown, and still there after a crash."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.process import BrokerProcess
from tests.pulsar.raw import Raw, subscribe

ARGUMENTS = ("--pulsar", "127.0.0.1:0", "--http", "127.0.0.1:0")
TOPIC = "persistent://public/default/said"
ROOT = "/admin/v2/persistent/public/default/said"


def asks(broker: BrokerProcess) -> httpx.Client:
    return httpx.Client(base_url=f"http://{broker.served['http'][0]}{ROOT}", timeout=30)


def comes(broker: BrokerProcess, name: str, **said: str) -> Raw:
    """A consumer subscribes, and says this of its subscription."""
    command = subscribe(TOPIC, name)
    for key, value in said.items():
        command.subscribe.subscription_properties.add(key=key, value=value)
    raw = Raw(broker)
    assert raw.ask(command).HasField("success")
    return raw


def test_properties_outlive_a_crash(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *ARGUMENTS) as broker, asks(broker) as http:
        with comes(broker, "first", team="blue"), comes(broker, "later"):
            pass
        with comes(broker, "later", team="green"):
            assert http.get("/subscription/later/properties").json() == {"team": "green"}
        with comes(broker, "later", team="other"):
            assert http.get("/subscription/later/properties").json() == {"team": "green"}, (
                "the first ones count"
            )
        made = {"ledgerId": -1, "entryId": -1, "properties": {"by": "hand"}}
        assert http.put("/subscription/made", json=made).status_code == 204
        assert http.put("/subscription/first/properties", json={"team": "red", "é": "ü"}).status_code == 204
        assert http.put("/subscription/first/properties", json={"n": 1}).status_code == 400
        assert http.put("/subscription/first/properties", content=b'{"n": "\\ud800"}').status_code == 400
        broker.kill()
    with BrokerProcess(tmp_path / "data", *ARGUMENTS) as broker, asks(broker) as http:
        assert http.get("/subscription/first/properties").json() == {"team": "red", "é": "ü"}
        found = http.get("/stats").json()["subscriptions"]
        assert {name: each["subscriptionProperties"] for name, each in found.items()} == {
            "first": {"team": "red", "é": "ü"},
            "later": {"team": "green"},
            "made": {"by": "hand"},
        }
        assert http.post("/subscription/first/skip_all").status_code == 204, (
            "what moves the cursor keeps them"
        )
        assert http.put("/subscription/made/properties", json={}).status_code == 204
    with BrokerProcess(tmp_path / "data", *ARGUMENTS) as broker, asks(broker) as http:
        assert http.get("/subscription/first/properties").json() == {"team": "red", "é": "ü"}
        assert http.get("/subscription/made/properties").json() == {}
