"""MessagePack, where the ``msgpack`` package is installed: maps and lists that fill their bytes exactly.

Nearly any byte is some MessagePack, so that only what is a map or a list, and is no text, counts as such.
"""

from __future__ import annotations

import base64
from typing import Any

try:
    import msgpack
except ImportError:
    msgpack = None

_MOST_DEPTH = 64


def unpacked(data: bytes) -> Any:
    """Return what bytes say, as JSON has it; None for what is no map or list of MessagePack."""
    if msgpack is None or not data or not _begins_one(data[0]):
        return None
    try:
        found = msgpack.unpackb(data, raw=False, strict_map_key=False, ext_hook=_extension)
        return _plain(found, 0)
    except Exception:  # bytes of any origin raise whatever they lead to
        return None


def _begins_one(first: int) -> bool:
    return 0x80 <= first <= 0x9F or 0xDC <= first <= 0xDF


def _extension(code: int, data: bytes) -> Any:
    return {"extension": code, "base64": base64.b64encode(data).decode()}


def _plain(value: Any, depth: int) -> Any:
    if depth > _MOST_DEPTH:
        raise ValueError("it is too deep")
    if isinstance(value, dict):
        return {str(name): _plain(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, depth + 1) for each in value]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
