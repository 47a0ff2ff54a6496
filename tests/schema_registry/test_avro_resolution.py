"""Our Avro rules against fastavro's resolution: pairs of schemas that Hypothesis makes, and data written with the one.

What ours calls compatible fastavro must read. Where fastavro refuses every datum, ours must refuse. Known to differ:

- fastavro takes a reader's union's first type that *looks* right, and may fail inside it where another would do.
- fastavro asks of an enum only the symbol that was written; ours, as Avro's own checker, asks for all of them.
- fastavro finds aliases by their short names, too; Avro's are full names.
- fastavro reads bytes as text only if they are UTF-8. What is written here is.
- fastavro applies logical types after reading; ours, as Avro's own checkers, does not look at them.
"""

from __future__ import annotations

import io
import itertools
from typing import Any

import fastavro
import pytest
from fastavro.read import SchemaResolutionError
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from magnetar.schema_registry.avro_compatibility import can_read, clashes
from magnetar.schema_registry.avro_types import types_of
from magnetar.schema_registry.work import Work

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DATA = {
    "null": None,
    "boolean": True,
    "int": 7,
    "long": 7,
    "float": 1.0,
    "double": 1.0,
    "bytes": b"x",
    "string": "x",
}
SPACES = ("", "p", "q.r")


@st.composite
def kinds(draw: st.DrawFn, depth: int, names: Any) -> Any:
    """Return a type; each named one once, as Avro asks."""
    choice = draw(
        st.sampled_from(
            ("plain",) * 3 + (("array", "map", "union", "record", "enum", "fixed") if depth else ())
        )
    )
    if choice == "array":
        return {"type": "array", "items": draw(kinds(depth - 1, names))}
    if choice == "map":
        return {"type": "map", "values": draw(kinds(depth - 1, names))}
    if choice == "union":
        plain = draw(st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=3, unique=True))
        return plain + ([draw(named("record", depth - 1, names))] if draw(st.booleans()) else [])
    if choice == "plain":
        plain_type = draw(st.sampled_from(PRIMITIVES))
        if plain_type == "bytes" and draw(st.booleans()):
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": draw(st.integers(2, 9)),
                "scale": 1,
            }
        return plain_type
    return draw(named(choice, depth - 1, names))


@st.composite
def named(draw: st.DrawFn, kind: str, depth: int, names: Any) -> Any:
    """Return a named type: A or B, with a number behind it that makes it the only one."""
    name = f"{draw(st.sampled_from('AB'))}{next(names)}"
    made: dict[str, Any] = {"type": kind, "name": name, "namespace": draw(st.sampled_from(SPACES))}
    if draw(st.integers(0, 4)) == 0:
        other = draw(st.sampled_from("AB")) + name[1:]
        space = draw(st.sampled_from(SPACES))
        made["aliases"] = [f"{space}.{other}" if space else other]
    if kind == "enum":
        made["symbols"] = draw(st.lists(st.sampled_from("XYZ"), min_size=1, unique=True))
        if draw(st.booleans()):
            made["default"] = made["symbols"][0]
    elif kind == "fixed":
        made["size"] = draw(st.integers(1, 2))
    else:
        made["fields"] = []
        for field in draw(st.lists(st.sampled_from("abc"), unique=True, max_size=3)):
            said: dict[str, Any] = {"name": field, "type": draw(kinds(depth, names))}
            if said["type"] in ("int", "long", "string") and draw(st.booleans()):
                said["default"] = "" if said["type"] == "string" else 0
            if draw(st.integers(0, 4)) == 0:
                said["aliases"] = [draw(st.sampled_from("de"))]
            made["fields"].append(said)
        if draw(st.integers(0, 3)) == 0:  # it holds itself
            full = f"{made['namespace']}.{name}" if made["namespace"] else name
            made["fields"].append({"name": "next", "type": ["null", full], "default": None})
    return made


