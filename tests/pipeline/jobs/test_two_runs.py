"""A table of one version of a schema goes on with the next, in every format, and nothing is written again. No Spark.

What becomes of each step stands here by hand, for columns that widen (Iceberg) and for those that keep their types
(Delta, and Parquet by Spark). All readers must find it, but for Polars in Parquet's directories: it wants files of one
kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from magnetar.pipeline import tables
from magnetar.pipeline.jobs.decode.decoder import plan
from magnetar.pipeline.jobs.decode.registry import RegisteredSchema
from magnetar.pipeline.jobs.spec import ProjectSpec, RegistrySpec, TopicSpec
from tests.pipeline.jobs.schema_registry import SchemaRegistry
from tests.pipeline.jobs.test_avro_versions import plainly, record
from tests.pipeline.jobs.test_poison_records import frame
from tests.pipeline.types.readers import READERS, found_by, is_there

Rows = list[dict[str, Any]]


class Step(NamedTuple):
    """Two versions, a value of each, and the rows of run 1 (the old one) and run 2 (the old one, the new one)."""

    format: str
    name: str
    one: Any
    old: Any
    two: Any
    new: Any
    rows: Rows
    kept: Rows | None = None
    """The rows where columns keep their types, if they differ."""


def decimal(digits: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": 2}


def same(*values: Any, name: str = "f") -> Rows:
    return [{name: each} for each in values]


def moved(old: Any, new: Any) -> Rows:
    return [{"f": old, "f_2": None}, {"f": old, "f_2": None}, {"f": None, "f_2": new}]


def avro(name: str, one: Any, old: Any, two: Any, new: Any, rows: Rows, kept: Rows | None = None) -> Step:
    def whole(kind: Any) -> Any:
        return kind if isinstance(kind, dict) and kind.get("name") == "R" else record(("f", kind), name="R")

    return Step("avro", name, whole(one), old, whole(two), new, rows, kept)


N1 = record(("x", "int"), name="N")
N2 = record(("x", "int"), ("y", "string", {"default": "-"}), name="N")
RENAMED = record(("g", "int", {"aliases": ["f"]}), name="R")
E1 = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
E2 = {**E1, "symbols": ["A", "B", "C"]}
X, XY = {"x": 1}, {"x": 1, "y": "z"}
FIRST, FILLED = {"x": 1, "y": None}, {"x": 1, "y": "-"}

GROWN = record(("f", "int"), ("g", decimal(5), {"default": "}"}), name="R")
ENUM = "enum E {{ {} }} message R {{ E f = 1; }}"
UINT = "message R {{ uint{} f = 1; }}"

AVRO = [
    avro("field added in a record", N1, X, N2, XY, same(FIRST, FILLED, XY)),
    avro("field added in a list of records", {"type": "array", "items": N1}, [X], {"type": "array", "items": N2}, [XY],
         same([FIRST], [FILLED], [XY])),
    avro("field added in a map of records", {"type": "map", "values": N1}, {"k": X}, {"type": "map", "values": N2},
         {"k": XY}, same([["k", FIRST]], [["k", FILLED]], [["k", XY]])),
    avro("int to long", "int", 1, "long", 2**40, same(1, 1, 2**40), moved(1, 2**40)),
    avro("float to double", "float", 0.5, "double", 1e300, same(0.5, 0.5, 1e300), moved(0.5, 1e300)),
    avro("wider decimal", decimal(5), b"\x7d", decimal(9), b"\x01\0\0\0", same("1.25", "1.25", "167772.16"),
         moved("1.25", "167772.16")),
    avro("int to long in a record", N1, X, record(("x", "long"), name="N"), {"x": 2**40}, same(X, X, {"x": 2**40}),
         moved(X, {"x": 2**40})),
    avro("made optional", "int", 1, ["null", "int"], None, same(1, 1, None)),
    avro("optional in a record", N1, X, record(("x", ["null", "int"]), name="N"), {"x": None}, same(X, X, {"x": None})),
    avro("renamed by an alias", "int", 1, RENAMED, {"g": 2}, same(1, 1, 2)),
    avro("symbol of an enum", E1, "A", E2, "C", same("A", "A", "C")),
    avro("int to string", "int", 1, "string", "x", moved(1, "x")),
    avro("string to a union", "string", "x", ["string", "int"], 5, same("x", "x", "5")),
    avro("int to a union", "int", 1, ["int", "string"], "x", moved(1, "x")),
    avro("default of a field", record(("f", "int"), name="R"), 1, GROWN, {"f": 2, "g": b"\x7d"},
         [{"f": 1, "g": None}, {"f": 1, "g": "1.25"}, {"f": 2, "g": "1.25"}]),
    avro("record that gets its first field", record(name="N"), {}, N1, X,
         same({"_present": True, "x": None}, {"_present": True, "x": None}, {"_present": None, "x": 1})),
]  # fmt: skip


def protobuf(name: str, one: str, old: Any, two: str, new: Any, rows: Rows, kept: Rows | None = None) -> Step:
    return Step(
        "protobuf", name, f'syntax = "proto3"; {one}', old, f'syntax = "proto3"; {two}', new, rows, kept
    )


M1, M2 = "message N {{ int32 x = 1; }} {}", "message N {{ int32 x = 1; string y = 2; }} {}"
PROTOBUF = [
    protobuf("field added in a message", M1.format("message R { N f = 1; }"), {"f": X},
             M2.format("message R { N f = 1; }"), {"f": XY}, same(FIRST, FIRST, XY)),
    protobuf("field added in repeated messages", M1.format("message R { repeated N f = 1; }"), {"f": [X]},
             M2.format("message R { repeated N f = 1; }"), {"f": [XY]}, same([FIRST], [FIRST], [XY])),
    protobuf("field added in a map", M1.format("message R { map<string, N> f = 1; }"), {"f": {"k": X}},
             M2.format("message R { map<string, N> f = 1; }"), {"f": {"k": XY}},
             same([["k", FIRST]], [["k", FIRST]], [["k", XY]])),
    protobuf("int32 to int64", "message R { int32 f = 1; }", {"f": 1}, "message R { int64 f = 1; }", {"f": 2**40},
             same(1, 1, 2**40), moved(1, 2**40)),
    protobuf("uint32 to uint64", UINT.format(32), {"f": 1}, UINT.format(64), {"f": 2**64 - 1},
             moved(1, str(2**64 - 1))),
    protobuf("made optional", "message R { int32 f = 1; }", {"f": 1}, "message R { optional int32 f = 1; }", {},
             same(1, 1, None)),
    protobuf("number of an enum", ENUM.format("A = 0;"), {}, ENUM.format("A = 0; B = 1;"),
             {"f": "B"}, same("A", "A", "B")),
    protobuf("message that gets its first field", "message Z {} message R { Z f = 1; }", {"f": {}},
             "message Z { int32 x = 1; } message R { Z f = 1; }", {"f": X},
             same({"_present": True, "x": None}, {"_present": True, "x": None}, {"_present": None, "x": 1})),
    protobuf("field into a oneof", "message R { int32 f = 1; }", {"f": 1},
             "message R { oneof c { int32 f = 1; string g = 2; } }", {"g": "z"},
             [{"f": 1, "g": None}, {"f": 1, "g": None}, {"f": None, "g": "z"}]),
]  # fmt: skip
STEPS = AVRO + PROTOBUF


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    made = SchemaRegistry()
    yield made
    made.close()


def encoder(step: Step) -> Callable[[Any, Any], bytes]:
    """Return what makes of a schema and a value the bytes of a record, without its frame."""
    if step.format == "avro":
        return plainly
    from google.protobuf import json_format

    from magnetar.pipeline.jobs.decode.protobuf import of_registry

    def encode(schema: str, value: Any) -> bytes:
        made = of_registry(RegisteredSchema(0, "PROTOBUF", schema)).named("R")._class()
        index = b"\0" if schema.count("message ") == 1 else b"\x02\x02"
        return index + json_format.ParseDict(value, made).SerializeToString()

    return encode


class TwoRuns:
    """A project of one topic, run by version after version as the direct writer does."""

    def __init__(self, directory: Path, registry: SchemaRegistry, kind: str, step: Step) -> None:
        (directory / "conf").mkdir()
        (directory / "conf" / "spark-defaults.conf").write_text(
            f"spark.sql.warehouse.dir {directory / 'tables'}\n"
        )
        message = "R" if step.format == "protobuf" else ""
        self._topic = TopicSpec(
            "t", format=step.format, subjects=("t-value",), message=message, current="none"
        )
        self._project = ProjectSpec(
            directory, None, {"t": self._topic}, table_format=kind, registry=RegistrySpec(registry.url)
        )
        self.place, self._kind, self._next = directory / "tables" / "t_decoded", kind, 0

    def run(self, *values: bytes) -> None:
        by = plan(self._topic, self._project)
        found = by.decode(pa.array(values, pa.binary()))
        assert found.field("error").to_pylist() == [None] * len(values)
        end = self._next + len(values)
        columns = dict(zip(by.fields.names, found.field("row").flatten(), strict=True))
        rows = pa.table({"id": pa.array(range(self._next, end), pa.int32()), **columns})
        table = tables.open(self.place, self._kind, schema=rows.schema)
        with table.writing():
            tables.append(table, rows, [tables.OffsetRange("t", 0, self._next, end)], {"t": "id"})
        self._next = end

    def files(self) -> dict[str, str]:
        """Return the digests of all data files."""
        found = (each for each in self.place.rglob("*.parquet") if "_delta_log" not in each.parts)
        return {str(each): sha256(each.read_bytes()).hexdigest() for each in found}


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.format}: {step.name}")
def test_a_table_goes_on_with_the_next_version(
    tmp_path: Path, registry: SchemaRegistry, kind: str, step: Step
) -> None:
    encode, encoded = encoder(step), []
    runs = TwoRuns(tmp_path, registry, kind, step)

    def value(schema: Any, of: Any) -> Any:
        names = [each["name"] for each in schema["fields"]] if step.format == "avro" else []
        return {"f": of} if names == ["f"] and not (isinstance(of, dict) and set(of) == {"f"}) else of

    for schema, of in ((step.one, step.old), (step.two, step.new)):
        text = schema if step.format == "protobuf" else json.dumps(schema)
        schema_id = registry.register("t-value", text, step.format.upper())
        encoded.append(frame(schema_id, encode(schema, value(schema, of))))
        before = runs.files()
        runs.run(*encoded)
        assert before.items() <= runs.files().items(), "a file of run 1 is another one now"
    wanted = step.rows if kind == "iceberg" or step.kept is None else step.kept
    for reader, read in READERS[kind].items():
        if is_there(reader) and (kind, reader) != ("parquet", "Polars"):
            assert found_by(read, runs.place, kind)[1] == wanted, reader
