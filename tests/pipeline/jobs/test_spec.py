"""A project's file: what is wrong is told with its field and what may stand there."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from magnetar.pipeline.jobs.progress import local_storage_of, storage_of
from magnetar.pipeline.jobs.project import create
from magnetar.pipeline.jobs.spec import (
    SPARK_SPEC_FILE,
    SPEC_FILE,
    SpecError,
    load_spec,
    parse_spec,
    table_name,
)
from magnetar.pipeline.tables.listing import parquet_files, remove_uncommitted

GOOD: dict[str, Any] = {"data": "/d", "topics": {"t": {"schema": "id int"}}}


def topic(**fields: Any) -> dict[str, Any]:
    return {"data": "/d", "topics": {"t": {"schema": "id int"} | fields}}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([], "the file must be a mapping"),
        ({"topics": {"t": None}}, "data: is missing"),
        ({"data": "/d"}, "topics is missing"),
        (
            GOOD | {"topcis": {}},
            "topcis: there is no such field; there are: bootstrap_servers, catalog, data, namespace, registry,",
        ),
        (GOOD | {"table_format": "orc"}, "table_format: must be one of parquet, delta, iceberg, not 'orc'"),
        (GOOD | {"writer": "flink"}, "writer: must be one of direct, spark, not 'flink'"),
        (
            GOOD | {"writer": "spark", "table_format": "iceberg"},
            "writer: must be direct for table_format iceberg",
        ),
        (GOOD | {"catalog": "lake"}, "catalog: is for table_format iceberg, not parquet"),
        (GOOD | {"table_format": "iceberg", "namespace": "shop"}, "namespace: is one of a catalog"),
        (topic(current="upsert") | {"writer": "spark"}, "topics.t.current: upsert needs writer: direct"),
        (
            topic(current="rebuild") | {"table_format": "delta"},
            "topics.t.current: must be one of upsert, none",
        ),
        (GOOD | {"registry": "http://x"}, "registry must be a mapping"),
        (GOOD | {"registry": {"url": "x"}}, "registry.url: must begin with http:// or https://, not 'x'"),
        (GOOD | {"registry": {}}, "registry.url: is missing"),
        (GOOD | {"spark": {"remote": "host"}}, "spark.remote: must be like sc://host:15002"),
        (GOOD | {"spark": {"remote": "sc://h", "master": "local"}}, "spark.remote: give master or remote"),
        (topic(format="xml"), "topics.t.format: must be one of json, avro, protobuf, bytes, not 'xml'"),
        (topic(formt="json"), "topics.t.formt: there is no such field"),
        (topic(envelope="maxwell"), "topics.t.envelope: must be one of none, debezium"),
        (topic(current="merge"), "topics.t.current: must be one of rebuild, upsert, none"),
        (
            topic(format="avro"),
            "topics.t.schema: Spark DDL is for format json; avro needs schema_file or a registry",
        ),
        (topic(schema=None), "topics.t: format json needs schema_file or schema, or a registry"),
        (topic(schema=None, schema_file="x.avsc"), r"schema_file: must end with .json, .ddl for format json"),
        (topic(schema=None, schema_file="x.json"), "schema_file: there is no file"),
        (topic(schema=7, schema_file="x.json"), "give schema or schema_file, not both"),
        (topic(subjects="a"), "topics.t.subjects: must be a list of texts"),
        (
            {"data": "/d", "topics": {"a.b": {"schema": "i int"}, "a-b": {"schema": "i int"}}},
            "both have tables a_b_",
        ),
    ],
)
def test_what_is_wrong_is_named(content: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        parse_spec(content, tmp_path)
    assert told in str(error.value)


def test_a_project_that_is_made_can_be_read(tmp_path: Path) -> None:
    avsc = tmp_path / "f.avsc"
    avsc.write_text("{}")
    create(tmp_path / "p", "My.Flights", tmp_path / "data", format="avro", schema_file=avsc, bootstrap="h:1")
    spec = load_spec(tmp_path / "p")
    made = spec.topic("My.Flights")
    assert (spec.data, spec.bootstrap_servers) == (tmp_path / "data", "h:1")
    assert made.schema_file == tmp_path / "p/schemas/f.avsc"
    assert made.tables == (
        "my_flights_bronze",
        "my_flights_decoded",
        "my_flights_dead_letters",
        "my_flights_current",
    )
    code = (tmp_path / "p/transformations/my_flights.py").read_text()
    compile(code, "my_flights.py", "exec")
    with pytest.raises(SpecError, match="is a pipeline project already"):
        create(tmp_path / "p", "other", tmp_path, schema="id int")
    with pytest.raises(SpecError, match=r"topics has no 'x'; it has My.Flights"):
        spec.topic("x")
    with pytest.raises(SpecError, match="is no pipeline project"):
        load_spec(tmp_path)


UNREADABLE = {
    "no YAML": b"a: [1,",
    "no text": bytes(range(128, 256)),
    "zeros": bytes(100),
    "deep": b"[" * 20_000,
    "large": b"a: [" + b"1, " * 500_000 + b"]",
    "code": b"!!python/object/apply:os.getcwd []",
}
# A few hundred bytes that would be written out as 10^9 times "x".
BOMB = b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 9)
)


@pytest.mark.slow
@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("name", [SPEC_FILE, SPARK_SPEC_FILE])
def test_files_that_nobody_can_read_are_refused(name: str, content: bytes, tmp_path: Path) -> None:
    create(tmp_path / "p", "t", tmp_path / "data", schema="id int")
    (tmp_path / "p" / name).write_bytes(content)
    with pytest.raises(SpecError, match=name):
        local_storage_of(load_spec(tmp_path / "p"))


def test_a_value_without_end_is_not_written_out(tmp_path: Path) -> None:
    (tmp_path / SPEC_FILE).write_bytes(BOMB + b"data: /d\ntopics: *a8\n")
    with pytest.raises(SpecError, match="a0: there is no such field"):
        load_spec(tmp_path)
    (tmp_path / SPEC_FILE).write_bytes(BOMB.replace(b"a8: ", b"topics: "))
    with pytest.raises(SpecError, match="a0: there is no such field"):
        load_spec(tmp_path)
    (tmp_path / SPEC_FILE).write_bytes(b"- " + BOMB.replace(b"\n", b"\n  "))
    with pytest.raises(SpecError, match="must be a mapping") as error:
        load_spec(tmp_path)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("storage", ["", "storage:", "storage: 5", "storage: [a]", "- storage", "storage"])
def test_spark_has_to_be_told_where_checkpoints_are(storage: str, tmp_path: Path) -> None:
    create(tmp_path / "p", "t", tmp_path / "data", schema="id int")
    (tmp_path / "p" / SPARK_SPEC_FILE).write_text(storage)
    with pytest.raises(SpecError, match="storage must be the URL of a directory"):
        local_storage_of(load_spec(tmp_path / "p"))


def test_checkpoints_elsewhere_are_no_local_directory(tmp_path: Path) -> None:
    create(tmp_path / "p", "t", tmp_path / "data", schema="id int")
    project = load_spec(tmp_path / "p")
    assert local_storage_of(project) == tmp_path / "p" / "storage"
    (tmp_path / "p" / SPARK_SPEC_FILE).write_text("storage: s3a://bucket/p")
    assert local_storage_of(project) is None
    with pytest.raises(
        SpecError, match=r"storage is s3a://bucket/p; progress is read from local checkpoints"
    ):
        storage_of(project)


def test_names_of_tables() -> None:
    assert [table_name(each) for each in ("a", "A.b--c", "9x", "tenant/ns/t")] == [
        "a",
        "a_b_c",
        "t_9x",
        "tenant_ns_t",
    ]


def test_files_that_the_sink_did_not_commit_are_no_rows(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    line = '{"path":"file://%s","size":1,"isDir":false,"modificationTime":1,"blockReplication":1,"blockSize":1,"action":"add"}'
    (log / "9.compact").write_text("v1\n" + line % "/t/a%20b.parquet" + "\n" + line % "/t/c.parquet")
    (log / "10").write_text("v1\n" + line % "/t/d.parquet")
    (log / "3").write_text("v1\n" + line % "/t/never.parquet")
    (tmp_path / "orphan.parquet").write_text("")
    assert parquet_files(tmp_path) == ["/t/a b.parquet", "/t/c.parquet", "/t/d.parquet"]


def test_only_what_a_killed_job_of_spark_s_left_is_taken_away(tmp_path: Path) -> None:
    def part(number: int) -> Path:
        return tmp_path / f"part-0000{number}-203deca7-a9ca-4b1c-92a7-459c1eb2344{number}-c000.snappy.parquet"

    own = tmp_path / "part-of-somebody.parquet"
    side = part(1).with_name(f".{part(1).name}.crc")
    for path in (part(0), part(1), part(2), own, side):
        path.touch()
    assert remove_uncommitted(tmp_path, time.time() + 60) == []  # no log: every file counts
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    assert remove_uncommitted(tmp_path, time.time() + 60) == []
    (log / "0").write_text(f'v1\n{{"path":"file://{part(0)}","action":"add"}}')
    os.utime(part(2), (2_000_000_000, 2_000_000_000))
    assert remove_uncommitted(tmp_path, 2_000_000_000) == [part(1).name]
    assert sorted(tmp_path.iterdir()) == sorted([log, own, part(0), part(2)])
