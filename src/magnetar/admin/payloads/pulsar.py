"""Values that Pulsar producers write with a schema of the topic, as JSON.

    String                                the text
    Bool, Int8 ... Int64, Float, Double   the number, big-endian
    Date, Time, Timestamp                 milliseconds, 8 bytes: ISO 8601
    Instant                               seconds (8 bytes) and nanoseconds (4): ISO 8601
    LocalDate, LocalTime, LocalDateTime   days, nanoseconds of the day, or both, 8 bytes each: ISO 8601
    Json, Avro, ProtobufNative            by the definition
    KeyValue                              SEPARATED: key and value, each by its own; INLINE: both in the value, each
                                          behind its size (4 bytes, -1 for null)

``Protobuf``, as against ``ProtobufNative``, has no descriptor, and cannot be decoded.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError

from magnetar.admin.payloads.avro import AvroPayload
from magnetar.admin.payloads.protobuf import decode_message
from magnetar.schema_registry.framing import Undecodable, reason_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIZE = struct.Struct(">i")


class PulsarPayload:
    """One version of a topic's schema, as Pulsar stores it; raises ``ValueError`` for one that cannot be read.

    Of keys and values with schemas of their own, one that can be read is, whatever the other is.
    """

    def __init__(self, kind: str, definition: bytes, properties: Mapping[str, str]) -> None:
        self._parts: tuple[Read, Read] | None = None
        self._inline = False
        if kind == "KeyValue":
            first, second = _two(definition)
            kinds = [properties.get(f"{part}.schema.type", "") for part in ("key", "value")]
            self._parts = _reads_part(kinds[0], first), _reads_part(kinds[1], second)
            self._inline = properties.get("kv.encoding.type", "INLINE") != "SEPARATED"
        else:
            self._read = _reads(kind, definition)

    @property
    def reads_keys(self) -> bool:
        """True if the schema is about keys, too."""
        return self._parts is not None and not self._inline

    def key(self, data: memoryview) -> Any:
        """Return a key as JSON has it; raise `Undecodable`."""
        assert self._parts is not None
        return self._parts[0](data)

    def value(self, data: memoryview) -> Any:
        """Return a value as JSON has it; raise `Undecodable`."""
        if self._parts is None:
            return self._read(data)
        if not self._inline:
            return self._parts[1](data)
        found, at = [], 0
        for read in self._parts:
            if len(data) - at < 4:
                raise Undecodable("it ends before its key and value do")
            size = _SIZE.unpack_from(data, at)[0]
            at += 4
            if size > len(data) - at:
                raise Undecodable("it ends before its key and value do")
            found.append(None if size < 0 else read(data[at : at + size]))
            at += max(size, 0)
        return {"key": found[0], "value": found[1]}


Read = Callable[[memoryview], Any]


def _reads(kind: str, definition: bytes) -> Read:
    """Return what reads values of a kind, whose name may be in capitals as in a KeyValue's properties."""
    name = kind.replace("_", "").lower()
    if name in _PLAIN:
        return _PLAIN[name]
    if name == "avro":
        return AvroPayload(definition.decode()).decode
    if name == "protobufnative":
        return _native(definition)
    if name == "protobuf":
        raise ValueError("a PROTOBUF schema of Pulsar has no descriptor; PROTOBUF_NATIVE has one")
    raise ValueError(f"schemas of type {kind} cannot be read")


def _reads_part(kind: str, definition: bytes) -> Read:
    """Return what reads keys or values; of a schema that cannot be used, each of them is `Undecodable`."""
    try:
        return _reads(kind, definition)
    except ValueError as error:
        reason = str(error)

    def read(data: memoryview) -> Any:
        raise Undecodable(reason)

    return read


def _native(definition: bytes) -> Read:
    pool = descriptor_pool.DescriptorPool()
    try:
        content = json.loads(definition)
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(content["fileDescriptorSet"]))
        waiting = list(files.file)
        while waiting:  # files may stand before those that they import
            there = {each.name for each in waiting}
            ready = [each for each in waiting if not there & set(each.dependency)]
            if not ready:
                raise ValueError("its files import each other")
            for each in ready:
                pool.Add(each)
            waiting = [each for each in waiting if each not in ready]
        found = pool.FindMessageTypeByName(content["rootMessageTypeName"])
    except (ValueError, KeyError, TypeError, DecodeError) as error:
        raise ValueError(f"the PROTOBUF_NATIVE schema cannot be read: {reason_of(error)}") from None
    return lambda data: decode_message(pool, found, data)


def _two(definition: bytes) -> list[bytes]:
    found, at = [], 0
    for _ in range(2):
        try:
            size = max(_SIZE.unpack_from(definition, at)[0], 0)
        except struct.error:
            raise ValueError("the KEY_VALUE schema ends before its two definitions do") from None
        found.append(definition[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def _number(form: str) -> Read:
    shape = struct.Struct(form)

    def read(data: memoryview) -> Any:
        try:
            return shape.unpack(data)[0]
        except struct.error:
            raise Undecodable(f"it has {len(data)} bytes, and its schema says {shape.size}") from None

    return read


def _moment(form: str, made: Callable[..., Any]) -> Read:
    shape = struct.Struct(form)

    def read(data: memoryview) -> str:
        try:
            return str(made(*shape.unpack(data)).isoformat())
        except struct.error:
            raise Undecodable(f"it has {len(data)} bytes, and its schema says {shape.size}") from None
        except (OverflowError, ValueError) as error:
            raise Undecodable(f"no calendar has its time: {error}") from None

    return read


def _ms(value: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=value)


def _day(days: int) -> date:
    return _EPOCH.date() + timedelta(days=days)


def _nanoseconds(value: int) -> timedelta:
    return timedelta(microseconds=value // 1000)


def _text(data: memoryview) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        raise Undecodable("it is no UTF-8, and its schema says text") from None


def _json(data: memoryview) -> Any:
    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"it is no JSON: {reason_of(error)}") from None


def _bytes(data: memoryview) -> Any:
    return {"base64": base64.b64encode(data).decode()}


_PLAIN: Mapping[str, Read] = {
    "string": _text,
    "json": _json,
    "bytes": _bytes,
    "bool": _number(">?"),
    "boolean": _number(">?"),
    "int8": _number(">b"),
    "int16": _number(">h"),
    "int32": _number(">i"),
    "int64": _number(">q"),
    "float": _number(">f"),
    "double": _number(">d"),
    "date": _moment(">q", _ms),
    "time": _moment(">q", _ms),
    "timestamp": _moment(">q", _ms),
    "instant": _moment(">qi", lambda s, ns: _EPOCH + timedelta(seconds=s) + _nanoseconds(ns)),
    "localdate": _moment(">q", _day),
    "localtime": _moment(">q", lambda ns: (datetime.min + _nanoseconds(ns)).time()),
    "localdatetime": _moment(
        ">qq", lambda days, ns: _EPOCH.replace(tzinfo=None) + timedelta(days=days) + _nanoseconds(ns)
    ),
}
