"""What a registered schema may cost: steps by what it is, one subject's wait and nobody else's, and a plain answer."""

from __future__ import annotations

import asyncio
import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from magnetar.metadata import MemoryStore
from magnetar.metadata.cache import MetadataCache
from magnetar.schema_registry import kinds
from magnetar.schema_registry.endpoints import register
from magnetar.schema_registry.errors import InvalidSchema
from magnetar.schema_registry.kinds import json_kind, protoc
from magnetar.schema_registry.kinds.protoc import ProtocFailed, compile_texts
from magnetar.schema_registry.levels import Level
from magnetar.schema_registry.references import MAX_REFERENCES, walk
from magnetar.schema_registry.registry import Overtaken, Registry
from magnetar.schema_registry.schema import Reference, Schema
from magnetar.schema_registry.store import RegistryContents
from magnetar.schema_registry.work import TooComplex, Work
from magnetar.schema_registry.workshop import Locks, Workshop
from tests.schema_registry.test_avro_work import chain


def json_chain(length: int, last: str = "string") -> str:
    """Each definition refers twice to the next."""
    definitions: dict[str, Any] = {
        f"d{n}": {
            "properties": {"a": {"$ref": f"#/definitions/d{n + 1}"}, "b": {"$ref": f"#/definitions/d{n + 1}"}}
        }
        for n in range(length)
    }
    return json.dumps(
        {"$ref": "#/definitions/d0", "definitions": definitions | {f"d{length}": {"type": last}}}
    )


def json_steps(length: int) -> int:
    one = json_kind.parse(json_chain(length), {}, Work())
    other = json_kind.parse(json_chain(length), {}, Work())
    work = Work()
    assert one.reads(other, work) == []
    return work.steps


def test_definitions_of_json_schema_are_compared_once() -> None:
    assert json_steps(40) < 2.2 * json_steps(20) < 10_000
    narrower = json_kind.parse(json_chain(40, "integer"), {}, Work())
    assert narrower.reads(json_kind.parse(json_chain(40), {}, Work()), Work())


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ({"$ref": "#/definitions/x"}, {"$ref": "#/definitions/x"}),
        ({"$ref": "#/enum"}, {"$ref": "#/title"}),
        ({"allOf": [{"$ref": "#"}]}, {"oneOf": [{"$ref": "#"}]}),
        (
            {"properties": {"a": {"$ref": "#/required"}}},
            {"properties": {"a": {"$ref": "#/x"}}, "x": {"type": 7}},
        ),
    ],
)
def test_references_that_lead_in_circles_or_to_no_schema_have_an_end(new: Any, old: Any) -> None:
    given = {"enum": ["x"], "title": "t", "required": ["q"]}
    mine, theirs = (json_kind.parse(json.dumps(each | given), {}, Work()) for each in (new, old))
    assert isinstance(mine.reads(theirs, Work()), list)


def test_what_a_definition_means_counts_where_its_name_stays() -> None:
    same = {"properties": {"a": {"$ref": "#/definitions/x"}}}
    old, new = (
        json_kind.parse(json.dumps(same | {"definitions": {"x": {"type": each}}}), {}, Work())
        for each in ("string", "integer")
    )
    assert new.reads(old, Work())


def test_checking_a_json_schema_is_counted() -> None:
    with pytest.raises(TooComplex):
        json_kind.parse(
            json.dumps({"properties": {f"p{n}": {"type": "string"} for n in range(500)}}), {}, Work(5_000)
        )
    # Of different kinds, which no order sorts: it was a comparison of each with each.
    mixed = [value for n in range(3_000) for value in (n, f"t{n}")]
    work = Work()
    draft = "http://json-schema.org/draft-04/schema#"
    json_kind.parse(json.dumps({"$schema": draft, "enum": mixed}), {}, work)
    assert work.steps < 5 * len(mixed)
    with pytest.raises(InvalidSchema, match="non-unique"):
        json_kind.parse(json.dumps({"$schema": draft, "enum": [1, 1]}), {}, Work())


# -- references -------------------------------------------------------------------------------------------------


async def registry() -> Registry:
    made = Registry(RegistryContents(MetadataCache(MemoryStore()), "public"))
    await made.kept.load()
    await made.set_level(None, Level.NONE)
    return made


