"""Avro by a registry's ids through declarative pipelines: bad ids become dead letters, a new version is planned."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.pipeline.jobs.schema_registry import SchemaRegistry
from tests.pipeline.jobs.test_decode import avro, framed
from tests.pipeline.jobs.test_json_pipeline import magnetar, rows, send
from tests.process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ONE = {"type": "record", "name": "Seat", "fields": [{"name": "row", "type": "int"}]}
TWO = ONE | {"fields": [*ONE["fields"], {"name": "letter", "type": "string", "default": "?"}]}  # type: ignore[misc]


def test_avro_by_id_and_the_columns_of_a_new_version(broker: BrokerProcess, tmp_path: Path) -> None:
    registry = SchemaRegistry()
    first = registry.register("seats-value", ONE)
    send(
        broker.address, "seats",
        ("a", framed(first, avro(ONE, {"row": 1}))), ("b", framed(77, b"\x02")),
        ("c", framed(first, avro(ONE, {"row": 3}))),
    )  # fmt: skip
    project = tmp_path / "seats"
    magnetar(
        "init",
        project,
        "--topic",
        "seats",
        "--data",
        broker.data,
        "--format",
        "avro",
        "--registry",
        registry.url,
    )
    run = magnetar("run", project)
    assert (run["records"], run["dead_letters"]) == (3, 1)
    dead = ds.dataset(project / "tables/seats_dead_letters").to_table().to_pylist()
    assert [(row["offset"], row["schema_id"]) for row in dead] == [(1, 77)]
    assert "has no schema with id 77" in dead[0]["error"]

    second = registry.register("seats-value", TWO)
    send(broker.address, "seats", ("d", framed(second, avro(TWO, {"row": 4, "letter": "F"}))), ("a", None))
    assert "letter string" in magnetar("plan", project)["tables"][1]["columns"]
    registry.close()


def test_a_field_more_within_a_record_of_a_table_that_spark_writes(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    registry = SchemaRegistry()
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
    one = {"type": "record", "name": "Nest", "fields": [{"name": "inner", "type": inner}]}
    more = inner | {"fields": [{"name": "y", "type": "string", "default": "-"}, *inner["fields"]]}  # type: ignore[misc]
    two = one | {"fields": [{"name": "inner", "type": more}]}
    first = registry.register("nests-value", one)
    send(broker.address, "nests", ("a", framed(first, avro(one, {"inner": {"x": 1}}))))
    project = tmp_path / "nests"
    magnetar("init", project, "--topic", "nests", "--data", broker.data, "--format", "avro",
             "--registry", registry.url)  # fmt: skip
    magnetar("run", project)
    second = registry.register("nests-value", two)
    send(broker.address, "nests", ("b", framed(second, avro(two, {"inner": {"x": 2, "y": "why"}}))))
    assert magnetar("run", project)["dead_letters"] == 0
    found = {row["_offset"]: row["inner"] for row in rows(project, "nests_decoded")}
    assert found[0] == {"x": 1}  # a reader of all files has null for y
    assert found[1] == {"x": 2, "y": "why"}
    assert [
        row["inner"]["x"] for row in sorted(rows(project, "nests_current"), key=lambda r: r["_offset"])
    ] == [1, 2]
    registry.close()
