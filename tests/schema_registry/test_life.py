"""The registry over restarts, kill -9 and damage; and where KoP's settings put it."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest

from tests.process import BrokerDidNotStart, BrokerProcess
from tests.schema_registry.conftest import registry_url, start
from tests.schema_registry.test_rest import ONE, TWO, field, record, register


def test_all_survives_kill_9(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with start(data) as process, httpx.Client(base_url=registry_url(process)) as http:
        ids = [register(http, "t-value", ONE), register(http, "t-value", TWO)]
        http.put("/config/t-value", json={"compatibility": "NONE"})
        http.put("/config", json={"compatibility": "FULL"})
        gone = register(http, "gone", record("Gone", field("x")))
        http.delete("/subjects/gone")
        http.delete("/subjects/gone", params={"permanent": True})
        process.end(signal.SIGKILL)
    with start(data) as process, httpx.Client(base_url=registry_url(process)) as http:
        assert [http.get(f"/subjects/t-value/versions/{each}").json()["id"] for each in (1, 2)] == ids
        assert http.get("/config/t-value").json() == {"compatibilityLevel": "NONE"}
        assert http.get("/config").json() == {"compatibilityLevel": "FULL"}
        assert http.get("/subjects").json() == ["t-value"]
        assert register(http, "new", record("New", field("x"))) == gone + 1


def test_kops_settings(tmp_path: Path) -> None:
    conf = tmp_path / "standalone.conf"
    conf.write_text("kopSchemaRegistryEnable=true\nkopSchemaRegistryPort=0\n")
    with BrokerProcess(tmp_path / "data", "--config", str(conf)) as process:
        host, _, port = process.served["schema-registry"][0].rpartition(":")
        assert host == "127.0.0.1"
        assert httpx.get(f"http://{host}:{port}/subjects").json() == []


def test_frames_that_nobody_could_look_up_are_told_of(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", "--set", "kafkaApplyAvroSchemaOnDecode=true") as process:
        assert any("no registry is served" in line for line in process.log_lines())


def test_a_wrong_address_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(BrokerDidNotStart) as why:
        BrokerProcess(tmp_path / "data", "--set", "schema.registry.listeners=kafka://127.0.0.1:0")
    assert "schema.registry.listeners" in why.value.complaint
