"""Schema ids before keys and values: the frame of Confluent's serializers, put around what Pulsar's producers wrote.

    zero byte, schema id (4 bytes, big-endian), what the producer wrote

A record batch is copied once with the frames in it; nulls stay null. In machine code where that is installed and
enough is asked for: until it is loaded, in the background, batches are done record by record.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from magnetar.records.batch import HEADER_BYTES, read_header, seal
from magnetar.records.compression import Buffer
from magnetar.records.entry import decode_entry
from magnetar.records.errors import InvalidRecord
from magnetar.records.loading import LoadedLater, loaded
from magnetar.records.varint import decode_zigzag, encode_zigzag

_FRAME = struct.Struct(">bI")
WORTH_IT = 1 << 20
"""So many bytes of records framed one by one, after which machine code is loaded: a tenth of a second of work."""
_GROWTH = 5 + 5 + 6  # of one record: two frames, and lengths that take a byte more


class SchemaPrefix(NamedTuple):
    """What stands before each key and each value; empty for nothing."""

    key: bytes
    value: bytes


def frame_of(schema_id: int | None) -> bytes:
    """Return what stands before data of a schema; nothing for None."""
    return b"" if schema_id is None else _FRAME.pack(0, schema_id)


def schema_version(entry: Buffer, *, whole: bool = False) -> bytes | None:
    """Return the version of the topic's schema that a Pulsar producer named for an entry's messages.

    None where there is none, or where the payload is no message as such: a chunk, a marker, something encrypted. A
    chunk counts if it stands for the ``whole`` message.
    """
    message = decode_entry(entry).message
    foreign = message.encryption_keys or (message.is_chunk and not whole) or message.marker_type is not None
    if message.entry_format != "pulsar" or foreign:
        return None
    return message.schema_version or None


def framed(batch: Buffer, frame: SchemaPrefix) -> bytes:
    """Return an uncompressed record batch with ``frame`` around its keys and values; raise ``InvalidRecord``."""
    header = read_header(batch)
    body = memoryview(batch)[HEADER_BYTES : header.size]
    code = _machine.get(len(body))
    if code is not None:
        out = code.np.empty(len(body) + _GROWTH * header.records_count, code.np.uint8)
        size = code.fill(
            code.np.frombuffer(body, code.np.uint8), code.np.frombuffer(frame.key, code.np.uint8),
            code.np.frombuffer(frame.value, code.np.uint8), header.records_count, out,
        )  # fmt: skip
        if size >= 0:
            return seal(header, out[:size].data)
    return seal(header, plain(bytes(body), frame, header.records_count))


def plain(body: bytes, frame: SchemaPrefix, records: int) -> bytes:
    """Do the same to the records of a batch, one by one."""
    parts: list[bytes] = []
    at = 0
    for number in range(records):
        length, at = decode_zigzag(body, at)
        end = at + length
        if length < 1 or end > len(body):
            raise InvalidRecord(f"record {number} at byte {at} claims more bytes than its batch holds")
        after = decode_zigzag(body, decode_zigzag(body, at + 1)[1])[1]
        key, value_at = _sized(body, after, frame.key)
        value, rest = _sized(body, value_at, frame.value)
        record = body[at:after] + key + value + body[rest:end]
        parts += (encode_zigzag(len(record)), record)
        at = end
    return b"".join(parts)


def _sized(body: bytes, at: int, frame: bytes) -> tuple[bytes, int]:
    size, start = decode_zigzag(body, at)
    if size < 0:
        return body[at:start], start
    return encode_zigzag(size + len(frame)) + frame + body[start : start + size], start + size


class _Machine(LoadedLater):
    """The machine code, once it is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self._code: Any = None

    def get(self, size: int) -> Any:
        """Return the code, or None: then ``size`` bytes are framed without it, and past `WORTH_IT` it is loaded."""
        if self._code is None:
            self.goes_without(size, WORTH_IT)
        return self._code

    def load(self) -> None:
        if there := loaded("magnetar.records.kernels.schema_ids"):
            (self._code,) = there


_machine = _Machine()


def use_machine_code() -> None:
    """Have the machine code loaded when this returns."""
    _machine.load()
