"""Builds random but valid messages of any version, from the outline that the importer wrote."""

from __future__ import annotations

import json
import struct
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from magnetar.wire.kafka.message import Message, Record

OUTLINE: dict[str, Any] = json.loads((Path(__file__).parent / "outline.json").read_text())
NUMBERS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q"}
TEXTS = ("", "a", "topic-1", "λόγος 🚀", "x" * 126, "x" * 127, "y" * 300)
BLOBS = (b"", b"\0", b"\xff" * 126, b"z" * 127, bytes(1000))


@cache
def message_class(module: str) -> type[Message]:
    found: type[Message] = getattr(load(module), OUTLINE[module]["name"])
    return found


def load(module: str) -> Any:
    return import_module(f"magnetar.wire.kafka.messages.{module}")


def versions_of(module: str) -> range:
    low, high = OUTLINE[module]["versions"]
    return range(low, high + 1)


def build(module: str, version: int, random: Random) -> Message:
    """Return a message with every field filled that this version can carry."""
    made = _struct(module, OUTLINE[module]["name"], version, random)
    assert isinstance(made, Message)
    return made


def field_names(module: str, struct_name: str, version: int) -> list[str]:
    fields = OUTLINE[module]["structs"][struct_name]
    return [name for name, (_, (low, high), _, _) in fields.items() if low <= version <= high]


def _struct(module: str, name: str, version: int, random: Random) -> Record:
    fields = OUTLINE[module]["structs"][name]
    values = {
        field: _value(module, fields[field], version, random) for field in field_names(module, name, version)
    }
    made: Record = getattr(load(module), name)(**values)
    return made


def _value(module: str, field: list[Any], version: int, random: Random) -> Any:
    kind, _, (null_low, null_high), tag = field
    if null_low <= version <= null_high and random.random() < 0.2:
        return None
    if kind.startswith("[]"):
        count = random.choice((0, 1, 1, 2, 3))
        return [_one(module, kind[2:], version, random) for _ in range(count)]
    if tag >= 0 and kind[0].isupper() and random.random() < 0.3:
        return None  # a tagged struct may be absent
    return _one(module, kind, version, random)


def _one(module: str, kind: str, version: int, random: Random) -> Any:
    if kind in NUMBERS:
        return number(NUMBERS[kind], random)
    if kind == "bool":
        return random.random() < 0.5
    if kind == "float64":
        return random.choice((0.0, -1.5, 1e300, float("inf")))
    if kind == "string":
        return random.choice(TEXTS)
    if kind == "uuid":
        return random.choice((bytes(16), bytes(range(16)), b"\xff" * 16))
    if kind in ("bytes", "records"):
        return random.choice(BLOBS)
    return _struct(module, kind, version, random)


def number(code: str, random: Random) -> int:
    size = struct.calcsize(">" + code)
    low, high = (0, 256**size - 1) if code.isupper() else (-(256**size) // 2, 256**size // 2 - 1)
    return random.choice((low, -1 if low else 1, 0, 1, 42, high))
