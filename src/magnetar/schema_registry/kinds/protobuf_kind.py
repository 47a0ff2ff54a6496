"""Protobuf: text goes through protoc, descriptors in base64 (as Confluent's Python clients send them) do not.

The text that is kept is printed from the descriptor, so a schema has one spelling whoever registered it. Names and
order of fields do not count for compatibility, as on the wire; numbers and types do.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError

from magnetar.schema_registry.errors import InvalidSchema
from magnetar.schema_registry.kinds.imports import is_brought
from magnetar.schema_registry.kinds.protobuf_compatibility import clashes
from magnetar.schema_registry.kinds.protobuf_shape import Misshapen, check_shape
from magnetar.schema_registry.kinds.protobuf_text import as_text
from magnetar.schema_registry.kinds.protoc import ProtocFailed, compile_texts
from magnetar.schema_registry.work import MAX_DEPTH, TooComplex, Work

_MAIN = "schema.proto"


class ProtobufSchema:
    """One file of messages."""

    def __init__(self, file: descriptor_pb2.FileDescriptorProto) -> None:
        self.file = file
        self.text = as_text(file)

    def reads(self, writer: Any, work: Work) -> list[str]:
        """Say why messages of ``writer`` cannot be read as these."""
        return clashes(self.file, writer.file, work)


def parse(text: str, references: Mapping[str, str], work: Work) -> ProtobufSchema:
    """Understand a schema; raise `InvalidSchema`. Runs protoc for a text: up to a second."""
    file = of_base64(text)
    if file is None:
        file = _compiled(text, references, work)
        _count(file, work)
        file.ClearField("source_code_info")
    else:
        file.ClearField("source_code_info")
        _count(file, work)
        _check(file, references, work)
    file.ClearField("name")
    return ProtobufSchema(file)


def serialized(text: str, references: Mapping[str, str], work: Work) -> str:
    """Return a schema's descriptor in base64, which clients ask for as ``format=serialized``."""
    file = of_base64(text) or _compiled(text, references, work)
    file.ClearField("source_code_info")
    return base64.b64encode(file.SerializeToString()).decode()


def of_base64(text: str) -> descriptor_pb2.FileDescriptorProto | None:
    """Return the descriptor behind base64, or None if it is something else."""
    try:
        content = base64.b64decode(text, validate=True)
        file = descriptor_pb2.FileDescriptorProto.FromString(content)
    except (binascii.Error, ValueError, DecodeError):
        return None
    return file if file.message_type or file.enum_type or file.dependency else None


def _check(file: descriptor_pb2.FileDescriptorProto, references: Mapping[str, str], work: Work) -> None:
    """See that a descriptor holds together and can be written as text; raise `InvalidSchema`."""
    try:
        check_shape(file)
    except Misshapen as error:
        raise InvalidSchema(f"Invalid schema of type PROTOBUF: {error}") from None
    if references or any(is_brought(name) for name in file.dependency):
        _compiled(as_text(file), references, work)  # only protoc knows what the texts of others hold
    else:
        _link(file)


def _link(file: descriptor_pb2.FileDescriptorProto) -> None:
    """See that what a descriptor names is there; what it imports of Google's own is at hand."""
    pool = descriptor_pool.DescriptorPool()
    try:
        for name in file.dependency:
            _add_well_known(pool, name)
        named = descriptor_pb2.FileDescriptorProto()
        named.CopyFrom(file)
        named.name = named.name or _MAIN
        pool.Add(named)
        pool.FindFileByName(named.name)
    except (TypeError, KeyError, UnicodeError) as error:
        raise InvalidSchema(f"Invalid schema of type PROTOBUF: {error}") from None


def _count(file: Any, work: Work) -> None:
    """Count what a file holds: all that is done with it later goes through each of it a few times."""
    waiting = [(each, 1) for each in file.message_type]
    work.step(len(file.enum_type) + len(file.extension) + len(file.service))
    while waiting:
        message, depth = waiting.pop()
        work.step(10 + 10 * len(message.field) + sum(len(each.value) for each in message.enum_type))
        if depth > MAX_DEPTH:
            raise TooComplex(f"messages are nested more than {MAX_DEPTH} deep")
        waiting += [(each, depth + 1) for each in message.nested_type]


def _add_well_known(pool: descriptor_pool.DescriptorPool, name: str) -> None:
    import importlib

    if not name.startswith("google/protobuf/"):
        raise InvalidSchema(f"Invalid schema of type PROTOBUF: it imports {name} without a reference to it")
    try:
        # A name of theirs, no path to elsewhere, leads to a module of theirs.
        if not re.fullmatch(r"google/protobuf/(compiler/)?[a-z_]+\.proto", name):
            raise ImportError
        module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        raise InvalidSchema(f"Invalid schema of type PROTOBUF: there is no {name[:200]} to import") from None
    file = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    for each in file.dependency:
        _add_well_known(pool, each)
    pool.Add(file)


def _compiled(text: str, references: Mapping[str, str], work: Work) -> descriptor_pb2.FileDescriptorProto:
    try:
        files = compile_texts({**references, _MAIN: text}, _MAIN, work=work).file
    except ProtocFailed as error:
        raise InvalidSchema(f"Invalid schema of type PROTOBUF: {error}") from None
    return next(each for each in files if each.name == _MAIN)
