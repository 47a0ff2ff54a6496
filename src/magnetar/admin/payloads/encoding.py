"""JSON as the bytes that Confluent's serializers would write: a zero byte, the schema's id, and the data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jsonschema.exceptions import ValidationError
from jsonschema.validators import Draft7Validator, validator_for
from referencing import Registry as References
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from magnetar.admin.errors import Invalid
from magnetar.admin.payloads.avro import AvroPayload
from magnetar.admin.payloads.protobuf import ProtobufPayload
from magnetar.admin.payloads.registry import FetchedSchema, RemoteRegistry
from magnetar.records.schema_ids import frame_of

KINDS = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
"""Kinds of schemas by the suffix of their file."""


class Encoding:
    """Encodes by one schema; ``message`` is which one of a Protobuf file. Raises `Invalid` for one it cannot use."""

    def __init__(self, schema: FetchedSchema, message: str = "") -> None:
        self.schema_id = schema.schema_id
        self._frame = frame_of(schema.schema_id)
        try:
            self._encode = _encoder(schema, message)
        except ValueError as error:
            raise Invalid(f"schema {schema.schema_id} cannot be used: {error}") from None

    def encode(self, text: bytes | None) -> bytes | None:
        """Return the framed bytes of what a line says as JSON, or as plain text where the schema takes a string.

        A null stays null. Raises `Invalid`.
        """
        if text is None:
            return None
        wrong: Exception | None = None
        for value in _meanings(text):
            try:
                return self._frame + self._encode(value)
            except ValueError as error:
                wrong = wrong or error
        raise Invalid(f"{text[:60]!r} does not fit schema {self.schema_id}: {wrong or 'it is no JSON'}")


def kind_of(file: Path) -> str:
    """Return the kind of a schema by its file's suffix; raise `Invalid`."""
    if file.suffix not in KINDS:
        raise Invalid(
            f"{file} might be a schema of any kind",
            f"Name it {' or '.join(f'*{suffix}' for suffix in KINDS)}, for Avro, JSON Schema and Protobuf.",
        )
    return KINDS[file.suffix]


def encoding_of(
    registry: RemoteRegistry, subject: str, file: Path | None, schema_id: int | None, message: str
) -> Encoding:
    """Return what encodes by a file's schema, which is registered; by an id; or by a subject's newest version."""
    if file is not None and schema_id is not None:
        raise Invalid("a schema's file and a schema's id", "Give one of them.")
    if file is not None:
        return Encoding(registry.register(subject, kind_of(file), file.read_text()), message)
    return Encoding(registry.latest(subject) if schema_id is None else registry.schema(schema_id), message)


def _meanings(text: bytes) -> list[Any]:
    """Return what a line may mean, the likelier one first."""
    meanings: list[Any] = []
    try:
        meanings.append(json.loads(text))
    except (ValueError, RecursionError):
        pass
    try:
        meanings.append(text.decode())
    except UnicodeDecodeError:
        pass
    return meanings


def _encoder(schema: FetchedSchema, message: str) -> Callable[[Any], bytes]:
    if schema.kind == "AVRO":
        return AvroPayload(schema.text, schema.references).encode
    if schema.kind == "PROTOBUF":
        protobuf = ProtobufPayload(schema.text, schema.references)
        return lambda value: protobuf.encode(value, message)
    if schema.kind == "JSON":
        return _json_encoder(schema)
    raise ValueError(f"it is of a kind that is not known: {schema.kind}")


def _json_encoder(schema: FetchedSchema) -> Callable[[Any], bytes]:
    try:
        content = json.loads(schema.text)
        known: Any = References().with_resources(
            (name, Resource.from_contents(json.loads(text), default_specification=DRAFT7))
            for name, text in schema.references
        )
    except ValueError as error:
        raise ValueError(f"it is no JSON Schema: {error}") from None
    kind = validator_for(content, Draft7Validator) if isinstance(content, dict) else Draft7Validator
    validator = kind(content, registry=known)

    def encode(value: Any) -> bytes:
        try:
            validator.validate(value)
        except ValidationError as error:
            path = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in error.path)
            raise ValueError(f"{path.lstrip('.') or 'the value'}: {error.message[:300]}") from None
        except Unresolvable as error:
            raise ValueError(f"the schema refers to what is not there: {error}") from None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    return encode
