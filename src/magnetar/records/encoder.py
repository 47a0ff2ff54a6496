"""Arrow to record batches: the way back of `magnetar.records.arrow`, without a Python object per record.

`Columns` takes key, value, timestamp and headers as Arrow arrays; `partitions` says where each row belongs, and
`batches_of` lays some of the rows out as whole record batches, ready for Produce but for the producer's identity,
which `stamped` adds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magnetar.records.arrow_fields import FIELDS
from magnetar.records.batch import MAGIC, NO_PRODUCER, NO_SEQUENCE, BatchHeader, seal
from magnetar.records.compression import Buffer, Codec, compress
from magnetar.records.crc import crc32c
from magnetar.records.kernels import encode as kernel

Int32s: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]
Int64s: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]

_CRC = struct.Struct(">I")
_CRC_AT, _CRC_FROM = 17, 21
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43
_NOTHING = np.zeros(0, np.uint8)


class HeaderWithoutKey(ValueError):
    """A header whose key is null, which Kafka does not have."""


class Encoded(NamedTuple):
    """One record batch."""

    data: bytes
    records: int


class _Strings(NamedTuple):
    """A column of bytes: where each ends, the bytes, and 1 for each that is null."""

    ends: Int32s
    data: Bytes
    nulls: Bytes


class Columns:
    """Rows to encode. A column that is None is null in every row; ``times`` are milliseconds."""

    def __init__(
        self,
        count: int,
        *,
        key: pa.Array | None,
        value: pa.Array | None,
        times: Int64s,
        headers: pa.Array | None,
    ) -> None:
        self.count = count
        self.times = np.ascontiguousarray(times, np.int64)
        self.key = _strings(key, count)
        self.value = _strings(value, count)
        self.header_ends, self.names, self.contents = _headers(headers, count)

    def partitions(self, asked: Int32s | None, partitions: int, *, first: int = 0) -> Int32s:
        """Return each row's partition: the one asked for (-1: none), otherwise by its key as Kafka's own producer
        does.
        """
        chosen = np.full(self.count, -1, np.int32) if asked is None else np.array(asked, np.int32)
        kernel.choose_partitions(
            self.key.ends, self.key.data, self.key.nulls, partitions, first % partitions, chosen
        )
        return chosen

    def batches_of(self, rows: Int64s, *, target_bytes: int, codec: Codec) -> Iterator[Encoded]:
        """Yield batches of these rows, in order, of up to about ``target_bytes`` before compression."""
        rows = np.ascontiguousarray(rows, np.int64)
        first = 0
        while first < len(rows):
            stop, room, latest = kernel.measure(
                rows, first, target_bytes,
                self.key.ends, self.value.ends, self.header_ends, self.names.ends, self.contents.ends, self.times,
            )  # fmt: skip
            out = np.empty(room, np.uint8)
            size = kernel.write_rows(
                rows, first, stop, self.times, out,
                *self.key, *self.value,
                self.header_ends, self.names.ends, self.names.data, *self.contents,
            )  # fmt: skip
            yield self._sealed(
                out[:size].data, int(self.times[rows[first]]), int(latest), stop - first, codec
            )
            first = stop

    def _sealed(self, body: Buffer, base_time: int, latest: int, count: int, codec: Codec) -> Encoded:
        header = BatchHeader(
            base_offset=0,
            length=0,
            partition_leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=codec,
            last_offset_delta=count - 1,
            base_timestamp=base_time,
            max_timestamp=latest,
            producer_id=NO_PRODUCER,
            producer_epoch=-1,
            base_sequence=NO_SEQUENCE,
            records_count=count,
        )
        return Encoded(seal(header, compress(codec, body) if codec else body), count)


def stamped(batch: Buffer, producer_id: int, epoch: int, sequence: int) -> bytes:
    """Return the batch as this producer's, its checksum put right (KIP-98)."""
    out = bytearray(batch)
    _PRODUCER.pack_into(out, _PRODUCER_AT, producer_id, epoch, sequence)
    _CRC.pack_into(out, _CRC_AT, crc32c(memoryview(out)[_CRC_FROM:]))
    return bytes(out)


def _strings(column: pa.Array | None, count: int) -> _Strings:
    if column is None:
        return _Strings(np.zeros(count + 1, np.int32), _NOTHING, np.ones(max(count, 1), np.uint8))
    if column.type != pa.binary():
        column = column.cast(pa.binary())
    _, ends, data = column.buffers()
    all_ends = np.frombuffer(ends, np.int32) if ends is not None and ends.size else np.zeros(1, np.int32)
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else _NOTHING
    nulls = np.zeros(max(count, 1), np.uint8)
    if column.null_count:
        nulls[:count] = column.is_null().to_numpy(zero_copy_only=False)
    # What lies under a null may have bytes, but is none of the record's: the kernel writes null there.
    return _Strings(all_ends[column.offset : column.offset + count + 1], content, nulls)


def _headers(column: pa.Array | None, count: int) -> tuple[Int32s, _Strings, _Strings]:
    if column is None or column.null_count == len(column):
        return np.zeros(count + 1, np.int32), _strings(None, 0), _strings(None, 0)
    column = column.cast(FIELDS["headers"])
    # Null rows may span elements that are not theirs; counting anew from the lengths leaves them out.
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(lengths.to_numpy(zero_copy_only=False), out=ends[1:])
    pairs = column.flatten()
    names, contents = pairs.flatten()
    if names.null_count:
        raise HeaderWithoutKey("a header has no key")
    return ends, _strings(names, len(names)), _strings(contents, len(contents))