@st.composite
def changed(draw: st.DrawFn, node: Any, depth: int = 0) -> Any:
    """Return a type with a few things otherwise."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(PRIMITIVES))
    if isinstance(node, list):
        found = [draw(changed(each, depth + 1)) for each in node]
        if draw(st.integers(0, 4)) == 0:
            found = found[1:] or ["null"]
        return [each for each in found if not isinstance(each, list)] or ["null"]
    if not isinstance(node, dict):
        wider = {"int": "long", "long": "double", "float": "double", "string": "bytes", "bytes": "string"}
        if node in wider and draw(st.integers(0, 3)) == 0:
            return wider[node]
        return ["null", node] if node in PRIMITIVES[1:] and draw(st.integers(0, 7)) == 0 else node
    made = dict(node)
    for inside in ("items", "values"):
        if inside in made:
            made[inside] = draw(changed(made[inside], depth + 1))
    if "name" in made and draw(st.integers(0, 5)) == 0:
        what = draw(st.sampled_from(("name", "namespace", "aliased")))
        if what == "namespace":
            made["namespace"] = draw(st.sampled_from(SPACES))
        else:
            other = ("B" if made["name"][0] == "A" else "A") + made["name"][1:]
            if what == "aliased":
                space = made["namespace"]
                made["aliases"] = [f"{space}.{made['name']}" if space else made["name"]]
            made["name"] = other
    if "symbols" in made and draw(st.integers(0, 2)) == 0:
        made["symbols"] = draw(st.lists(st.sampled_from("XYZ"), min_size=1, unique=True))
        made.pop("default", None)
    if "size" in made and draw(st.integers(0, 4)) == 0:
        made["size"] = 3
    if "fields" in made:
        kept = []
        for each in made["fields"]:
            how = draw(st.sampled_from(("same", "same", "gone", "default", "named")))
            if each["name"] == "next":
                continue
            if how != "gone":
                each = each | {"type": draw(changed(each["type"], depth + 1))}
                each.pop("default", None)
                if how == "default" and each["type"] == "int":
                    each["default"] = 0
                if how == "named":
                    each |= {"name": f"{each['name']}{each['name']}", "aliases": [each["name"]]}
                kept.append(each)
        if draw(st.booleans()):
            kept.append({"name": "new", "type": "int"} | ({"default": 1} if draw(st.booleans()) else {}))
        made["fields"] = kept
    return made


def data_for(node: Any) -> list[Any]:
    """Return data of a type: each branch of a union, each symbol of an enum."""
    if isinstance(node, list):
        return [
            (_name(each), one) if isinstance(each, dict) else one for each in node for one in data_for(each)
        ]
    if isinstance(node, str):
        return [DATA.get(node)]
    kind = node["type"]
    if kind == "array":
        return [[each] for each in data_for(node["items"])]
    if kind == "map":
        return [{"k": each} for each in data_for(node["values"])]
    if kind == "enum":
        return list(node["symbols"])
    if kind == "fixed":
        return [b"x" * node["size"]]
    if kind == "record":
        fields = [data_for(each["type"])[:4] for each in node["fields"]]
        rows = itertools.islice(itertools.zip_longest(*fields), 4) if fields else [()]
        return [
            {
                each["name"]: known[0] if one is None else one
                for each, one, known in zip(node["fields"], row, fields, strict=True)
            }
            for row in rows
        ]
    return [b"\x07"] if "logicalType" in node else data_for(kind)


def _name(node: dict[str, Any]) -> str:
    space = node.get("namespace")
    return f"{space}.{node['name']}" if space and "name" in node else str(node.get("name", node["type"]))


def read(writer: Any, reader: Any, datum: Any) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, writer, datum, disable_tuple_notation=False)
    out.seek(0)
    fastavro.schemaless_reader(out, writer, reader)


def plain(node: Any) -> Any:
    """Return a schema without logical types: what they ask of values is no question of resolution."""
    if isinstance(node, list):
        return [plain(each) for each in node]
    if isinstance(node, dict):
        return {
            key: plain(value)
            for key, value in node.items()
            if key not in ("logicalType", "precision", "scale")
        }
    return node


def holds(node: Any, wanted: Any) -> bool:
    if wanted(node):
        return True
    inside = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return any(holds(each, wanted) for each in inside)


PAIRS = (
    st.integers(2, 3)
    .flatmap(lambda depth: named("record", depth, itertools.count()))
    .flatmap(lambda old: st.tuples(st.just(old), changed(old)))
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(PAIRS)
def test_what_is_called_compatible_is_read(pair: tuple[Any, Any]) -> None:
    writer, reader = pair
    try:
        ours = can_read(reader, writer)
    except ValueError:
        assume(False)
    errors = []
    rows = data_for(plain(writer))
    for datum in rows:
        try:
            read(plain(writer), plain(reader), datum)
        except (SchemaResolutionError, ValueError, KeyError, TypeError) as error:
            errors.append(error)
    event(f"{'compatible' if ours else 'not'}, {len(errors)} of {len(rows)} not read")
    several = holds(reader, lambda node: isinstance(node, list) and len(node) > 1)
    if ours and not several:
        assert not errors, (writer, reader, errors[0])
    shortly = holds(reader, lambda node: isinstance(node, dict) and "aliases" in node)
    if len(errors) == len(rows) and not several and not shortly:
        assert not ours, (writer, reader, errors[0])


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ({"type": "record", "name": "B", "fields": []}, {"type": "record", "name": "A", "fields": []}),
        ({"type": "fixed", "name": "B", "size": 1}, {"type": "fixed", "name": "A", "size": 1}),
        ({"type": "enum", "name": "B", "symbols": ["X"]}, {"type": "enum", "name": "A", "symbols": ["X"]}),
    ],
)
def test_names_count(reader: Any, writer: Any) -> None:
    assert not can_read(reader, writer)
    assert can_read(reader | {"aliases": ["A"]}, writer)
    assert not can_read(reader | {"aliases": ["other.A"]}, writer)
    assert can_read(reader | {"name": "elsewhere.A"}, writer), "the last part of the names"
    with pytest.raises(SchemaResolutionError):
        read(writer, reader, data_for(writer)[0])


def test_types_of_one_short_name_are_two() -> None:
    def holding(space: str, kind: str) -> Any:
        inner = [{"type": "record", "name": f"{each}.Foo", "fields": [{"name": "q", "type": k}]} for each, k in
                 (("a", "int"), ("b", "string"))]  # fmt: skip
        fields = [
            {"name": "one", "type": inner[0]},
            {"name": "two", "type": inner[1]},
            {"name": "x", "type": f"{space}.Foo"},
        ]
        return {"type": "record", "name": "R", "fields": fields}

    assert can_read(holding("a", ""), holding("a", ""))
    assert not can_read(holding("a", ""), holding("b", ""))


def test_a_guess_inside_a_union_is_not_kept() -> None:
    """A type that holds itself, tried in a union and found not to fit, leaves nothing behind that counts as fitting."""

    def tree(leaf: str) -> Any:
        node = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "T"]}]}
        return {
            "type": "record",
            "name": "T",
            "fields": [{"name": "n", "type": node}, {"name": "leaf", "type": leaf}],
        }

    assert can_read(tree("long"), tree("int"))
    assert not can_read(tree("int"), tree("string"))
    other = {"type": "record", "name": "W", "fields": [{"name": "u", "type": [tree("int"), "N"]}]}
    assert not can_read(
        other, {"type": "record", "name": "W", "fields": [{"name": "u", "type": tree("string")}]}
    )


def test_a_short_name_is_first_one_of_its_namespace() -> None:
    def using(kind: str) -> Any:
        """Foo in namespace a is of this kind, and one without a namespace always the same; the writer has the first."""
        foo = {"type": "record", "name": "Foo", "fields": [{"name": "q", "type": "boolean"}]}
        inner = {"type": "record", "name": "a.Foo", "fields": [{"name": "q", "type": kind}]}
        user = {"type": "record", "name": "a.User", "fields": [{"name": "x", "type": "Foo"}]}
        told = {
            "type": "record",
            "name": "Told",
            "fields": [{"name": "foo", "type": foo}, {"name": "in", "type": inner}],
        }
        return {
            "type": "record",
            "name": "R",
            "fields": [{"name": "t", "type": ["null", told]}, {"name": "u", "type": user}],
        }

    def user_only(content: Any) -> Any:
        return next(each.type for each in types_of([content], Work()).fields if each.name == "u")

    reader, writer = user_only(using("int")), user_only(using("string"))
    assert clashes(reader, writer, Work())
    assert not clashes(reader, user_only(using("int")), Work())
