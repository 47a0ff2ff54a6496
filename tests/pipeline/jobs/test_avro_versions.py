"""What becomes of an Avro schema's types, defaults and versions in columns."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

from magnetar.pipeline.jobs.decode.avro_values import bare
from magnetar.pipeline.jobs.decode.decoder import Decoder, plan
from magnetar.pipeline.jobs.spec import ProjectSpec, RegistrySpec, TopicSpec
from tests.pipeline.jobs.schema_registry import SchemaRegistry
from tests.pipeline.jobs.test_poison_records import frame

INSTANT = pa.timestamp("us", tz="UTC")
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
A = ("a", "int")


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    made = SchemaRegistry()
    yield made
    made.close()


def record(*fields: tuple[Any, ...], name: str = "R") -> dict[str, Any]:
    """Return a schema of fields given as name, type and perhaps what else a field has."""
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": n, "type": t, **(more[0] if more else {})} for n, t, *more in fields],
    }


def plainly(schema: Any, row: Any) -> bytes:
    """Return a record whose logical types are given as what they are made of."""
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(bare(json.loads(json.dumps(schema)), text=False)), row)
    return out.getvalue()


class Versions:
    """All versions of a subject, and what records of theirs become."""

    def __init__(self, registry: SchemaRegistry, *schemas: Any) -> None:
        self.schemas = schemas
        self._ids = [registry.register("t-value", each) for each in schemas]
        topic = TopicSpec("t", format="avro", subjects=("t-value",))
        project = ProjectSpec(Path(), Path(), {"t": topic}, registry=RegistrySpec(registry.url))
        self.decoder: Decoder = plan(topic, project)

    def rows(self, *records: tuple[int, Any]) -> pa.Array:
        """Decode records of versions, counted from 1; none may be a dead letter."""
        values = [frame(self._ids[n - 1], plainly(self.schemas[n - 1], row)) for n, row in records]
        found = self.decoder.decode(pa.array(values, pa.binary()))
        assert found.field("error").null_count == len(values), found.field("error")
        return found.field("row")

    def values(self, *records: tuple[int, Any], of: str = "f") -> list[Any]:
        """Return what one column has of records."""
        return self.rows(*records).field(of).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("boolean", True, True),
        ("double", 1, 1.0),
        ("bytes", "\u00ff\u0001", b"\xff\x01"),
        (MILLIS, 1_700_000_000_000, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        (MICROS, 1, datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        ({"type": "int", "logicalType": "date"}, 19_000, date(2022, 1, 8)),
        ({"type": "int", "logicalType": "time-millis"}, 1000, "00:00:01"),
        (MONEY, "\u0001", Decimal("0.01")),
        ({"type": "fixed", "name": "F", "size": 2}, "\u00fe\u0002", b"\xfe\x02"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "array", "items": MILLIS}, [1000], [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]),
        ({"type": "map", "values": "bytes"}, {"x": "\u00ff"}, [("x", b"\xff")]),
        (
            record(("x", "int"), ("t", MONEY, {"default": "\u0002"}), name="N"),
            {"x": 7},
            {"x": 7, "t": Decimal("0.02")},
        ),
        ([MILLIS, "null"], 1000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ([MILLIS, "string"], 1000, "1970-01-01T00:00:01.000000Z"),
        (["null", "string"], None, None),
    ],
)
def test_a_field_that_a_version_lacks_has_its_default(
    registry: SchemaRegistry, kind: Any, default: Any, value: Any
) -> None:
    versions = Versions(registry, record(A), record(A, ("f", kind, {"default": default})))
    assert versions.values((1, {"a": 1})) == [value]


def test_records_within_records_have_defaults_too(registry: SchemaRegistry) -> None:
    old = record(("x", "int"), name="N")
    new = record(("x", "int"), ("y", "string", {"default": "-"}), ("t", MILLIS, {"default": 1000}), name="N")
    places = (
        ("one", lambda n: n), ("some", lambda n: {"type": "array", "items": n}),
        ("by", lambda n: {"type": "map", "values": n}), ("maybe", lambda n: ["null", n]),
    )  # fmt: skip
    for name, within in places:
        mine = SchemaRegistry()
        versions = Versions(mine, record((name, within(old))), record((name, within(new))))
        made = {"x": 1, "y": "-", "t": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}
        row, wanted = {
            "one": ({"x": 1}, made), "some": ([{"x": 1}], [made]), "by": ({"k": {"x": 1}}, [("k", made)]),
            "maybe": ({"x": 1}, made),
        }[name]  # fmt: skip
        assert versions.values((1, {name: row}), of=name) == [wanted]
        mine.close()


def test_the_newest_version_that_has_the_field_says_its_default(registry: SchemaRegistry) -> None:
    versions = Versions(
        registry,
        record(A),
        record(A, ("f", "string", {"default": "x"}), ("g", "string", {"default": "x"})),
        record(A, ("f", ["null", "string"], {"default": None})),
    )
    rows = versions.rows((1, {"a": 1}), (3, {"a": 1, "f": None})).to_pylist()
    assert rows == [{"a": 1, "f": None, "g": "x"}] * 2


@pytest.mark.parametrize(
    ("one", "other", "kind", "values"),
    [
        (("int", 1), ("long", 2**40), pa.int64(), [1, 2**40]),
        (("float", 0.5), ("double", 0.1), pa.float64(), [0.5, 0.1]),
        (("long", 2**60 + 1), ("double", 2.5), pa.float64(), [float(2**60), 2.5]),
        ((MONEY, b"\x7d"), ({**MONEY, "precision": 12}, b"\x7d"), pa.decimal128(12, 2), [Decimal("1.25")] * 2),
        ((MONEY, b"\x7d"), ({**MONEY, "scale": 4}, b"\x7d"), pa.decimal128(12, 4),
         [Decimal("1.25"), Decimal("0.0125")]),
        ((MILLIS, 1), (MICROS, 1), INSTANT, [datetime(1970, 1, 1, 0, 0, 0, us, tzinfo=UTC) for us in (1000, 1)]),
        (("int", 1), ("string", "x"), pa.string(), ["1", "x"]),
        (("double", 1.5), ("boolean", True), pa.string(), ["1.5", "true"]),
        ((MONEY, b"\x7d"), ("string", "x"), pa.string(), ["1.25", "x"]),
        ((MILLIS, 1), ("string", "x"), pa.string(), ["1970-01-01T00:00:00.001000Z", "x"]),
        (({"type": "int", "logicalType": "date"}, 1), ("string", "x"), pa.string(), ["1970-01-02", "x"]),
        (("bytes", b"\xff"), ("string", "x"), pa.string(), ["\xff", "x"]),
        ((record(("m", MONEY), name="N"), {"m": b"\x7d"}), ("string", "x"), pa.string(), ['{"m":"1.25"}', "x"]),
        (({"type": "array", "items": MILLIS}, [1]), ("int", 5), pa.string(), ['["1970-01-01T00:00:00.001000Z"]', "5"]),
        (({"type": "map", "values": "int"}, {"k": 1}), ("int", 5), pa.string(), ['{"k":1}', "5"]),
    ],
)  # fmt: skip
def test_two_versions_types(
    registry: SchemaRegistry, one: Any, other: Any, kind: Any, values: list[Any]
) -> None:
    versions = Versions(registry, record(("f", one[0])), record(("f", other[0])))
    assert versions.decoder.fields == pa.struct([("f", kind)])
    assert versions.values((1, {"f": one[1]}), (2, {"f": other[1]})) == values


UNION = ["null", "int", "string", "boolean", MONEY, MICROS, {"type": "array", "items": MONEY}]
UNION.append(record(("m", MILLIS), name="M"))  # type: ignore[arg-type]
UNION.append({"type": "map", "values": MILLIS})


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x02\x0e", "7"),
        (b"\x04\x02x", "x"),
        (b"\x06\x01", "true"),
        (b"\x08\x02\x7d", "1.25"),
        (b"\x0a\x02", "1970-01-01T00:00:00.000001Z"),
        (b"\x0c\x02\x02\x7d\x00", '["1.25"]'),
        (b"\x0e\x02", '{"m":"1970-01-01T00:00:00.001000Z"}'),
        (b"\x10\x02\x02k\x02\x00", '{"k":"1970-01-01T00:00:00.001000Z"}'),
    ],
)
def test_unions_have_the_same_spelling_as_merged_versions(
    registry: SchemaRegistry, data: bytes, text: str
) -> None:
    versions = Versions(registry, record(("f", UNION)))
    found = versions.decoder.decode(pa.array([frame(1, data)], pa.binary())).to_pylist()
    assert found == [{"row": {"f": text}, "schema_id": 1, "error": None, "op": None}]


FOUR = {"type": "fixed", "name": "Four", "size": 4}


@pytest.mark.parametrize(
    ("kind", "data", "default", "text"),
    [
        (["bytes", MICROS], b"\0\x02\xff", "\xfe", ("\xff", "\xfe")),
        (["null", FOUR, "int"], b"\x02\xffabc", None, ("\xffabc", None)),
        ([FOUR, "string"], b"\0\xff\0\0\0", "\xfeabc", ("\xff\0\0\0", "\xfeabc")),
        ([MONEY, "int"], b"\0\x02\x7d", "\x7d", ("1.25", "1.25")),
        ({"type": "array", "items": ["bytes", "int"]}, b"\x02\0\x02\xff\0", [], (["\xff"], [])),
        ({"type": "map", "values": ["bytes", "int"]}, b"\x02\x02k\0\x02\xff\0", {}, ([("k", "\xff")], [])),
        (
            record(("b", ["bytes", "int"]), name="B"),
            b"\0\x02\xff",
            {"b": "\xfe"},
            ({"b": "\xff"}, {"b": "\xfe"}),
        ),
    ],
)
def test_bytes_in_unions_have_no_quotes_and_neither_have_defaults(
    registry: SchemaRegistry, kind: Any, data: bytes, default: Any, text: tuple[Any, Any]
) -> None:
    newer = record()
    newer["fields"] = [{"name": "f", "type": kind, "default": default}]
    versions = Versions(registry, newer, record(("g", "int")))
    values = [frame(1, data), frame(2, b"\x02")]
    found = versions.decoder.decode(pa.array(values, pa.binary())).to_pylist()
    assert [each["error"] for each in found] == [None, None]
    assert tuple(each["row"]["f"] for each in found) == text


@pytest.mark.parametrize(
    ("kind", "value", "type", "raw"),
    [
        (MILLIS, 253_402_300_800_000, INSTANT, 253_402_300_800_000_000),  # the year 10000
        (MICROS, 2**63 - 1, INSTANT, 2**63 - 1),
        (MILLIS, -62_167_219_200_001, INSTANT, -62_167_219_200_001_000),  # before year 0
        ({"type": "int", "logicalType": "date"}, -800_000, pa.date32(), -800_000),
        ({"type": "int", "logicalType": "date"}, 2**31 - 1, pa.date32(), 2**31 - 1),
    ],
)
def test_times_out_of_pythons_calendar(
    registry: SchemaRegistry, kind: Any, value: int, type: Any, raw: int
) -> None:
    column = Versions(registry, record(("f", kind))).rows((1, {"f": value})).field("f")
    assert column.type == type
    assert column.cast(pa.int64() if type == INSTANT else pa.int32()).to_pylist() == [raw]


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (MILLIS, 2**63 - 1, "it does not fit the table's columns: "),
        (MONEY, b"\x7f" * 8, "it does not fit the table's columns: "),  # fastavro rounds it to ten digits
        ({"type": "int", "logicalType": "time-millis"}, 86_400_000, "its values cannot be converted: 864"),
    ],
)  # fmt: skip
def test_what_no_column_can_hold_is_a_dead_letter(
    registry: SchemaRegistry, kind: Any, value: Any, reason: str
) -> None:
    schema = record(("f", kind))
    by = Versions(registry, schema).decoder
    found = by.decode(pa.array([frame(1, plainly(schema, {"f": value}))], pa.binary())).to_pylist()
    assert found[0]["error"].startswith(reason)
    assert found[0]["row"] is None


def test_decimals_are_exact_to_the_last_digit(registry: SchemaRegistry) -> None:
    schema = record(("f", {**MONEY, "precision": 38}), ("g", {**MONEY, "precision": 50}))
    digits = 10**38 - 1
    row = {
        "f": (-digits).to_bytes(16, "big", signed=True),
        "g": (digits * 10**11).to_bytes(24, "big", signed=True),
    }
    text = "9" * 36 + ".99"
    found = Versions(registry, schema).rows((1, row)).to_pylist()
    assert found == [{"f": Decimal("-" + text), "g": "9" * 38 + "0" * 9 + ".00"}]


def test_ids_of_16_bytes_are_texts(registry: SchemaRegistry) -> None:
    kind = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
    versions = Versions(registry, record(("f", kind), ("g", ["null", kind | {"name": "V"}, "int"])))
    text = "30303030-3030-3030-3030-303030303030"
    assert versions.rows((1, {"f": b"0" * 16, "g": b"0" * 16})).to_pylist() == [{"f": text, "g": text}]


def test_records_without_fields_have_one_that_says_that_they_are_there(registry: SchemaRegistry) -> None:
    empty = record(name="Z")
    versions = Versions(registry, record(("f", ["null", empty])))
    assert versions.decoder.fields == pa.struct([("f", pa.struct([("_present", pa.bool_())]))])
    assert versions.values((1, {"f": {}}), (1, {"f": None})) == [{"_present": True}, None]
    alone = Versions(other := SchemaRegistry(), record())
    assert alone.rows((1, {})).to_pylist() == [{"_present": True}]
    other.close()


def test_names_that_differ_in_case_only(registry: SchemaRegistry) -> None:
    versions = Versions(
        registry,
        record(("Id", "int")),
        record(("id", "long")),
        record(("Id", "int"), ("id", "int"), ("_topic", "int")),
    )
    assert versions.decoder.fields.names == ["Id", "id_2", "_topic_2"]
    other = Versions(mine := SchemaRegistry(), record(("id", "int"), ("Id", "int"), ("ID_2", "int")))
    assert other.decoder.fields.names == ["id", "Id_2", "ID_2_2"]
    mine.close()
    rows = versions.rows((1, {"Id": 1}), (2, {"id": 2}), (3, {"Id": 3, "id": 4, "_topic": 5})).to_pylist()
    assert [tuple(each.values()) for each in rows] == [(1, None, None), (2, None, None), (3, 4, 5)]


def test_a_field_renamed_by_alias_is_one_column(registry: SchemaRegistry) -> None:
    inner = record(("new", "long", {"aliases": ["old"]}), name="N"), record(("old", "int"), name="N")
    versions = Versions(
        registry,
        record(("old", "int"), ("n", inner[1])),
        record(("new", "long", {"aliases": ["old"]}), ("n", inner[0])),
        record(("old", "int"), ("n", inner[1])),
    )
    assert versions.decoder.fields == pa.struct(
        [("new", pa.int64()), ("n", pa.struct([("new", pa.int64())]))]
    )
    rows = versions.rows(
        (1, {"old": 1, "n": {"old": 1}}), (2, {"new": 2, "n": {"new": 2}}), (3, {"old": 3, "n": {"old": 3}})
    )
    assert rows.to_pylist() == [{"new": n, "n": {"new": n}} for n in (1, 2, 3)]


def test_a_record_that_holds_itself_is_text(registry: SchemaRegistry) -> None:
    schema = record(("v", MILLIS), ("next", ["null", "R"]))
    assert Versions(registry, schema).values((1, {"v": 1, "next": {"v": 2, "next": None}}), of="next") == [
        '{"v":"1970-01-01T00:00:00.002000Z","next":null}'
    ]
