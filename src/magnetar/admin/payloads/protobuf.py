"""Protobuf as JSON and back, by Google's library: names of fields as the schema has them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from magnetar.schema_registry.framing import Undecodable, message_indexes, reason_of
from magnetar.schema_registry.kinds.protobuf_kind import of_base64
from magnetar.schema_registry.kinds.protobuf_text import as_text
from magnetar.schema_registry.kinds.protoc import ProtocFailed, compile_texts

_MAIN = "schema.proto"


class ProtobufPayload:
    """One file of messages; raises ``ValueError`` for what cannot be put together."""

    def __init__(self, text: str, references: tuple[tuple[str, str], ...] = ()) -> None:
        try:
            self._pool, self._file = _linked(text, references)
        except (TypeError, KeyError, RecursionError, ProtocFailed) as error:
            raise ValueError(f"the Protobuf schema cannot be put together: {reason_of(error)}") from None

    def framed(self, data: memoryview) -> tuple[str, Any]:
        """Return name and value of the message behind its indexes; raise `Undecodable`."""
        indexes, rest = message_indexes(data)
        found = self._at(indexes)
        return found.full_name, decode_message(self._pool, found, rest)

    def encode(self, value: Any, name: str = "") -> bytes:
        """Return message indexes and the bytes of a value as JSON has it; raise ``ValueError``.

        ``name`` is the message's, with or without its package; the file's first by default.
        """
        indexes, found = self._named(name)
        message = message_factory.GetMessageClass(found)()
        try:
            json_format.ParseDict(value, message, descriptor_pool=self._pool)
        except json_format.ParseError as error:
            raise ValueError(f"it is no {found.full_name}: {reason_of(error)}") from None
        except (TypeError, AttributeError, RecursionError):
            raise ValueError(f"it is no {found.full_name}, which is an object of JSON") from None
        return _indexes(indexes) + bytes(message.SerializeToString())

    def _at(self, indexes: tuple[int, ...]) -> Descriptor:
        known = list(self._file.message_types_by_name.values())
        found: Descriptor | None = None
        for index in indexes:
            if not 0 <= index < len(known):
                raise Undecodable(f"its message indexes {list(indexes)} lead to no message of its schema")
            found = known[index]
            known = list(found.nested_types)
        assert found is not None
        return found

    def _named(self, name: str) -> tuple[tuple[int, ...], Descriptor]:
        first = list(self._file.message_types_by_name.values())
        found: dict[str, tuple[tuple[int, ...], Descriptor]] = {}
        waiting: list[tuple[tuple[int, ...], Descriptor]] = [((at,), each) for at, each in enumerate(first)]
        while waiting:
            indexes, each = waiting.pop(0)
            found[each.full_name] = indexes, each
            waiting += [((*indexes, at), inner) for at, inner in enumerate(each.nested_types)]
        if not found:
            raise ValueError("the schema has no message")
        wanted = name or first[0].full_name
        for full, pair in found.items():
            if wanted in (full, full.removeprefix(f"{self._file.package}.")):
                return pair
        raise ValueError(f"the schema has no message {name!r}; it has {', '.join(found)}")


def decode_message(pool: Any, descriptor: Descriptor, data: memoryview) -> Any:
    """Return a message as JSON has it; raise `Undecodable`."""
    try:
        message = message_factory.GetMessageClass(descriptor).FromString(bytes(data))
        return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
    except (DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(f"it is no {descriptor.full_name}: {reason_of(error)}") from None
    except Exception as error:  # an Any of a type that the schema lacks, a time that no calendar has
        raise Undecodable(
            f"it is a {descriptor.full_name} that JSON cannot say: {reason_of(error)}"
        ) from None


def _linked(text: str, references: tuple[tuple[str, str], ...]) -> tuple[Any, Any]:
    pairs = [*references, (_MAIN, text)]
    files = [(name, of_base64(each)) for name, each in pairs]
    pool = descriptor_pool.DescriptorPool()
    try:
        for name, file in files:
            if file is None:
                raise KeyError(name)
            file.name = name
            for needed in file.dependency:
                _add_well_known(pool, needed)
            pool.Add(file)
        return pool, pool.FindFileByName(_MAIN)
    except (KeyError, TypeError):
        pass
    # A registry that knows texts alone, or an import of what protoc brings along.
    texts = {
        name: each if file is None else as_text(file)
        for (name, each), (_, file) in zip(pairs, files, strict=True)
    }
    pool = descriptor_pool.DescriptorPool()
    for compiled in compile_texts(texts, _MAIN).file:
        pool.Add(compiled)
    return pool, pool.FindFileByName(_MAIN)


def _add_well_known(pool: Any, name: str) -> None:
    """Add what comes with Google's library and is not there yet."""
    if not name.startswith("google/protobuf/"):
        return
    try:
        pool.FindFileByName(name)
    except KeyError:
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        file = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        for each in file.dependency:
            _add_well_known(pool, each)
        pool.Add(file)


def _indexes(indexes: tuple[int, ...]) -> bytes:
    if indexes == (0,):
        return b"\0"
    return b"".join(map(_zigzag, (len(indexes), *indexes)))


def _zigzag(number: int) -> bytes:
    number, out = number << 1, bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
