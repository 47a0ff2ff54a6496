"""``magnetar table``: a topic of a running broker in a table, and what is said when it cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.operator import Operator
from tests.process import BrokerProcess


@pytest.fixture
def operator(broker: BrokerProcess) -> Operator:
    return Operator(broker.address)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_table_follows_a_topic_beside_its_broker(operator: Operator, tmp_path: Path, kind: str) -> None:
    topic, where = f"table-{kind}", str(tmp_path / "lake" / kind)
    operator.ok("topic", "create", topic, "--partitions", "2")
    for first in (0, 100):
        lines = "".join(f"k{number}\tv{number}\n" for number in range(first, first + 100))
        operator.ok("produce", topic, "-K", r"\t", stdin=lines)
        told = operator.run("table", "sync", topic, where, "--format", kind, "--json").value
        assert (told["rows"], told["format"]) == (100, kind)
    assert operator.run("table", "sync", topic, where, "--json").value["rows"] == 0
    state = operator.run("table", "show", where, "--json").value
    assert (state["rows"], sum(state["position"][topic].values())) == (200, 200)
    assert [each["operation"] for each in state["commits"]][:2] == ["append", "append"]
    shown = operator.ok("table", "show", where)
    assert "next offset" in shown


@pytest.mark.slow
def test_what_cannot_be_is_said_in_a_sentence(operator: Operator, tmp_path: Path) -> None:
    operator.ok("topic", "create", "table-bad")
    where = str(tmp_path / "t")
    operator.ok("table", "sync", "table-bad", where)
    wrong = operator.run("table", "sync", "table-bad", where, "--format", "delta")
    assert (wrong.status, "is a table of format parquet, not delta" in wrong.err) == (1, True)
    none = operator.run("table", "show", str(tmp_path / "none"))
    assert (none.status, "there is no table at" in none.err) == (1, True)
    topic = operator.run("table", "sync", "table-none", where)
    assert (topic.status, "there is no topic 'table-none'" in topic.err) == (2, True)
    lock = tmp_path / "t" / "_magnetar" / "writer.lock"
    with lock.open("a+") as held:
        import fcntl

        fcntl.flock(held, fcntl.LOCK_EX)
        held.write(json.dumps({"pid": 4711, "since": "now"}))
        held.flush()
        busy = operator.run("table", "sync", "table-bad", where)
    assert (busy.status, "another writer is at work (process 4711 since now)" in busy.err) == (1, True)
