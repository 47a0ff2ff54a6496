"""``magnetar health``: one line for people, and an exit status for scripts."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.admin.health import Status, health_of
from tests.cli.operator import Operator
from tests.process import BrokerProcess

ALL_THERE_IS = "disk.min.free.bytes=9000000000000000000"


def test_a_well_broker_is_well_by_every_way(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", "--http", "127.0.0.1:0")
    try:
        operator = Operator(broker.address)
        ways = ([], ["--data", broker.data], ["--admin", f"http://{broker.served['http'][0]}"])
        assert [operator.ok("health", *way) for way in ways] == ["ok\n"] * 3
    finally:
        broker.end()
    gone = operator.run("health", "--data", broker.data)
    assert (gone.status, gone.out) == (1, "")


def test_a_broker_without_room_for_producers_is_degraded(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", "--set", ALL_THERE_IS)
    try:
        operator = Operator(broker.address)
        found = operator.run("health")
        assert found.status == 3
        assert found.out.startswith("degraded: disk: ")
        assert found.out.count("\n") == 1
        shown = json.loads(operator.run("health", "--json").out)
        assert shown["status"] == "degraded"
        assert shown["reasons"][0].startswith("disk: ")
    finally:
        broker.end()


@pytest.mark.parametrize(
    ("troubles", "waits", "degraded", "status"),
    [
        ([], [], [], Status.OK),
        ([], [], ["disk: no room"], Status.DEGRADED),
        ([], ["groups are loaded"], ["disk: no room"], Status.STARTING),
        (["the disk failed"], ["groups are loaded"], ["disk: no room"], Status.FAILED),
    ],
)
async def test_the_worst_counts(troubles: Any, waits: Any, degraded: Any, status: Status) -> None:
    async def of(value: Any) -> Any:
        return value

    broker = SimpleNamespace(
        store=SimpleNamespace(get=of),
        troubles=lambda: of(troubles),
        waits_for=lambda: waits,
        health=SimpleNamespace(conditions=SimpleNamespace(texts=lambda: degraded)),
    )
    found = await health_of(broker)  # type: ignore[arg-type]
    assert found.status is status
    assert found.reasons == tuple(troubles or waits or degraded)
