"""Pulsar's codecs on whole payloads: LZ4 and SNAPPY as bare blocks, ZLIB and ZSTD as streams.

The metadata tells how long the payload was (``uncompressed_size``), so nothing has to grow, and what does not come
out exactly that long is damaged.
"""

from __future__ import annotations

import zlib

from magnetar.records.compression import MAX_DECOMPRESSED_BYTES, Buffer, Codec, codecs
from magnetar.records.errors import EntryCorrupt, TooMuchInside, UnsupportedCompression
from magnetar.records.pulsar_metadata import Compression

OF_KAFKA = {
    Codec.none: Compression.NONE,
    Codec.gzip: Compression.ZLIB,
    Codec.snappy: Compression.SNAPPY,
    Codec.lz4: Compression.LZ4,
    Codec.zstd: Compression.ZSTD,
}
"""Pulsar's codec for each of Kafka's: the same algorithm, in another dress."""


def decompress_payload(
    compression: int, data: Buffer, size: int, *, most_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Buffer:
    """Return the ``size`` bytes behind ``data``; raise ``EntryCorrupt``, or another ``RecordsError`` that tells
    more.
    """
    if compression == Compression.NONE:
        return data
    if compression not in Compression.__members__.values():
        raise UnsupportedCompression(f"Pulsar's compression {compression} does not exist")
    if not 0 <= size <= most_bytes:
        raise TooMuchInside(f"a payload claims {size} bytes uncompressed; {most_bytes} are allowed")
    out = bytearray(size)
    decompress_into(compression, data, memoryview(out))
    return memoryview(out)


def decompress_into(compression: int, data: Buffer, out: memoryview) -> None:
    """Fill ``out``, which is as long as the metadata say, with what is behind ``data``; raise ``EntryCorrupt``."""
    size = len(out)
    try:
        found = _decompressed(Compression(compression), data, out) if size else 0
    except (codecs().DecompressionError, ValueError, OverflowError, zlib.error) as error:
        name = (
            Compression(compression).name if compression in Compression.__members__.values() else compression
        )
        raise EntryCorrupt(f"the {name} payload does not decompress to {size} bytes: {error}") from None
    if found != size:
        raise EntryCorrupt(
            f"the {Compression(compression).name} payload holds {found} bytes, and its metadata says {size}"
        )


def _decompressed(compression: Compression, data: Buffer, out: memoryview) -> int:
    """Return how many bytes of ``out`` were filled."""
    size = len(out)
    if compression is Compression.ZLIB:
        inflater = zlib.decompressobj()
        found = inflater.decompress(data, size)
        if not inflater.eof and (
            inflater.unconsumed_tail and inflater.decompress(inflater.unconsumed_tail, 1)
        ):
            raise ValueError("there is more")
        out[: len(found)] = found
        return len(found)
    if compression is Compression.SNAPPY:
        if codecs().snappy.decompress_raw_len(data) != size:
            raise ValueError("it says another length itself")
        return int(codecs().snappy.decompress_raw_into(data, out))
    if compression is Compression.LZ4:
        return int(codecs().lz4.decompress_block_into(data, out, output_len=size))
    return int(codecs().zstd.decompress_into(data, out))


def compress_payload(compression: int, data: Buffer) -> Buffer:
    """Return ``data`` compressed as Pulsar's own producers would write it."""
    if compression == Compression.LZ4:
        return bytes(codecs().lz4.compress_block(data, store_size=False))
    if compression == Compression.ZLIB:
        return zlib.compress(data)
    if compression == Compression.ZSTD:
        return bytes(codecs().zstd.compress(data))
    if compression == Compression.SNAPPY:
        return bytes(codecs().snappy.compress_raw(data))
    return data
