"""Fields are placed for JSON Schema, in Debezium's envelope, and in tables that Spark writes. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from magnetar.pipeline import tables
from magnetar.pipeline.jobs.decode.decoder import plan
from magnetar.pipeline.jobs.decode.json import JsonPlan, plan_json
from magnetar.pipeline.jobs.decode.there import columns_there, making_anew
from magnetar.pipeline.jobs.moved import moved_fields
from magnetar.pipeline.jobs.spec import ProjectSpec, RegistrySpec, SpecError, TopicSpec
from tests.pipeline.jobs.schema_registry import SchemaRegistry
from tests.pipeline.jobs.test_avro_versions import plainly, record
from tests.pipeline.jobs.test_poison_records import frame

WHOLE, WORDS, HALF = {"type": "integer"}, {"type": "string"}, {"type": "number"}


def shape(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    made = SchemaRegistry()
    yield made
    made.close()


def project_of(directory: Path, registry: SchemaRegistry, kind: str, **topic: Any) -> ProjectSpec:
    (directory / "conf").mkdir()
    (directory / "conf" / "spark-defaults.conf").write_text(
        f"spark.sql.warehouse.dir {directory / 'tables'}\n"
    )
    asked = TopicSpec("t", subjects=("t-value",), current="none", **topic)
    return ProjectSpec(directory, None, {"t": asked}, table_format=kind, registry=RegistrySpec(registry.url))


def json_plan(project: ProjectSpec) -> JsonPlan:
    return plan_json(project.topics["t"], project)


def have(project: ProjectSpec, **columns: pa.DataType) -> None:
    """Make the decoded table of a project."""
    place = project.directory / "tables" / "t_decoded"
    tables.open(place, project.table_format, schema=pa.schema(list(columns.items())))


def test_json_has_one_way_while_versions_agree(tmp_path: Path, registry: SchemaRegistry) -> None:
    project = project_of(tmp_path, registry, "delta", format="json")
    registry.register("t-value", shape(v=WHOLE, r=shape(x=WHOLE)), "JSON")
    registry.register("t-value", shape(v=HALF, w=WORDS, r=shape(x=WHOLE, y=WORDS)), "JSON")
    found = json_plan(project)
    assert found.ddl == "`v` DOUBLE, `r` STRUCT<`x`: BIGINT, `y`: STRING>, `w` STRING"
    assert [(way.ids, way.parsed) for way in found.ways] == [((), found.ddl)]
    assert found.moved == ()


def test_json_has_a_way_more_for_a_field_that_went_to_another_column(
    tmp_path: Path, registry: SchemaRegistry
) -> None:
    project = project_of(tmp_path, registry, "delta", format="json")
    have(project, v=pa.int64(), _offset=pa.int64())
    registry.register("t-value", shape(v=WHOLE), "JSON")
    registry.register("t-value", shape(v=WORDS, w=WHOLE), "JSON")
    found = json_plan(project)
    assert found.columns == (("v", "BIGINT"), ("v_2", "STRING"), ("w", "BIGINT"))
    assert [(way.ids, way.parsed, [name for name, _ in way.columns]) for way in found.ways] == [
        ((1,), "`v` BIGINT, `w` BIGINT", ["v", "w"]),
        ((), "`v` STRING, `w` BIGINT", ["v_2", "w"]),
    ]
    (line,) = moved_fields(project)
    assert line.endswith("field v of schema 2: column 'v' is int64, not string; it goes to column v_2")


def test_json_dead_letters_where_the_project_says_so(tmp_path: Path, registry: SchemaRegistry) -> None:
    project = project_of(tmp_path, registry, "delta", format="json", changed_types="dead_letters")
    have(project, v=pa.int64(), _offset=pa.int64())
    registry.register("t-value", shape(v=WHOLE), "JSON")
    registry.register("t-value", shape(v=WORDS, w=WHOLE), "JSON")
    found = json_plan(project)
    assert found.columns == (("v", "BIGINT"),)
    assert found.dead == {2: "field v of schema 2: column 'v' is int64, not string"}


def test_names_of_json_that_differ_in_case_or_are_ours(tmp_path: Path, registry: SchemaRegistry) -> None:
    project = project_of(tmp_path, registry, "delta", format="json")
    registry.register("t-value", shape(v=WHOLE, V=WORDS, _key=WORDS, r=shape(x=WHOLE, X=WHOLE)), "JSON")
    (way,) = json_plan(project).ways
    assert way.parsed == "`v` BIGINT, `V` STRING, `_key` STRING, `r` STRUCT<`x`: BIGINT, `X`: BIGINT>"
    assert [name for name, _ in way.columns] == ["v", "V_2", "_key_2", "r"]
    assert way.columns[3][1] == "STRUCT<`x`: BIGINT, `X_2`: BIGINT>"


def test_a_registrys_json_in_debeziums_envelope(tmp_path: Path, registry: SchemaRegistry) -> None:
    project = project_of(tmp_path, registry, "delta", format="json", envelope="debezium")
    row = shape(id=WHOLE, name=WORDS)
    registry.register(
        "t-value", shape(before={"oneOf": [{"type": "null"}, row]}, after=row, op=WORDS), "JSON"
    )
    assert json_plan(project).ddl == "`id` BIGINT, `name` STRING"


def envelope(*fields: Any) -> dict[str, Any]:
    row = record(*fields, name="Value")
    return record(("before", ["null", row]), ("after", ["null", "Value"]), ("op", ["null", "string"]))


def test_the_row_in_debeziums_envelope(tmp_path: Path, registry: SchemaRegistry) -> None:
    project = project_of(tmp_path, registry, "iceberg", format="avro", envelope="debezium")
    have(project, id=pa.int32(), v=pa.int32(), _offset=pa.int64())
    one = envelope(("id", "int"), ("v", "int"))
    two = envelope(("id", "long"), ("v", "string"), ("w", "int", {"default": 7}))
    for each in (one, two):
        registry.register("t-value", each)
    by = plan(project.topics["t"], project)
    assert {each.name: str(each.type) for each in by.fields} == {
        "id": "int64", "v": "int32", "v_2": "string", "w": "int32",
    }  # fmt: skip
    old, new = {"id": 1, "v": 2}, {"id": 2**40, "v": "a", "w": 1}
    values = [
        frame(1, plainly(one, {"before": None, "after": old, "op": "r"})),
        frame(1, plainly(one, {"before": old, "after": None, "op": "d"})),
        frame(2, plainly(two, {"before": new, "after": new | {"v": "b"}, "op": "u"})),
        frame(2, plainly(two, {"before": None, "after": None, "op": "t"})),
        frame(2, plainly(two, {"before": None, "after": None, "op": None})),
        frame(2, plainly(two, {"before": new, "after": None, "op": "u"})),
        None,
    ]
    found = by.decode(pa.array(values, pa.binary())).to_pylist()
    assert [each["op"] for each in found] == ["r", "d", "u", None, None, None, None]
    assert [each["error"] for each in found] == [
        None, None, None, "Debezium's op 't' changes no row that has a key", "it is no Debezium change: it has no op",
        "Debezium's op 'u' lacks after", None,
    ]  # fmt: skip
    first = {"id": 1, "v": 2, "v_2": None, "w": 7}
    assert [each["row"] for each in found[:4]] == [
        first, first, {"id": 2**40, "v": None, "v_2": "b", "w": 1}, None,
    ]  # fmt: skip


def test_an_envelope_that_is_none(tmp_path: Path, registry: SchemaRegistry) -> None:
    project = project_of(tmp_path, registry, "iceberg", format="avro", envelope="debezium")
    registry.register("t-value", record(("id", "int"), ("op", "string")))
    with pytest.raises(SpecError, match="needs fields before, after and op; the schema has id, op"):
        plan(project.topics["t"], project)


def test_a_table_that_spark_writes(tmp_path: Path, registry: SchemaRegistry) -> None:
    project = project_of(tmp_path, registry, "parquet", format="avro")
    topic, place = project.topics["t"], tmp_path / "tables" / "t_decoded"
    registry.register("t-value", record(("v", "int")))
    assert columns_there(project, topic)[0] == {}
    place.mkdir(parents=True)
    # As Spark writes it: a timestamp without a zone, by INT96.
    rows = pa.table({"v": pa.array([1], pa.int32()), "_timestamp": pa.array([0], pa.timestamp("us"))})
    pq.write_table(rows, place / "part-00000.parquet", use_deprecated_int96_timestamps=True)
    registry.register("t-value", record(("v", "long"), ("w", "int")))
    assert columns_there(project, topic)[0] == {"v": pa.int32(), "_timestamp": pa.timestamp("us", tz="UTC")}
    found = plan(topic, project)
    assert {each.name: str(each.type) for each in found.fields} == {
        "v": "int32",
        "v_2": "int64",
        "w": "int32",
    }
    with making_anew(["t_decoded"]):
        assert {each.name: str(each.type) for each in plan(topic, project).fields} == {
            "v": "int64",
            "w": "int32",
        }


def test_a_schema_file_whose_types_changed(tmp_path: Path, registry: SchemaRegistry) -> None:
    file = tmp_path / "v.avsc"
    file.write_text('{"type": "record", "name": "R", "fields": [{"name": "v", "type": "string"}]}')
    project = project_of(
        tmp_path, registry, "delta", format="avro", schema_file=file, changed_types="dead_letters"
    )
    have(project, v=pa.int32(), _offset=pa.int64())
    found = plan(project.topics["t"], project)
    (row,) = found.decode(pa.array([b"\x02a"], pa.binary())).to_pylist()
    assert row["error"] == "field v of schema 0: column 'v' is int32, not string"
    assert found.fields == pa.struct([("v", pa.int32())])
