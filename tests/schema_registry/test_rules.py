"""What may follow what, rule by rule: JSON Schema and Protobuf, as Confluent's registry decides the same changes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from magnetar.schema_registry import kinds
from magnetar.schema_registry.work import Work

TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}


def properties(rest: Any = True, **named: Any) -> dict[str, Any]:
    return {"type": "object", "properties": named, "additionalProperties": rest}


def items(*first: Any, rest: Any = True) -> dict[str, Any]:
    return {"type": "array", "items": list(first), "additionalItems": rest}


def reads(kind: str, new: str, old: str) -> bool:
    parsed = [kinds.parse(kind, each, {}, Work()) for each in (new, old)]
    return not parsed[0].reads(parsed[1], Work())


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        # what is not named
        (properties(a=TEXT), properties(TEXT, a=TEXT), False),
        (properties(WHOLE), properties(NUMBER), True),
        (properties(NUMBER), properties(WHOLE), False),
        (properties(False, a=False), properties(False), True),
        (properties(False, a=TEXT), properties(TEXT), True),
        (properties(False, a=TEXT), properties(WHOLE), False),
        (properties(TEXT), properties(TEXT, a=TEXT), True),
        (properties(WHOLE), properties(WHOLE, a=TEXT), False),
        (properties(), properties(a={}), True),
        # patterns of names
        (properties(False, I_1=WHOLE), properties(False) | {"patternProperties": {"^I_": WHOLE}}, True),
        (properties(False, I_1=TEXT), properties(False) | {"patternProperties": {"^I_": WHOLE}}, False),
        (properties(False, x=TEXT), properties(False) | {"patternProperties": {"^I_": TEXT}}, False),
        (properties(), {"type": "object", "patternProperties": {"^I_": WHOLE}}, False),
        (properties(False) | {"patternProperties": {"^I_": WHOLE}}, properties(False), False),
        (properties(False) | {"patternProperties": {"^I_": WHOLE}}, properties(NUMBER), True),
        (properties(False) | {"patternProperties": {"^I_": WHOLE}}, properties(False, I_1=TEXT), False),
        # what depends on what
        ({"dependencies": {"a": ["b", "c"]}}, {"dependencies": {"a": ["b"]}}, True),
        ({"dependencies": {"a": ["b"]}}, {"dependencies": {"a": ["b", "c"]}}, False),
        ({"dependencies": {"a": TEXT}}, {}, True),
        ({}, {"dependencies": {"a": {"required": ["b"]}}}, False),
        ({"dependencies": {"a": WHOLE}}, {"dependencies": {"a": NUMBER}}, True),
        # items by place
        (items(TEXT), items(TEXT, WHOLE), False),
        (items(TEXT, rest=False), items(TEXT, WHOLE, rest=False), True),
        (items(TEXT, WHOLE), items(TEXT), True),
        (items(TEXT, WHOLE, rest=False), items(TEXT, rest=False), False),
        (items(TEXT, WHOLE, rest=False), items(TEXT, rest=NUMBER), True),
        (items(TEXT, rest=WHOLE), items(TEXT, NUMBER, rest=WHOLE), True),
        (items(TEXT), items(WHOLE), False),
        (items(TEXT), items(TEXT, rest=False), False),
        ({"prefixItems": [TEXT], "items": False}, {"prefixItems": [TEXT, WHOLE], "items": False}, True),
        # values
        (NUMBER | {"multipleOf": 10}, NUMBER | {"multipleOf": 5}, True),
        (NUMBER | {"multipleOf": 5}, NUMBER | {"multipleOf": 10}, False),
        (NUMBER, NUMBER | {"multipleOf": 1}, False),
        (NUMBER | {"minimum": 0}, NUMBER | {"minimum": 1}, False),
        (NUMBER, NUMBER | {"minimum": 0}, False),
        ({"type": "array"}, {"type": "array", "minItems": 0}, True),
        ({"type": "array"}, {"type": "array", "uniqueItems": True}, False),
        ({"type": "array", "uniqueItems": True}, {"type": "array"}, True),
        ({"const": 1}, {"enum": [1, 2]}, True),
        ({"enum": [1, 2]}, {"const": 1}, False),
        ({"enum": [True]}, {"enum": [1]}, False),
        (TEXT, TEXT | {"pattern": "^a"}, False),
        (TEXT | {"pattern": "^a"}, TEXT, True),
        ({"if": TEXT}, {"if": WHOLE}, False),
        # combinations
        ({"not": NUMBER}, {"not": WHOLE}, True),
        ({"not": WHOLE}, {"not": NUMBER}, False),
        ({}, {"not": WHOLE}, False),
        ({"allOf": [TEXT, {"maxLength": 5}]}, TEXT, True),
        (TEXT, {"allOf": [TEXT, {"maxLength": 5}]}, False),
        ({"anyOf": [TEXT, WHOLE]}, {"anyOf": [NUMBER, TEXT]}, True),
        ({"anyOf": [TEXT, WHOLE, {"type": "null"}]}, {"anyOf": [NUMBER, TEXT]}, False),
        (
            {"properties": {"a": TEXT}, "oneOf": [{"required": ["a"]}]},
            {"properties": {"a": WHOLE}, "oneOf": [{"required": ["a"]}]},
            False,
        ),
    ],
)  # fmt: skip
def test_json(old: Any, new: Any, fits: bool) -> None:
    assert reads("JSON", json.dumps(new), json.dumps(old)) is fits
    assert reads("JSON", json.dumps(new), json.dumps(new)), "each reads itself"


F = descriptor_pb2.FieldDescriptorProto


def file(*fields: Any, syntax: str = "proto3", package: str = "p") -> str:
    """Return a file of one message M and an enum E; a field is (number, type) or with (label, oneof) behind."""
    made = descriptor_pb2.FileDescriptorProto(name="m.proto", package=package, syntax=syntax)
    made.enum_type.add(name="E").value.add(name="ZERO", number=0)
    for name in ("N", "O"):
        made.message_type.add(name=name)
    message = made.message_type.add(name="M")
    for number, kind, *more in fields:
        label, oneof = (*more, None)[:2] if more else (F.LABEL_OPTIONAL, None)
        field = message.field.add(name=f"f{number}", number=number, label=label)
        if isinstance(kind, str):
            field.type, field.type_name = (
                (F.TYPE_ENUM if kind == "E" else F.TYPE_MESSAGE),
                f".{package}.{kind}",
            )
        else:
            field.type = kind
        if oneof is not None:
            names = [each.name for each in message.oneof_decl]
            if oneof not in names:
                message.oneof_decl.add(name=oneof)
                names.append(oneof)
            field.oneof_index = names.index(oneof)
    return base64.b64encode(made.SerializeToString()).decode()


I32, STR = F.TYPE_INT32, F.TYPE_STRING
ONE, MANY, MUST = F.LABEL_OPTIONAL, F.LABEL_REPEATED, F.LABEL_REQUIRED


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        (file((1, I32)), file((1, "E")), True),
        (file((1, "E")), file((1, F.TYPE_BOOL)), True),
        (file((1, I32)), file((1, F.TYPE_SINT32)), False),
        (file((1, I32)), file((1, F.TYPE_FIXED32)), False),
        (file((1, F.TYPE_FLOAT)), file((1, F.TYPE_DOUBLE)), False),
        (file((1, STR)), file((1, F.TYPE_BYTES)), True),
        (file((1, "N")), file((1, "O")), False),
        (file((1, "N")), file((1, I32)), False),
        (file((1, I32)), file((1, I32, MANY)), False),
        (file((1, STR)), file((1, STR, MANY)), True),
        (file((1, "N")), file((1, "N", MANY)), True),
        (file((1, I32), (2, STR)), file((1, I32)), True),
        (file((1, I32)), file((1, I32), package="q"), False),
        # oneofs
        (file((1, I32, ONE, "o"), (2, STR, ONE, "o")), file((1, I32, ONE, "o")), False),
        (file((1, I32, ONE, "o"), (2, STR, ONE, "o"), (3, STR)), file((3, STR)), True),
        (file((1, I32, ONE, "o"), (2, STR, ONE, "o")), file((1, I32)), False),
        (file((1, I32, ONE, "o"), (2, STR, ONE, "o")), file((1, I32, ONE, "x"), (2, STR, ONE, "x")), True),
        (file((1, I32, ONE, "o"), (2, STR, ONE, "o")), file((1, I32), (2, STR)), True),
        (file((1, I32), (2, STR)), file((1, I32, ONE, "o"), (2, STR)), True),
        (file((1, I32), (2, STR)), file((1, I32, ONE, "o"), (2, STR, ONE, "o")), False),
        (file((1, I32, ONE, "o"), (2, STR)), file((1, I32, ONE, "o"), (2, STR, ONE, "o")), False),
        (file((1, I32, ONE, "o")), file((1, I32, ONE, "o"), (2, STR, ONE, "o")), True),
        # required
        (file(syntax="proto2"), file((1, I32, MUST), syntax="proto2"), False),
        (file((1, I32, MUST), syntax="proto2"), file(syntax="proto2"), False),
        (file((1, STR), syntax="proto2"), file((1, STR, MUST), syntax="proto2"), False),
        (file((1, I32, MUST), syntax="proto2"), file((1, I32), syntax="proto2"), True),
    ],
)  # fmt: skip
def test_protobuf(old: str, new: str, fits: bool) -> None:
    assert reads("PROTOBUF", new, old) is fits
    assert reads("PROTOBUF", new, new), "each reads itself"
