"""What a schema must be, and what may follow it, kind by kind: Pulsar's validators and its compatibility checks.

    AVRO, PROTOBUF         an Avro schema (no union on top, of AVRO); read as Avro's resolution has it
    JSON                   the same, or a JSON Schema as old clients write it
    PROTOBUF_NATIVE        descriptors with a root message in them; the root's full name may not change
    KEY_VALUE              two schemas behind their sizes, kinds among the properties; each by the rules of its kind
    plain kinds            without a definition; only the same kind may follow

Everything here may take long and belongs in a thread: it counts its steps. ``tests/pulsar/schema_rules.json`` has what
a real broker answers.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from magnetar.pulsar.errors import IncompatibleSchema
from magnetar.pulsar.native_schemas import root_message
from magnetar.schema_registry.avro_compatibility import Rules, clashes
from magnetar.schema_registry.avro_types import Type, types_of
from magnetar.schema_registry.levels import Compatibility
from magnetar.schema_registry.work import TooComplex, Work, read_json
from magnetar.wire.pulsar import pulsar_pb2 as wire

MAX_BYTES = 1 << 20
_MAX_NESTED = 8
_BY_AVRO = frozenset((wire.Schema.Avro, wire.Schema.Json, wire.Schema.Protobuf))
_NONE = wire.Schema.Type.Value("None")
_TYPES = {name.lower(): number for name, number in wire.Schema.Type.items()}
_JSON_SCHEMA_TYPES = frozenset(("any", "array", "boolean", "integer", "null", "number", "object", "string"))
_SIZE = struct.Struct(">i")


class Strategy(Compatibility):
    """What a new version must be to the older ones, by Pulsar's names."""

    UNDEFINED = "UNDEFINED"
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


READS_THE_LATEST = frozenset(
    (Strategy.BACKWARD, Strategy.FORWARD, Strategy.FULL, Strategy.FORWARD_TRANSITIVE)
)
"""Under these a consumer must read what the latest schema writes, and no more."""


class Definition(NamedTuple):
    """A schema without the rest."""

    type: int
    data: bytes
    properties: Mapping[str, str]


def joined(key: bytes, value: bytes) -> bytes:
    """Return the data of a KEY_VALUE schema: both parts behind their sizes."""
    return _SIZE.pack(len(key)) + key + _SIZE.pack(len(value)) + value


class ParsedTopicSchema(NamedTuple):
    """A schema that is one."""

    type: int
    avro: Type | None = None
    """Of Avro's kinds, unless it is a JSON Schema."""
    text: Any = None
    """Of Avro's kinds: its JSON without what does not make another schema of it."""
    root: str = ""
    """Of PROTOBUF_NATIVE."""
    parts: tuple[ParsedTopicSchema, ...] = ()
    """Of KEY_VALUE."""


def type_name(number: int) -> str:
    """Return a kind by Pulsar's name."""
    name = str(wire.Schema.Type.Name(number))
    return {"ProtobufNative": "PROTOBUF_NATIVE", "KeyValue": "KEY_VALUE"}.get(name, name.upper())


