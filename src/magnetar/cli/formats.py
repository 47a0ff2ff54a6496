"""Format strings as kcat's ``-f`` has them: a text with tokens becomes a function from a record to bytes.

    %s value         %k key           %t topic       %T timestamp, ms
    %S its size      %K its size      %p partition   %h headers: name=value,...
    %R value's size  %o offset        %% a percent sign
       as 4 bytes, big-endian         \\n \\r \\t \\\\ \\xNN

A null has size -1 and prints as nothing, or as what ``null`` says.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from magnetar.admin.errors import Invalid
from magnetar.admin.lines import Seen

Piece = Callable[[Seen], bytes]
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "0": "\0"}


def unescape(text: str) -> bytes:
    r"""Return the bytes of a text in which ``\n``, ``\t``, ``\x1f`` and the like stand for themselves."""
    parts, at = [], 0
    for found in _ESCAPE.finditer(text):
        parts.append(text[at : found.start()].encode())
        code, at = found[1], found.end()
        if code[0] == "x" and len(code) == 3:
            parts.append(bytes([int(code[1:], 16)]))
        elif code in _ESCAPES:
            parts.append(_ESCAPES[code].encode())
        else:
            raise Invalid(f"\\{code} in {text!r} means nothing", r"Known are \n \r \t \0 \\ and \xNN.")
    parts.append(text[at:].encode())
    return b"".join(parts)


def compile_format(text: str, null: bytes = b"") -> Piece:
    """Return the function that prints a record; raise `Invalid` for an unknown token."""
    tokens = _tokens(null)
    pieces: list[Piece] = []
    for literal, token in re.findall(r"([^%]*)(%.|%$)?", text, re.DOTALL):
        if literal:
            pieces.append(_constant(unescape(literal)))
        if token:
            if token not in tokens:
                known = " ".join(tokens)
                raise Invalid(f"{token} in {text!r} means nothing", f"Known are {known}.")
            pieces.append(tokens[token])
    return lambda record: b"".join([piece(record) for piece in pieces])


def _tokens(null: bytes) -> dict[str, Piece]:
    def text(data: bytes | None) -> bytes:
        return null if data is None else data

    return {
        "%s": lambda record: text(record.value),
        "%S": lambda record: b"%d" % _size(record.value),
        "%R": lambda record: struct.pack(">i", _size(record.value)),
        "%k": lambda record: text(record.key),
        "%K": lambda record: b"%d" % _size(record.key),
        "%t": lambda record: record.topic.encode(),
        "%p": lambda record: b"%d" % record.partition,
        "%o": lambda record: b"%d" % record.offset,
        "%T": lambda record: b"%d" % record.timestamp,
        "%h": lambda record: b",".join(
            key.encode() + b"=" + (b"NULL" if value is None else value) for key, value in record.headers
        ),
        "%%": lambda record: b"%",
    }


def _constant(data: bytes) -> Piece:
    return lambda record: data


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
