"""What a keeper of metadata and its clients say to each other over a socket that only they have.

    offset  size  field
         0     4  n, bytes that follow
         4     n  a pickled tuple (verb, number, ...); the number says which question an answer belongs to

    client                                        keeper
    ("get-many", n, paths)                        ("welcome", session id), first of all
    ("children", n, path)                         ("part", n, some of the answer), any number of times
    ("tree", n, path)                             ("answer", n, the rest of it)
    ("commit", n, operations)                     ("refused", n, error)
    ("watch", n, path) ("unwatch", n, of which)   ("changed", of which watch, paths)
    ("is-writable", n) ("lose", n) ("bye", n)
    ("alive", 0)

Both ends are processes of one user, one the other's child, and the socket has no name: who could say something wrong
here could as well write the files. So what is said is pickled, which costs the least.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
from typing import Any, NamedTuple

from magnetar.metadata.errors import MetadataError

_LENGTH = struct.Struct(">I")
PART = 500
"""Elements of an answer that are said at once: neither end is held up by a long one."""


class Told(NamedTuple):
    """An error on its way: most of them cannot be made again from their message alone."""

    kind: type[MetadataError]
    args: tuple[Any, ...]
    known: dict[str, Any]

    def error(self) -> MetadataError:
        """Return the error that it was."""
        made = self.kind.__new__(self.kind, *self.args)
        made.__dict__.update(self.known)
        return made


def told(error: MetadataError) -> Told:
    """Return an error as it is sent."""
    return Told(type(error), error.args, dict(error.__dict__))


def frame(*said: object) -> bytes:
    """Return what is sent."""
    body = pickle.dumps(said, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


async def next_frame(reader: asyncio.StreamReader) -> tuple[Any, ...] | None:
    """Return what the other end says next; None once it has gone."""
    try:
        (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        said: tuple[Any, ...] = pickle.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return said
