"""What is secret among a broker's settings is told to nobody, whoever asks and by whichever protocol."""

from __future__ import annotations

from pathlib import Path

import httpx
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from magnetar.base.values import Kind
from magnetar.settings.settings import Settings
from tests.process import BrokerProcess

SECRETS = (
    "bookkeeper.password",
    "bookkeeper.client.authentication.parameters",
    "managed.ledger.offload.credential.secret",
    "ssl.truststore.password",
)


def test_secrets_are_shown_neither_by_rest_nor_by_kafkas_tools(tmp_path: Path) -> None:
    given = [part for name in SECRETS for part in ("--set", f"{name}=tell-nobody")]
    with BrokerProcess(tmp_path / "data", "--http", "127.0.0.1:0", *given) as broker:
        shown = httpx.get(
            f"http://{broker.served['http'][0]}/admin/v2/brokers/configuration/runtime", timeout=30
        ).raise_for_status()
        assert "tell-nobody" not in shown.text
        assert shown.json()["log.retention.ms"] == "604800000", "all others are"
        admin = AdminClient({"bootstrap.servers": broker.address})
        (broker_id,) = admin.list_topics(timeout=30).brokers
        (asked,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, str(broker_id))]).values()
        entries = asked.result(30)
        assert "tell-nobody" not in {each.value for each in entries.values()}
        hidden = {name for name, each in entries.items() if each.is_sensitive}
        assert hidden >= {name for name in SECRETS if name in entries}
        assert "tell-nobody" not in "".join(broker.log_lines())


def test_what_sounds_secret_is() -> None:
    for name, each in Settings().declared.definitions.items():
        told = name.endswith(("_password", "_secret", "_secret_key", "_authentication_parameters"))
        assert not told or each.kind is Kind.PASSWORD, name
