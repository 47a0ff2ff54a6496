"""Kafka's five codecs on whole batches, with a bound on what a few bytes may blow up to.

Numbers are those of a record batch's attributes (bits 0-2): 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
Snappy comes in two dresses: the Java clients' (magic, then length-prefixed blocks) and plain blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from magnetar.records.errors import CorruptBatch, TooMuchInside, UnsupportedCompression

if TYPE_CHECKING:
    import numpy as np

    Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_DECOMPRESSED_BYTES = 64 << 20
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_XERIAL_BLOCK_BYTES = 32 << 10


class Codec(IntEnum):
    """A batch's compression, by its number in the attributes."""

    none = 0
    gzip = 1
    snappy = 2
    lz4 = 3
    zstd = 4

    @classmethod
    def of(cls, attributes: int) -> Codec:
        """Return the codec that a batch's attributes name; raise ``UnsupportedCompression`` for 5-7."""
        number = attributes & 0x07
        if number >= len(_CODECS):
            raise UnsupportedCompression(f"compression codec {number} does not exist")
        return _CODECS[number]


_CODECS = tuple(Codec)  # asked for every batch; to call the class costs more than all else about it


@cache
def codecs() -> Any:
    """Return the library of codecs: 1.7 MB that a broker goes without until something compressed comes."""
    import cramjam

    return cramjam


def decompress(codec: Codec, data: Buffer, *, most_bytes: int = MAX_DECOMPRESSED_BYTES) -> memoryview:
    """Return the bytes behind ``data``; raise on damage, or once they would be more than ``most_bytes``."""
    if codec is Codec.none:
        return memoryview(data)
    if codec is Codec.snappy:
        return memoryview(_decompress_snappy(data, most_bytes))
    return _decompress_growing(getattr(codecs(), codec.name), data, most_bytes)


def compress(codec: Codec, data: Buffer, *, level: int | None = None) -> bytes:
    """Return ``data`` compressed as Kafka's own clients would write it."""
    if codec is Codec.none:
        return bytes(data)
    if codec is Codec.snappy:
        return _compress_snappy(data)
    module = getattr(codecs(), codec.name)
    return bytes(module.compress(data) if level is None else module.compress(data, level))


def decompress_into(codec: Codec, data: Buffer, room: Bytes) -> int | None:
    """Decompress to the beginning of ``room``; give how many bytes, or None if there are more than it has place for.

    ``codec`` is one that compresses. Raises ``CorruptBatch``.
    """
    if codec is not Codec.snappy:
        return _frame_into(getattr(codecs(), codec.name), data, room)
    at = 0
    try:
        for block in _snappy_blocks(data):
            size = codecs().snappy.decompress_raw_len(block)
            if size > len(room) - at:
                return None
            at += codecs().snappy.decompress_raw_into(block, room[at:].data)
    except codecs().DecompressionError as error:
        raise CorruptBatch(f"records do not decompress: {error}") from None
    return at


def _frame_into(module: object, data: Buffer, room: Buffer | Bytes) -> int | None:
    try:
        return int(module.decompress_into(data, room))  # type: ignore[attr-defined]
    except (codecs().DecompressionError, ValueError) as error:
        if not _says_too_small(error):
            raise CorruptBatch(f"records do not decompress: {error}") from None
    return None


def _decompress_growing(module: object, data: Buffer, most_bytes: int) -> memoryview:
    """Try into ever larger buffers: the codecs' frames do not say reliably how long they will become."""
    room = min(max(4 * len(data), 64 << 10), most_bytes)
    while True:
        out = bytearray(room)
        size = _frame_into(module, data, out)
        if size is not None:
            return memoryview(out)[:size]
        if room >= most_bytes:
            raise TooMuchInside(f"records decompress to more than {most_bytes} bytes")
        room = min(room * 8, most_bytes)


def _says_too_small(error: Exception) -> bool:
    words = str(error).lower()
    return "whole buffer" in words or "too small" in words or "insufficient" in words


def _decompress_snappy(data: Buffer, most_bytes: int) -> bytes:
    blocks = []
    try:
        for block in _snappy_blocks(data):
            if codecs().snappy.decompress_raw_len(block) > most_bytes:
                raise TooMuchInside("records decompress to more than the limit")
            blocks.append(bytes(codecs().snappy.decompress_raw(block)))
            most_bytes -= len(blocks[-1])
    except codecs().DecompressionError as error:
        raise CorruptBatch(f"records do not decompress: {error}") from None
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _snappy_blocks(data: Buffer) -> Iterator[Buffer]:
    """Yield the plain blocks of either dress."""
    if bytes(data[:8]) != _XERIAL_MAGIC:
        yield data
        return
    at = _XERIAL_HEADER_BYTES
    while at < len(data):
        if at + 4 > len(data):
            raise CorruptBatch("snappy block length is cut short")
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        if length < 0 or at + length > len(data):
            raise CorruptBatch("snappy block is cut short")
        yield data[at : at + length]
        at += length


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_MAGIC, struct.pack(">ii", 1, 1)]
    for at in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(codecs().snappy.compress_raw(view[at : at + _XERIAL_BLOCK_BYTES]))
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)
