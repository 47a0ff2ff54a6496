"""Values as JSON and back: the one shape that ``--json``, the admin socket and tests share.

A dataclass becomes an object with its fields' names, in their order; tuples become arrays, enums their value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def plain(value: object) -> Any:
    """Return what JSON can say of a value made of dataclasses, tuples, mappings, enums and plain things."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, bytes | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    return value


def to_line(value: object) -> bytes:
    """Return a value as one line of JSON."""
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def restore(kind: type[T], data: object) -> T:
    """Return the value of type ``kind`` that `plain` made ``data`` of; raise ``TypeError`` or ``ValueError``."""
    return _restore(kind, data)  # type: ignore[no-any-return]


def _restore(kind: Any, data: Any) -> Any:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        if data is None:
            return None
        return _restore(next(each for each in get_args(kind) if each is not NoneType), data)
    if origin is tuple:
        return tuple(_restore(get_args(kind)[0], each) for each in data)
    if origin is dict:
        return {key: _restore(get_args(kind)[1], each) for key, each in data.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{field.name: _restore(hints[field.name], data[field.name]) for field in fields(kind)})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    if kind is bytes:
        if "\\" in data:
            raise ValueError("bytes that are no text are not to be had back")
        return data.encode()
    return data
