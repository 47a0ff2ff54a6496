"""Avro by a registry's ids through declarative pipelines: bad ids become dead letters, a new version is planned."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.pipeline.jobs.schema_registry import SchemaRegistry
from tests.pipeline.jobs.test_decode import avro, framed
from tests.pipeline.jobs.test_json_pipeline import magnetar, send
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
