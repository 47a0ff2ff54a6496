"""Keys and values for people: by the schema that a record names, else as JSON, as text or in hexadecimal digits.

No record is left out: what its schema cannot read is shown all the same, with the reason.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from magnetar.admin.errors import AdminError
from magnetar.admin.lines import Seen, to_json
from magnetar.admin.payloads.avro import AvroPayload
from magnetar.admin.payloads.protobuf import ProtobufPayload
from magnetar.admin.payloads.pulsar import PulsarPayload
from magnetar.admin.topic_schema import TopicSchemaVersion
from magnetar.schema_registry.framing import Undecodable, reason_of, unframe

if TYPE_CHECKING:
    from magnetar.admin.payloads.registry import RemoteRegistry

_MAX_KNOWN = 1_000


class Written(NamedTuple):
    """A record's origin: the version of the topic's schema, -1 for none, and which part the broker framed.

    A broker puts frames before keys and values for Confluent's deserializers (``kafkaApplyAvroSchemaOnDecode``).
    """

    version: int = -1
    key_framed: bool = False
    value_framed: bool = False


WrittenAs = Callable[[Seen], Written]


@dataclass(frozen=True, slots=True)
class Payload:
    """A key or a value. ``value`` is what JSON can say of it; bytes are ``{"base64": ...}``.

    ``schema`` says which one it was read with; ``error`` why the one it names does not read it.
    """

    raw: bytes | None
    value: Any
    schema: Mapping[str, object] | None = None
    error: str = ""

    def text(self) -> bytes | None:
        """Return the text of it: strings as they are, other values as JSON, bytes in hexadecimal digits."""
        if self.raw is None:
            return None
        if isinstance(self.value, str):
            return self.value.encode()
        if self.schema is None and isinstance(self.value, dict) and self.value.keys() == {"base64"}:
            return b"0x" + self.raw.hex().encode()
        return json.dumps(self.value, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """A record with its key and value decoded."""

    seen: Seen
    key: Payload
    value: Payload

    def printed(self) -> Seen:
        """Return the record with texts for key and value."""
        return replace(self.seen, key=self.key.text(), value=self.value.text())

    def json(self) -> dict[str, Any]:
        """Return the record's JSON object, with the schemas, and with the reasons of what could not be decoded."""
        made = to_json(self.seen)
        for name, part in (("key", self.key), ("value", self.value)):
            made[name] = part.value
            if part.schema is not None:
                made[f"{name}_schema"] = dict(part.schema)
            if part.error:
                made[f"{name}_error"] = part.error
        return made


class Decoding:
    """Decodes records of one topic."""

    def __init__(
        self,
        registry: RemoteRegistry | None = None,
        topic_schemas: Sequence[TopicSchemaVersion] = (),
        written: WrittenAs = lambda record: Written(),
    ) -> None:
        self._registry = registry
        self._readers: dict[int, Callable[[memoryview], tuple[str, Any]]] = {}
        self._versions = {each.version: each for each in topic_schemas}
        self._pulsar: dict[int, PulsarPayload] = {}
        self._written = written
        self.failed = 0
        """How many keys and values have a schema that did not read them."""
        self.first_error = ""

    def decode(self, record: Seen) -> DecodedRecord:
        """Return a record decoded; raises nothing."""
        written = self._written(record) if self._versions else Written()
        key = self._part(record.key, -1 if written.key_framed else written.version, is_key=True)
        value = self._part(record.value, -1 if written.value_framed else written.version, is_key=False)
        return DecodedRecord(record, key, value)

    def _part(self, data: bytes | None, version: int, *, is_key: bool) -> Payload:
        if data is None:
            return Payload(None, None)
        error = ""
        try:
            found = self._by_topic(data, version, is_key=is_key) or self._by_registry(data)
            if found is not None:
                return found
        except (Undecodable, ValueError, AdminError) as failure:
            error = reason_of(failure)
            self.failed += 1
            self.first_error = self.first_error or error
        return Payload(data, _plain(data), error=error)

    def _by_registry(self, data: bytes) -> Payload | None:
        if self._registry is None or len(data) < 5 or data[0] != 0:
            return None
        framed = unframe(data)
        schema = self._registry.schema(framed.schema_id)
        read = self._readers.get(schema.schema_id)
        if read is None:
            if len(self._readers) >= _MAX_KNOWN:
                self._readers.clear()
            read = reader_of(schema.kind, schema.text, schema.references)
            self._readers[schema.schema_id] = read
        name, value = read(framed.data)
        told = {"id": schema.schema_id, "type": schema.kind}
        return Payload(data, value, told | ({"name": name} if name else {}))

    def _by_topic(self, data: bytes, version: int, *, is_key: bool) -> Payload | None:
        schema = self._versions.get(version)
        if schema is None:
            return None
        if version not in self._pulsar:
            definition = base64.b64decode(schema.definition)
            self._pulsar[version] = PulsarPayload(schema.kind, definition, schema.properties)
        payload = self._pulsar[version]
        if is_key and not payload.reads_keys:
            return None
        view = memoryview(data)
        value = payload.key(view) if is_key else payload.value(view)
        return Payload(data, value, {"version": version, "type": schema.kind.upper()})


def reader_of(
    kind: str, text: str, references: tuple[tuple[str, str], ...]
) -> Callable[[memoryview], tuple[str, Any]]:
    """Return what reads the data of a registry's schema, behind its id: it gives the message's name and its value.

    ``kind`` is AVRO, PROTOBUF or JSON; ``references`` are the schemas that it needs, as `FetchedSchema` has them.
    Raises ``ValueError`` for a schema that cannot be used; what it returns raises `Undecodable`.
    """
    if kind == "AVRO":
        avro = AvroPayload(text, references)
        return lambda data: (avro.name, avro.decode(data))
    if kind == "PROTOBUF":
        return ProtobufPayload(text, references).framed
    if kind == "JSON":
        return _read_json
    raise ValueError(f"schemas of kind {kind} cannot be read")


def _read_json(data: memoryview) -> tuple[str, Any]:
    try:
        return "", json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"it is no JSON: {reason_of(error)}") from None


def _plain(data: bytes) -> Any:
    """Return an object or an array of JSON as such, other text as text, and bytes as ``{"base64": ...}``."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    if not all(each.isprintable() or each in "\t\r\n" for each in text):
        return {"base64": base64.b64encode(data).decode()}
    return text
