"""Versions of a schema whose fields go into a table that is there: wider columns, new ones, or dead letters."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from magnetar.pipeline import tables
from magnetar.pipeline.jobs.decode.decoder import Decoder, plan
from magnetar.pipeline.jobs.decode.fields import lacking
from magnetar.pipeline.jobs.moved import moved_fields
from magnetar.pipeline.jobs.outcome import RunReport
from magnetar.pipeline.jobs.report import write_report
from magnetar.pipeline.jobs.spec import ProjectSpec, RegistrySpec, TopicSpec
from tests.pipeline.jobs.schema_registry import SchemaRegistry
from tests.pipeline.jobs.test_avro_versions import plainly, record
from tests.pipeline.jobs.test_poison_records import frame


class Following:
    """A decoded table that is brought up to its topic by the direct writer, run by run."""

    def __init__(
        self, directory: Path, registry: SchemaRegistry, kind: str, changed: str = "new_columns"
    ) -> None:
        (directory / "conf").mkdir()
        (directory / "conf" / "spark-defaults.conf").write_text(
            f"spark.sql.warehouse.dir {directory / 'tables'}\n"
        )
        self._topic = TopicSpec(
            "t", format="avro", subjects=("t-value",), changed_types=changed, current="none"
        )
        self.project = ProjectSpec(
            directory, None, {"t": self._topic}, table_format=kind, registry=RegistrySpec(registry.url)
        )
        self._registry, self._kind, self._offset = registry, kind, 0
        self._schemas: dict[int, Any] = {}

    def register(self, *fields: Any) -> int:
        schema_id = self._registry.register("t-value", schema := record(*fields))
        self._schemas[schema_id] = schema
        return schema_id

    def run(self, *records: tuple[int, Any]) -> Decoder:
        """Decode records and append them as a run does."""
        by = plan(self._topic, self.project)
        values = [frame(n, plainly(self._schemas[n], row)) for n, row in records]
        found = by.decode(pa.array(values, pa.binary()))
        columns = dict(zip(by.fields.names, found.field("row").flatten(), strict=True))
        offsets = pa.array(range(self._offset, self._offset + len(values)), pa.int64())
        rows = pa.table({**columns, "_offset": offsets, "_error": found.field("error")})
        place = self.project.directory / "tables" / "t_decoded"
        table = tables.open(place, self._kind, schema=rows.schema)
        with table.writing():
            end = self._offset + len(values)
            tables.append(table, rows, [tables.OffsetRange("t", 0, self._offset, end)], {"t": "id"})
        self._offset = end
        return by

    def rows(self) -> list[tuple[Any, ...]]:
        """Return all rows without their offsets, in the order of these."""
        table = tables.open(self.project.directory / "tables" / "t_decoded").to_arrow().sort_by("_offset")
        return [tuple(row.values()) for row in table.drop_columns("_offset").to_pylist()]

    def columns(self) -> dict[str, str]:
        schema = tables.open(self.project.directory / "tables" / "t_decoded").schema
        return {each.name: str(each.type) for each in schema if not each.name.startswith("_")}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    made = SchemaRegistry()
    yield made
    made.close()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_field_added_within_a_record_goes_on(tmp_path: Path, registry: SchemaRegistry, kind: str) -> None:
    table = Following(tmp_path, registry, kind)
    one = table.register(("r", record(("x", "int"), name="N")))
    table.run((one, {"r": {"x": 1}}))
    two = table.register(("r", record(("x", "int"), ("y", "string", {"default": "-"}), name="N")))
    assert table.run((one, {"r": {"x": 2}}), (two, {"r": {"x": 3, "y": "z"}})).moved == ()
    assert table.rows() == [
        ({"x": 1, "y": None}, None),
        ({"x": 2, "y": "-"}, None),
        ({"x": 3, "y": "z"}, None),
    ]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_int_that_becomes_long(tmp_path: Path, registry: SchemaRegistry, kind: str) -> None:
    table = Following(tmp_path, registry, kind)
    one = table.register(("v", "int"))
    table.run((one, {"v": 1}))
    two = table.register(("v", "long", {"default": 7}))
    for _ in range(2):
        by = table.run((one, {"v": 2}), (two, {"v": 2**40}))
    if kind == "iceberg":
        assert by.moved == ()
        assert table.columns() == {"v": "int64"}
        assert [row[0] for row in table.rows()] == [1, 2, 2**40, 2, 2**40]
        return
    assert [(each.schema_id, each.field, each.column) for each in by.moved] == [(2, "v", "v_2")]
    assert by.moved[0].reason == "column 'v' is int32, not int64"
    assert table.columns() == {"v": "int32", "v_2": "int64"}
    assert table.rows() == [(1, None, None), *[(2, None, None), (None, None, 2**40)] * 2]


def test_a_type_that_no_format_takes_has_a_column_of_its_own(
    tmp_path: Path, registry: SchemaRegistry
) -> None:
    table = Following(tmp_path, registry, "iceberg")
    one = table.register(("v", "int", {"default": 5}), ("v_2", "int"))
    table.run((one, {"v": 1, "v_2": 1}))
    two = table.register(("v", "string", {"default": "x"}), ("v_2", "int"), ("w", "int", {"default": 9}))
    three = table.register(("v", "boolean"), ("v_2", "long"), ("w", "string"))
    four = table.register(("v_2", "long"))
    for _ in range(2):
        by = table.run((two, {"v": "a", "v_2": 2, "w": 3}), (three, {"v": True, "v_2": 2**40, "w": "b"}))
    assert table.columns() == {"v": "int32", "v_2": "int64", "v_3": "string", "w": "string"}
    table.run((one, {"v": 4, "v_2": 4}), (four, {"v_2": 6}))
    names = "v", "v_2", "_error", "v_3", "w"
    assert [dict(zip(names, row, strict=True)) for row in table.rows()] == [
        dict(zip(names, row, strict=True))
        for row in [
            (1, 1, None, None, None),
            *[(None, 2, None, "a", "3"), (None, 2**40, None, "true", "b")] * 2,
            (4, 4, None, None, None),
            (None, 6, None, None, None),
        ]
    ]
    assert [(each.schema_id, each.column) for each in by.moved] == [(2, "v_3"), (3, "v_3")]


def test_dead_letters_where_the_project_says_so(tmp_path: Path, registry: SchemaRegistry) -> None:
    table = Following(tmp_path, registry, "iceberg", "dead_letters")
    one = table.register(("v", "int"))
    table.run((one, {"v": 1}))
    two = table.register(("v", "string"), ("w", "int", {"default": 1}))
    three = table.register(("v", "long"), ("x", "int"))
    by = table.run((one, {"v": 2}), (two, {"v": "a", "w": 1}), (three, {"v": 2**40, "x": 3}))
    reason = "field v of schema 2: column 'v' is int32, not string"
    assert table.columns() == {"v": "int64", "x": "int32"}
    assert [row[:2] for row in table.rows()] == [(1, None), (2, None), (None, reason), (2**40, None)]
    assert [each.schema_id for each in by.moved] == [2]


def test_a_table_keeps_text_where_versions_were_of_two_types(
    tmp_path: Path, registry: SchemaRegistry
) -> None:
    table = Following(tmp_path, registry, "delta")
    one, two = table.register(("v", "int")), table.register(("v", "string"))
    table.run((one, {"v": 1}), (two, {"v": "a"}))
    three = table.register(("v", "double"))
    assert table.run((one, {"v": 2}), (three, {"v": 0.5})).moved == ()
    assert [row[0] for row in table.rows()] == ["1", "a", "2", "0.5"]


def test_a_column_of_a_fields_own_is_no_other_fields(tmp_path: Path, registry: SchemaRegistry) -> None:
    table = Following(tmp_path, registry, "delta")
    one = table.register(("v", "int"), ("V_2", "string"))
    table.run((one, {"v": 1, "V_2": "a"}))
    two = table.register(("v", "string"), ("V_2", "string"))
    by = table.run((two, {"v": "b", "V_2": "c"}))
    assert table.rows() == [(1, "a", None, None), (None, "c", None, "b")]
    assert [each.column for each in by.moved] == ["v_3"]


@pytest.mark.parametrize(
    ("changed", "what"),
    [("new_columns", "it goes to column v_2"), ("dead_letters", "its records are dead letters")],
)
def test_the_report_says_what_becomes_of_it(
    tmp_path: Path, registry: SchemaRegistry, changed: str, what: str
) -> None:
    table = Following(tmp_path, registry, "delta", changed)
    table.run((table.register(("v", "int")), {"v": 1}))
    assert moved_fields(table.project) == ()
    table.register(("v", "long"))
    (line,) = moved_fields(table.project)
    assert line == f"t_decoded: field v of schema 2: column 'v' is int32, not int64; {what}"
    report = RunReport(0, 1.0, 1, 1.0, 0, (), (), 0, str(tmp_path), moved=(line,))
    write_report(report, [], tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["moved"] == [line]
    assert html.escape(line) in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_field_renamed_by_an_alias_stays_in_its_column(
    tmp_path: Path, registry: SchemaRegistry, kind: str
) -> None:
    table = Following(tmp_path, registry, kind)
    one = table.register(("old", "int"))
    table.run((one, {"old": 1}))
    two = table.register(("new", "int", {"aliases": ["old"]}), ("w", "int", {"default": 5}))
    for _ in range(2):
        by = table.run((one, {"old": 2}), (two, {"new": 3, "w": 4}))
        assert by.moved == ()
    assert table.columns() == {"old": "int32", "w": "int32"}
    # And so does a version that comes while a run is under way.
    assert lacking(pa.struct([("new", pa.int32())]), by.fields, by._facts) == []
    assert [(row[0], row[2]) for row in table.rows()] == [(1, None), *[(2, 5), (3, 4)] * 2]