async def put(registry: Registry, name: str, text: str, *references: Reference, kind: str = "JSON") -> int:
    return await registry.register(name, registry.understand(Schema(kind, text, references), Work()))


async def test_each_schema_that_references_lead_to_is_taken_once() -> None:
    kept = await registry()
    await put(kept, "s0", '{"type": "string"}')
    for number in range(1, 60):  # each names the one before twice
        before = f"s{number - 1}"
        await put(kept, f"s{number}", "{}", Reference("a", before, 1), Reference("b", before, 1))
    found = walk(kept, (Reference("top", "s59", 1),))
    assert len(found) == 60 + 59
    assert found[0].reference.subject == "s0", "those that others refer to come first"
    assert found[-1].reference.subject == "s59"


async def test_what_a_store_does_not_take_is_no_fault_of_the_brokers() -> None:
    """A text of less than a megabyte may take more where it is stored, and be there beside other changes."""
    kept = await registry()
    for size in (1_000_000, 1_040_000):
        with pytest.raises(InvalidSchema, match="Too large to be stored"):
            await put(kept, "s", json.dumps({"title": "x" * size}))
    with pytest.raises(InvalidSchema, match="Too large to be stored"):
        await put(kept, "s", json.dumps({"title": '"' * 400_000}))
    assert not kept.kept.subjects
    await put(kept, "s", json.dumps({"title": "x" * 960_000}))


async def test_references_have_a_bound() -> None:
    kept = await registry()
    await put(kept, "s", "{}")
    many = tuple(Reference(f"r{number}", "s", 1) for number in range(MAX_REFERENCES + 1))
    with pytest.raises(InvalidSchema, match="more than"):
        kept.understand(Schema("JSON", "{}", many), Work())
    large = json.dumps({"title": "x" * 900_000})
    for number in range(5):
        await put(kept, f"large{number}", large.replace("xx", f"x{number}", 1))
    with pytest.raises(InvalidSchema, match="larger than"):
        kept.understand(
            Schema("JSON", "{}", tuple(Reference(f"r{n}", f"large{n}", 1) for n in range(5))), Work()
        )


async def test_references_in_a_circle_have_an_end() -> None:
    kept = await registry()
    await put(kept, "a", "{}")
    await put(kept, "b", "{}", Reference("a", "a", 1))
    circle = Schema("JSON", "{}", (Reference("b", "b", 1),))
    await kept.kept.change(lambda changes: changes.schema(1, circle))
    assert len(walk(kept, (Reference("a", "a", 1),))) == 3


async def test_a_reference_is_looked_for_again_when_a_schema_is_registered() -> None:
    kept = await registry()
    await put(kept, "a", "{}")
    new = kept.understand(Schema("JSON", "{}", (Reference("a", "a", 1),)), Work())
    await kept.delete_subject("a", permanent=False)
    await kept.delete_subject("a", permanent=True)
    with pytest.raises(InvalidSchema, match="no schema reference found"):
        await kept.register("b", new)


async def test_what_was_understood_is_kept_as_long_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.schema_registry.registry.MAX_PARSED_BYTES", 1_000)
    kept = await registry()
    for number in range(50):
        await put(kept, "s", json.dumps({"title": f"{number:0100}"}))
    assert len(kept._parsed) < 12


# -- one subject and the others -----------------------------------------------------------------------------------


async def test_another_subject_goes_on_while_one_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on = threading.Event(), threading.Event()
    understand = kinds.parse

    def parse(kind: str, text: str, references: Any, work: Work) -> Any:
        if "heavy" in text:
            began.set()
            assert go_on.wait(30)
        return understand(kind, text, references, work)

    monkeypatch.setattr(kinds, "parse", parse)
    kept, locks, workshop = await registry(), Locks(), Workshop()

    def asked(subject: str, text: str) -> Any:
        from magnetar.schema_registry.request import RegistryRequest

        body = json.dumps({"schema": text}).encode()
        off = SimpleNamespace(
            security=SimpleNamespace(authorization=SimpleNamespace(access=lambda role: None))
        )
        made = RegistryRequest(
            {"subject": subject}, {}, body, kept, locks, workshop, off, None, "public/default"
        )  # type: ignore[arg-type]
        made.__dict__["_access"] = None
        return asyncio.ensure_future(register(made))

    heavy = asked("one", json.dumps({"type": "record", "name": "heavy", "fields": []}))
    assert await asyncio.to_thread(began.wait, 30)
    assert (await asked("other", '"string"'))["id"] == 1
    later = asked("one", '"int"')
    await asyncio.sleep(0)
    assert len(locks) == 1
    go_on.set()
    assert [(await each)["version"] for each in (heavy, later)] == [1, 2]
    assert len(locks) == 0
    workshop.close()


