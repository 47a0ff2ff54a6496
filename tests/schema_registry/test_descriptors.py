"""Protobuf descriptors in base64, as clients send them: taken as protoc would, or refused, whatever is in them."""

from __future__ import annotations

import base64
import random

import pytest
from google.protobuf import descriptor_pb2

from magnetar.schema_registry.errors import InvalidSchema
from magnetar.schema_registry.kinds import protobuf_kind
from magnetar.schema_registry.kinds.protobuf_text import as_text
from magnetar.schema_registry.kinds.protoc import compile_texts
from magnetar.schema_registry.work import Work

_F = descriptor_pb2.FieldDescriptorProto
MAIN = "schema.proto"
TEXT = """syntax = "proto2"; package p; import "google/protobuf/timestamp.proto";
message M {
  optional google.protobuf.Timestamp t = 1; repeated int32 n = 3; oneof o { string a = 4; M b = 5; }
  map<string, M> m = 6; optional group G = 7 { optional int32 x = 1; } extensions 100 to 200; reserved 50 to 60;
  enum E { option allow_alias = true; X = 0; Y = 0; } optional E e = 9 [default = Y, json_name = "q"];
  extend M { optional group H = 101 { optional int32 y = 1; } }
}
extend M { optional int32 w = 100; optional group K = 102 { optional int32 y = 1; } }
service S { rpc R (stream M) returns (M); }
"""
OTHERS = {"x.proto": 'syntax = "proto3"; message X {}'}


def compiled(text: str) -> descriptor_pb2.FileDescriptorProto:
    return next(each for each in compile_texts({MAIN: text}, MAIN, work=Work()).file if each.name == MAIN)


def encoded(file: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def test_groups_of_extensions_are_written_where_they_are() -> None:
    file = compiled(TEXT)
    again = compiled(as_text(file))
    file.ClearField("source_code_info")
    again.ClearField("source_code_info")
    assert again == file
    assert protobuf_kind.parse(encoded(file), {}, Work()).text == as_text(file)


@pytest.mark.parametrize("references", [{}, OTHERS])
@pytest.mark.parametrize("what", ["group", "extension", "oneof", "entry", "loose entry", "name", "type"])
def test_what_no_text_compiles_to_is_refused(what: str, references: dict[str, str]) -> None:
    file = compiled(TEXT)
    message = file.message_type[0]
    match what:
        case "group":
            message.field[0].type = _F.TYPE_GROUP
        case "extension":
            file.extension[0].type, file.extension[0].type_name = _F.TYPE_GROUP, ".p.M"
            del file.message_type[1:]
        case "oneof":
            message.field[0].oneof_index = 7
        case "entry":
            next(each for each in message.nested_type if each.options.map_entry).field.pop()
        case "loose entry":
            file.message_type.add(name="Loose").options.map_entry = True
        case "name":
            message.name = "a b"
        case "type":
            message.field[0].type_name = ".p.Nowhere"
    with pytest.raises(InvalidSchema):
        protobuf_kind.parse(encoded(file), references, Work())


def test_files_that_confluents_and_googles_schemas_import_need_no_reference() -> None:
    file = compiled(
        'syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto"; '
        'import "google/type/money.proto"; message M { confluent.type.Decimal d = 1; google.type.Money m = 2; }'
    )
    assert protobuf_kind.parse(encoded(file), {}, Work()).text == as_text(file)
    own = {"confluent/meta.proto": 'syntax = "proto3"; message Mine {}'}
    mine = compile_texts(
        {**own, MAIN: 'syntax = "proto3"; import "confluent/meta.proto"; message M { Mine a = 1; }'}
    )
    assert {each.name for each in mine.file} == {"confluent/meta.proto", MAIN}
    with pytest.raises(InvalidSchema, match=r"confluent/other\.proto"):
        protobuf_kind.parse('syntax = "proto3"; import "confluent/other.proto"; message M {}', {}, Work())


def test_damaged_descriptors_are_taken_or_refused() -> None:
    good, dice = compiled(TEXT).SerializeToString(), random.Random(7)
    refused = taken = 0
    for number in range(1500):
        said = bytearray(good)
        for _ in range(dice.randrange(3)):
            at = dice.randrange(len(said))
            said[at : at + dice.randrange(3)] = bytes(
                [dice.choice((dice.randrange(256), said[at] ^ 1, 10, 11))]
            )
        text = base64.b64encode(said).decode()
        if protobuf_kind.of_base64(text) is None:
            continue  # it would be taken for a text
        try:
            # With references it costs a process each time.
            schema = protobuf_kind.parse(text, OTHERS if number % 50 == 0 else {}, Work())
        except InvalidSchema:
            refused += 1
        else:
            assert schema.reads(schema, Work()) == []
            taken += 1
    assert min(taken, refused) > 20
