"""One record that no decoder can make anything of, between good ones: a dead letter, and the run goes on."""

from __future__ import annotations

import itertools
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from magnetar.pipeline.jobs.decode.columns import column
from magnetar.pipeline.jobs.decode.decoder import Decoder, plan
from magnetar.pipeline.jobs.spec import ProjectSpec, RegistrySpec, TopicSpec
from magnetar.schema_registry import avro_bounds
from magnetar.schema_registry.framing import reason_of
from tests.pipeline.jobs import fuzzed_values as fuzzed
from tests.pipeline.jobs.schema_registry import SchemaRegistry

RECORDS = int(os.environ.get("MAGNETAR_FUZZED_RECORDS", "6000"))
"""Of each format. A million: ``MAGNETAR_FUZZED_RECORDS=1000000 pytest tests/pipeline/jobs/test_poison_records.py``."""
SEED = int(os.environ.get("MAGNETAR_SEED", "1"))
BATCH = 500

NODE = {
    "type": "record", "name": "Node",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Node"], "default": None}],
}  # fmt: skip
LISTS = {
    "type": "record", "name": "Lists", "fields": [
        {"name": "v", "type": "int"}, {"name": "nulls", "type": {"type": "array", "items": "null"}},
    ],
}  # fmt: skip
FLAT = {"type": "record", "name": "Flat", "fields": [{"name": "v", "type": "int"}]}
PROTOBUF = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/any.proto";
message M { google.protobuf.Timestamp t = 1; google.protobuf.Any a = 2; int32 v = 3; }
"""


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    made = SchemaRegistry()
    yield made
    made.close()


def decoder(registry: SchemaRegistry, format: str, subject: str = "t-value", message: str = "") -> Decoder:
    topic = TopicSpec("t", format=format, subjects=(subject,), message=message)
    return plan(topic, ProjectSpec(Path(), Path(), {"t": topic}, registry=RegistrySpec(registry.url)))


def reasons(by: Decoder, *values: bytes) -> list[str | None]:
    found = by.decode(pa.array(values, pa.binary()))
    assert found.type == by.type
    return [row["error"] for row in found.to_pylist()]


def frame(schema_id: int, data: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + data


def node(levels: int) -> bytes:
    return b"\x02\x02" * levels + b"\x02\x00"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\0\xff\xff\xff\xff\x02", "its schema id would be 4294967295, and the largest is 2147483647"),
        (b"\0\x80\0\0\0\x02", "its schema id would be 2147483648, and the largest is 2147483647"),
        (frame(2, node(3000)), "it is nested more than 1000 levels deep"),
        (
            frame(2, node(1_000_000)),
            "it is nested more than 1000 levels deep",
        ),  # a crash, without a look before
        (frame(2, b"\x02\x02" * 300), "it is not Avro of its schema: it leads beyond its end"),
        (frame(3, b"\x02" + b"\xfe" * 8 + b"\x01\0"), "it would have "),
        (frame(3, b"\x02" + b"\xfd" * 8 + b"\x01\0\0"), "it would have "),
        (frame(3, b"\x02\x02"), "it is not Avro of its schema: it leads beyond its end"),
        (frame(4, b"\x02\xc0\x84\x3d\0"), "schema 4 is not Avro: "),
    ],
)
def test_avro(registry: SchemaRegistry, value: bytes, reason: str) -> None:
    for schema in (FLAT, NODE, LISTS):
        registry.register("t-value", schema)
    registry.register("others", {"type": "record", "name": "X", "fields": [{"name": "v", "type": "Nowhere"}]})
    by = decoder(registry, "avro")
    good = frame(1, b"\x02")
    first, bad, last = reasons(by, good, value, good)
    assert first is last is None
    assert bad is not None
    assert bad.startswith(reason)


def test_nested_and_long_records_are_read_as_far_as_they_may(registry: SchemaRegistry) -> None:
    registry.register("t-value", NODE)
    registry.register("t-value", LISTS)
    by = decoder(registry, "avro")
    nulls = avro_bounds.MAX_EMPTY_ITEMS
    wanted = b"\x02" + fuzzed._varint(nulls << 1) + b"\0"
    assert reasons(by, frame(1, node(300)), frame(2, wanted)) == [None, None]
    (deep, _) = by.decode(pa.array([frame(1, node(300)), frame(2, wanted)], pa.binary())).to_pylist()
    assert deep["row"]["next"].count('"v"') == 300


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\0\xff\xff\xff\xff\0", "its schema id would be 4294967295"),
        (
            frame(1, b"\0\x0a\x07\x08\x80\xdc\xef\x9e\xee\x3a"),
            "it is a M that cannot be converted: ",
        ),  # year 10000
        (frame(1, b"\0\x12\x08\x0a\x06x.y/Zz"), "it is a M that cannot be converted: Can not find message"),
        (frame(1, b"\x02\xc6\x01"), "its message indexes [99] lead to no message"),
        (frame(1, b"\0" + b"\x12\x7f" * 300), "it is not a M: "),
    ],
)
def test_protobuf(registry: SchemaRegistry, value: bytes, reason: str) -> None:
    registry.register("t-value", PROTOBUF, "PROTOBUF")
    good = frame(1, b"\0\x18\x01")
    first, bad, last = reasons(decoder(registry, "protobuf"), good, value, good)
    assert first is last is None
    assert bad is not None
    assert bad.startswith(reason)


def test_a_registry_alone_is_enough_to_decode_by(registry: SchemaRegistry) -> None:
    registry.register("t-value", FLAT)
    alone = SimpleNamespace(registry=RegistrySpec(registry.url))
    by = plan(TopicSpec("t", format="avro", subjects=("t-value",)), alone)
    assert reasons(by, frame(1, b"\x02"), frame(1, b"")) == [None, "it is not Avro of its schema: EOFError"]


def test_a_reason_quotes_no_whole_record_and_is_a_line_of_text() -> None:
    reason = reason_of(ValueError("x" * 10_000 + "\ud800"))
    assert reason == "x" * 500 + " ..."
    assert reason_of(ValueError("one\n  \ud800 two")) == "one ? two"
    assert reason_of(RecursionError()) == "RecursionError"


def test_a_row_that_does_not_fit_harms_no_other() -> None:
    fields = pa.struct([("v", pa.struct([("x", pa.int32())]))])
    errors: list[str | None] = [None] * 3
    found = column([{"v": {"x": 1}}, {"v": "text"}, {"v": {"x": 2**40}}], fields, errors)
    assert found.to_pylist() == [{"v": {"x": 1}}, None, None]
    assert [None if each is None else each[:32] for each in errors] == [
        None,
        *["it does not fit the table's colu"] * 2,
    ]


def test_fuzzed_avro(registry: SchemaRegistry) -> None:
    random = Random(SEED)
    for number in itertools.count():
        if number * BATCH * 4 >= RECORDS:
            break
        schema = fuzzed.avro_schema(random)
        schema_id = registry.register(f"s{number}-value", schema)
        by = decoder(registry, "avro", f"s{number}-value")
        made = fuzzed.avro_values(schema, random)
        for _ in range(4):
            go_on(
                by,
                [fuzzed.framed(schema_id, fuzzed.mutated(next(made), random), random) for _ in range(BATCH)],
            )


def test_fuzzed_protobuf(registry: SchemaRegistry) -> None:
    random = Random(SEED)
    schema_id = registry.register("t-value", fuzzed.PROTOBUF, "PROTOBUF")
    by = decoder(registry, "protobuf", message="Everything")
    made = fuzzed.protobuf_values(random)
    for _ in range(RECORDS // BATCH):
        values = [b"\x02\x04" + fuzzed.mutated(next(made), random) for _ in range(BATCH)]
        go_on(by, [fuzzed.framed(schema_id, fuzzed.mutated(v, random), random) for v in values])


def go_on(by: Decoder, values: list[bytes]) -> None:
    """See that each value becomes a row or a reason; a value that is one costs no other."""
    found = by.decode(pa.array(values, pa.binary()))
    assert len(found) == len(values)
    rows, errors = found.field("row"), found.field("error")
    for at, value in enumerate(values):
        assert rows[at].is_valid != errors[at].is_valid, f"seed {SEED}: {value.hex()}"


@pytest.mark.spark
@pytest.mark.timeout(3600)  # a million of them
@pytest.mark.parametrize("registered", [False, True])
def test_fuzzed_json(spark: Any, registered: bool) -> None:
    from magnetar.pipeline.jobs.decode.json import JsonPlan, JsonWay
    from magnetar.pipeline.jobs.json_values import JsonValues

    random = Random(SEED)
    made = fuzzed.json_values(random)
    rest = "at timestamp, day date, price decimal(10,2), tags array<string>, inner struct<id: int>"
    plan = JsonPlan(f"id bigint, {rest}", (JsonWay((), f"id bigint, {rest}"),))
    if registered:  # and where id was of another type in one version, which has names of its own
        others = tuple(tuple(each.split(" ", 1)) for each in rest.split(", "))
        old, new = (("id", "bigint"), *others), (("id_2", "string"), *others)
        ways = (JsonWay((2,), f"Id bigint, {rest}", old), JsonWay((), f"id string, {rest}", new))
        plan = JsonPlan(plan.ddl, ways, (*old, ("id_2", "string")))
    decode = JsonValues(plan, framed=registered, debezium=False)
    for _ in range(max(RECORDS // 20_000, 1)):
        values = [fuzzed.mutated(next(made), random) for _ in range(20_000)]
        if registered:
            values = [fuzzed.framed(random.choice((1, 2)), value, random) for value in values]
            values[0] = b"\0\xff\xff\xff\xff{}"
        frame = spark.createDataFrame([(bytearray(value),) for value in values], "value binary")
        wanted = (
            "count(*)",
            "count_if(_d_error is null)",
            "max(_d_error) filter (where _d_error like 'its schema%')",
        )
        count, good, reason = decode(frame).selectExpr(*wanted).first()
        assert count == len(values)
        assert 0 < good < count
        assert reason == ("its schema id would be 4294967295" if registered else None)
        # All of it, as a run writes it: what is lazy above may fail here.
        decode(frame).write.format("noop").mode("overwrite").save()


def test_a_crash_of_the_reader_is_one_of_its_process() -> None:
    """Why records are looked over first: fastavro itself ends its process. Goes once fastavro raises instead."""
    script = (
        "import io, fastavro; s = fastavro.parse_schema(" + json.dumps(NODE).replace("null,", "None,").replace(
            "null}", "None}"
        ) + "); fastavro.schemaless_reader(io.BytesIO(b'\\x02\\x02' * 1000000 + b'\\x02\\0'), s, None)"
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode < 0, done.stderr.decode()