async def test_avro_of_many_ways_is_registered() -> None:
    kept = await registry()
    await kept.set_level(None, Level.FULL_TRANSITIVE)
    await put(kept, "s", json.dumps(chain(40)), kind="AVRO")
    new = kept.understand(Schema("AVRO", json.dumps(chain(40, type="string"))), Work())
    reasons = kept.clashes(kept.level("s"), new, kept.older("s"), Work())
    assert any("not compatible" in each for each in reasons)
    with pytest.raises(InvalidSchema, match="too complex"):
        kept.clashes(kept.level("s"), new, kept.older("s"), Work(20))


# -- Protobuf ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [".", "..", "", "a/../b", "/a", "a\0b", "a" * 5_000, "a//b", "-I", "a/./b"])
def test_names_of_imported_files_are_names(name: str) -> None:
    with pytest.raises(ProtocFailed):
        compile_texts({name: 'syntax = "proto3";', "schema.proto": 'syntax = "proto3";'}, "schema.proto")


def test_a_name_that_is_a_directory_to_another_is_refused() -> None:
    with pytest.raises(ProtocFailed):
        compile_texts({"a": 'syntax = "proto3";', "a/b": 'syntax = "proto3";'}, "a")


def test_protoc_ends_with_who_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protoc, "_LOOK_S", 0.0)  # at a machine that is busy it may end between two looks
    with pytest.raises(TooComplex):
        compile_texts(
            {"schema.proto": "// " + "x" * 5_000_000 + "\n"}, "schema.proto", work=Work(is_over=lambda: True)
        )


@pytest.mark.parametrize(
    "name", ["google/protobuf/nothing.proto", "google/protobuf/../../os.proto", "other.proto"]
)
def test_a_descriptor_that_imports_what_is_not_there_is_refused(name: str) -> None:
    import base64

    file = descriptor_pb2.FileDescriptorProto(name="x.proto", syntax="proto3", dependency=[name])
    file.message_type.add(name="M")
    with pytest.raises(InvalidSchema):
        kinds.parse("PROTOBUF", base64.b64encode(file.SerializeToString()).decode(), {}, Work())


async def test_two_registries_on_one_store_never_give_one_id_to_two_schemas() -> None:
    store = MemoryStore()
    both = [
        Registry(RegistryContents(MetadataCache(MemoryStore(store.blocking)), "public")) for _ in range(2)
    ]  # type: ignore[arg-type]
    for each in both:
        await each.kept.load()
    await both[0].set_level(None, Level.NONE)
    ids = await asyncio.gather(
        *(put(both[n % 2], f"s{n % 5}", json.dumps({"title": str(n)})) for n in range(40))
    )
    assert sorted(ids) == list(range(1, 41))
    for _ in range(50):
        await asyncio.sleep(0)
    for each in both:
        assert {number: json.loads(schema.text)["title"] for number, schema in each.kept.schemas.items()} == {
            number: str(n) for n, number in enumerate(ids)
        }
        versions = [(each.versions(f"s{n}")) for n in range(5)]
        assert [[one.version for one in found] for found in versions] == [list(range(1, 9))] * 5


async def test_what_was_checked_against_is_still_there_when_a_schema_is_registered() -> None:
    kept = await registry()
    await put(kept, "s", "{}")
    before = kept.kept.subjects["s"]
    new = kept.understand(Schema("JSON", '{"title": "new"}'), Work())
    await put(kept, "s", '{"title": "faster"}')
    with pytest.raises(Overtaken):
        await kept.register("s", new, checked=before)
    assert await kept.register("s", new, checked=kept.kept.subjects["s"]) == 3