def understand(schema: Definition, work: Work, depth: int = 0) -> ParsedTopicSchema:
    """Return what a schema means; raise `IncompatibleSchema` for what is none, in Pulsar's words."""
    if len(schema.data) > MAX_BYTES:
        raise IncompatibleSchema(f"a schema of {len(schema.data)} bytes; {MAX_BYTES} may be")
    work.step(1 + len(schema.data) // 64)
    try:
        if schema.type in _BY_AVRO:
            return _struct(schema, work)
        if schema.type == wire.Schema.ProtobufNative:
            return ParsedTopicSchema(schema.type, root=root_message(schema.data))
        if schema.type == wire.Schema.KeyValue:
            if depth == _MAX_NESTED:
                raise ValueError(f"KEY_VALUE in KEY_VALUE more than {_MAX_NESTED} times")
            parts = tuple(understand(each, work, depth + 1) for each in key_and_value(schema))
            return ParsedTopicSchema(schema.type, parts=parts)
    except (ValueError, RecursionError) as error:
        raise IncompatibleSchema(
            f"Invalid schema definition data for {type_name(schema.type)} schema: {error or 'nested too deeply'}"
        ) from None
    if schema.type == wire.Schema.String and schema.data not in (
        b"",
        b"null",
    ):  # null is what Python's client says
        raise IncompatibleSchema(f"Invalid schema definition data for string schema : {schema.data[:100]!r}")
    if schema.data and schema.type not in (_NONE, wire.Schema.String):
        raise IncompatibleSchema(
            "Invalid schema definition data for primitive schemas :length of schema data should be zero, "
            f"but {len(schema.data)} bytes is found"
        )
    return ParsedTopicSchema(schema.type)


def _struct(schema: Definition, work: Work) -> ParsedTopicSchema:
    content = read_json(_utf8(schema.data), work)
    try:
        avro = types_of([content], work)
    except TooComplex:
        raise
    except ValueError:
        if schema.type == wire.Schema.Json and _is_json_schema(content):
            return ParsedTopicSchema(schema.type, text=content)
        raise
    if schema.type == wire.Schema.Avro and avro.kind == "union":
        raise ValueError("Avro schema typed [UNION] is not supported")
    return ParsedTopicSchema(schema.type, avro, _spelled(content, work))


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: {error}") from None


def _is_json_schema(content: Any) -> bool:
    return isinstance(content, dict) and content.get("type") in _JSON_SCHEMA_TYPES


def _spelled(node: Any, work: Work) -> Any:
    """Return a schema's JSON without docs and aliases: Avro calls two schemas equal that differ in nothing else."""
    work.step()
    if isinstance(node, list):
        return [_spelled(each, work) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        name: value if name == "default" else _spelled(value, work)
        for name, value in node.items()
        if name not in ("doc", "aliases")
    }


def key_and_value(schema: Definition) -> tuple[Definition, Definition]:
    """Take a KEY_VALUE schema apart; raise ``ValueError``."""
    found, at = [], 0
    for part in ("key", "value"):
        if at + 4 > len(schema.data):
            raise ValueError(f"it ends before the size of its {part}")
        (size,) = _SIZE.unpack_from(schema.data, at)
        at += 4 + size
        if size < 0 or at > len(schema.data):
            raise ValueError(f"its {part} is said to have {size} bytes, which are not there")
        kind = schema.properties.get(f"{part}.schema.type")
        number = _NONE if kind in (None, "BYTES") else _TYPES.get(str(kind).replace("_", "").lower())
        if number is None:
            raise ValueError(f"{part}.schema.type is {str(kind)[:100]!r}, which is no kind of schema")
        properties = _properties(schema.properties.get(f"{part}.schema.properties") or "{}", part)
        found.append(Definition(number, schema.data[at - size : at], properties))
    return found[0], found[1]


def _properties(text: str, part: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except RecursionError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{part}.schema.properties is no JSON object")
    return {name: value for name, value in found.items() if isinstance(value, str)}


# -- what may follow what ---------------------------------------------------------------------------------------


def check_producers(
    new: ParsedTopicSchema, live: Sequence[Callable[[], ParsedTopicSchema]], strategy: Strategy, work: Work
) -> None:
    """Raise `IncompatibleSchema` unless a schema may follow a topic's live ones, of which the last is the latest."""
    if not live or strategy is Strategy.ALWAYS_COMPATIBLE:
        return
    _check(new, (each() for each in (live if strategy.transitive else live[-1:])), strategy, work)


def check_consumers(
    new: ParsedTopicSchema, live: Sequence[Callable[[], ParsedTopicSchema]], strategy: Strategy, work: Work
) -> None:
    """Raise `IncompatibleSchema` unless a consumer's schema goes with a topic's.

    As Pulsar has it: a consumer must read what the latest schema writes, and under the strategies that look at all
    versions it is held to the strategy itself.
    """
    if not live or strategy is Strategy.ALWAYS_COMPATIBLE:
        return
    if strategy in READS_THE_LATEST:
        latest = live[-1]()
        if latest != new:
            _check(new, iter((latest,)), Strategy.BACKWARD, work)
        return
    _check(new, (each() for each in live), strategy, work)


def _check(new: ParsedTopicSchema, old: Iterator[ParsedTopicSchema], strategy: Strategy, work: Work) -> None:
    if strategy is Strategy.ALWAYS_INCOMPATIBLE:
        raise IncompatibleSchema("Schema compatibility strategy is ALWAYS_INCOMPATIBLE")
    for each in old:
        if each.type != new.type:
            raise IncompatibleSchema(
                f"Incompatible schema: exists schema type {type_name(each.type)}, "
                f"new schema type {type_name(new.type)}"
            )
        _follows(new, each, strategy, work)


def _follows(new: ParsedTopicSchema, old: ParsedTopicSchema, strategy: Strategy, work: Work) -> None:
    if new.type in _BY_AVRO:
        _check_struct(new, old, strategy, work)
    elif new.root != old.root:
        raise IncompatibleSchema("Protobuf root message isn't allow change!")
    if [each.type for each in new.parts] != [each.type for each in old.parts]:
        mine, theirs = ([type_name(each.type) for each in one.parts] for one in (new, old))
        raise IncompatibleSchema(
            "Key schemas or Value schemas are different schema type, "
            f"from key schema type is {theirs[0]} and to key schema is {mine[0]}, "
            f"from value schema is {theirs[1]} and to value schema is {mine[1]}"
        )
    for one, before in zip(new.parts, old.parts, strict=True):
        _follows(one, before, strategy, work)


def _check_struct(new: ParsedTopicSchema, old: ParsedTopicSchema, strategy: Strategy, work: Work) -> None:
    if new.avro is None or old.avro is None:
        # JSON Schemas of old clients: Avro takes over from them, and among themselves their ids must be the same.
        if new.avro is old.avro is None and new.text.get("id") != old.text.get("id"):
            raise IncompatibleSchema("Incompatible JSON schema: its id is another")
        return
    reasons = clashes(new.avro, old.avro, work, Rules.RESOLUTION) if strategy.reads_older else []
    if reasons:
        raise IncompatibleSchema(
            f"Unable to read schema: what older producers wrote cannot be read with the new one "
            f"({strategy.name}): {'; '.join(reasons[:3])}"
        )
    reasons = clashes(old.avro, new.avro, work, Rules.RESOLUTION) if strategy.is_read_by_older else []
    if reasons:
        raise IncompatibleSchema(
            f"Unable to read schema: the new one cannot be read by those who have the older "
            f"({strategy.name}): {'; '.join(reasons[:3])}"
        )
