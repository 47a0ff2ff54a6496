"""Record batches to Arrow: the columns of Spark's Kafka source, without a Python object per record.

    key binary, value binary, topic string, partition int, offset bigint, timestamp (UTC), timestampType int
    and, when asked for,
    headers array<struct<key string, value binary>>, null where a record has none
    ledger_id bigint, entry_id bigint, batch_index int, publish_time timestamp: Pulsar's place of the record
    damage struct: null, but for a row that stands in the place of records that cannot be read

Timestamps keep Kafka's milliseconds (those of LogAppendTime batches are the broker's); times that microseconds
in 64 bits cannot hold are cut to the nearest that they can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from magnetar.records import batch_table, readers
from magnetar.records.arrow_fields import DAMAGE, FIELDS, HEADER
from magnetar.records.columns import numbers, same_number, same_text
from magnetar.records.compression import Codec, decompress_into
from magnetar.records.errors import InvalidRecord, RecordsError

Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Table: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

ANY_TIME = (-(1 << 63), (1 << 63) - 1)
_PLACES = ("ledger_id", "entry_id", "batch_index", "publish_time")
_INFLATED_BYTES = 5 << 20
_INFLATED_ROOM = _INFLATED_BYTES + (1 << 20)
_MAX_INFLATED_BYTES = 1 << 30  # of one batch: a broker has looked at it, so it is no bomb
_WORDS = {
    batch_table.Fault.CUT_SHORT: "the records are cut short",
    batch_table.Fault.BAD_NUMBER: "a number in a record is cut or too long",
    batch_table.Fault.RECORD_TOO_LONG: "a record claims more bytes than its batch holds",
    batch_table.Fault.FIELD_TOO_LONG: "a field claims more bytes than its record holds",
    batch_table.Fault.NOT_FILLED: "a record's fields do not fill its length",
    batch_table.Fault.BYTES_LEFT: "bytes follow the last record",
    batch_table.Fault.BAD_OFFSET: "a record's offset lies outside of its batch",
    batch_table.Fault.BAD_HEADERS: "a record's headers cannot be read",
}


class BatchUnreadable(RecordsError):
    """One batch of several cannot be read; ``batch`` is its number in the table."""

    def __init__(self, batch: int, why: object) -> None:
        super().__init__(str(why))
        self.batch = batch


def schema(columns: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema of these columns, in this order."""
    return pa.schema([pa.field(name, FIELDS[name]) for name in columns])


def arrow_batches(
    stored: Bytes,
    batches: Table,
    *,
    topic: str,
    partition: int,
    low: int,
    high: int,
    columns: Sequence[str],
    times_ms: tuple[int, int] | None = None,
    ledger_id: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of ``batches`` (rows of `batch_table`) with offsets in ``[low, high)``.

    ``START`` and ``END`` span each batch's records in ``stored``, compressed or not. What unpacks to much comes in
    several Arrow batches, so that memory stays bounded. ``times_ms`` (both included) leaves out other times. Without
    ``ledger_id`` the columns that tell a record's place in a ledger are null. Raises `BatchUnreadable`.
    """
    constants: dict[str, Callable[[int], pa.Array]] = {
        "topic": partial(same_text, topic),
        "partition": partial(same_number, partition, kind=pa.int32()),
        "ledger_id": partial(same_number, ledger_id or 0, kind=pa.int64()),
        "damage": lambda rows: pa.nulls(rows, DAMAGE),
    }
    if ledger_id is None:
        constants |= {name: partial(pa.nulls, type=FIELDS[name]) for name in _PLACES}
    for first, inflated, some in _inflated(stored, batches):
        try:
            decoded = _Decoded(stored, inflated, some, low, high, columns, times_ms or ANY_TIME)
        except BatchUnreadable as error:
            raise BatchUnreadable(first + error.batch, error) from None
        if decoded.rows:
            arrays = [constants[n](decoded.rows) if n in constants else decoded.column(n) for n in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema(columns))


def damage_row(
    columns: Sequence[str], *, topic: str, partition: int, offset: int, damage: Mapping[str, object]
) -> pa.RecordBatch:
    """Return the one row that stands for records from ``offset`` on that cannot be read; ``damage`` is as in
    `DAMAGE`.
    """
    known = {"topic": topic, "partition": partition, "offset": offset, "damage": damage}
    known |= {name: damage[name] for name in ("ledger_id", "entry_id")}
    return pa.RecordBatch.from_arrays(
        [pa.array([known.get(name)], FIELDS[name]) for name in columns], schema=schema(columns)
    )


def _inflated(stored: Bytes, batches: Table) -> Iterator[tuple[int, Bytes, Table]]:
    """Yield (number of the first, what was decompressed, the table pointing there) of some batches after the other.

    What was decompressed is good until the next is asked for.
    """
    if not (batches[:, batch_table.ATTRIBUTES] & 0x07).any():
        yield 0, stored[:0], batches
        return
    pointing, room = batches.copy(), _room(_INFLATED_ROOM, np.uint8)
    first = number = at = 0
    while number < len(batches):
        size: int | None = 0
        if batches[number, batch_table.ATTRIBUTES] & 0x07:
            size = _decompressed(stored, batches[number], room[at:], number)
            if size is None and at == 0:
                room = _larger(room, number)
                continue
            if size is not None:
                pointing[number, [batch_table.INFLATED, batch_table.START, batch_table.END]] = (
                    1,
                    at,
                    at + size,
                )
        if size is not None:
            at, number = at + size, number + 1
        if size is None or at >= _INFLATED_BYTES:
            yield first, room[:at], pointing[first:number]
            # That is decoded by now: its room serves again, unless it is that of a giant.
            first, at = number, 0
            room = room if len(room) == _INFLATED_ROOM else _room(_INFLATED_ROOM, np.uint8)
    if first < number:
        yield first, room[:at], pointing[first:]


def _decompressed(stored: Bytes, row: Table, room: Bytes, number: int) -> int | None:
    """Decompress one batch's records; give how many bytes, or None if there is no room for them."""
    try:
        codec = Codec.of(int(row[batch_table.ATTRIBUTES]))
        return decompress_into(codec, stored[row[batch_table.START] : row[batch_table.END]].data, room)
    except RecordsError as error:
        raise BatchUnreadable(number, error) from None


def _larger(room: Bytes, number: int) -> Bytes:
    if len(room) >= _MAX_INFLATED_BYTES:
        raise BatchUnreadable(number, f"records decompress to more than {len(room)} bytes")
    return _room(min(8 * len(room), _MAX_INFLATED_BYTES), np.uint8)


class _Decoded:
    """What the kernel filled in. Room is taken for the worst case; pages that stay empty cost nothing."""

    def __init__(
        self, stored: Bytes, inflated: Bytes, batches: Table, low: int, high: int, columns: Sequence[str],
        times_ms: tuple[int, int],
    ) -> None:  # fmt: skip
        self.batches = batches
        room = int((batches[:, batch_table.END] - batches[:, batch_table.START]).sum())
        # The smallest record takes 7 bytes: a count beyond that is a lie, and must not take memory.
        max_rows = min(int(batches[:, batch_table.COUNT].clip(0).sum()), room // 7 + 1)
        if room >= 1 << 31:
            raise InvalidRecord(f"{room} bytes of records are too many for one Arrow batch")
        wants = sum(
            flag
            for name, flag in (
                ("key", batch_table.WANT_KEY),
                ("value", batch_table.WANT_VALUE),
                ("headers", batch_table.WANT_HEADERS),
            )
            if name in columns
        )
        max_headers = room // 2 if wants & batch_table.WANT_HEADERS else 0
        self.totals = np.zeros(batch_table.TOTALS, np.int64)
        self.offsets = _room(max_rows, np.int64)
        self.times = _room(max_rows, np.int64)
        self.time_types = _room(max_rows, np.int32)
        self.key = _Strings(max_rows, room if wants & batch_table.WANT_KEY else 0)
        self.value = _Strings(max_rows, room if wants & batch_table.WANT_VALUE else 0)
        self.header_ends, self.header_bits = np.zeros(max_rows + 1, np.int32), _bits(max_rows)
        self.names = _Strings(max_headers, room if max_headers else 0)
        self.contents = _Strings(max_headers, room if max_headers else 0)
        readers.decode_rows(
            stored, inflated, batches, low, high, times_ms[0], times_ms[1], wants, self.totals,
            self.offsets, self.times, self.time_types,
            self.key.ends, self.key.data, self.key.bits,
            self.value.ends, self.value.data, self.value.bits,
            self.header_ends, self.header_bits,
            self.names.ends, self.names.data, self.contents.ends, self.contents.data, self.contents.bits,
        )  # fmt: skip
        if self.totals[batch_table.FAULT]:
            why = _WORDS[batch_table.Fault(int(self.totals[batch_table.FAULT]))]
            place = int(self.totals[batch_table.FAULT_AT])
            raise BatchUnreadable(
                int(self.totals[batch_table.FAULT_BATCH]), f"{why} (byte {place} of its records)"
            )
        self.rows = int(self.totals[batch_table.ROWS])

    def column(self, name: str) -> pa.Array:
        """Return one column of `FIELDS` that is not the same in every row."""
        totals = self.totals
        if name == "key":
            return self.key.array(
                pa.binary(), self.rows, totals[batch_table.KEY_BYTES], totals[batch_table.NULL_KEYS]
            )
        if name == "value":
            return self.value.array(
                pa.binary(), self.rows, totals[batch_table.VALUE_BYTES], totals[batch_table.NULL_VALUES]
            )
        if name == "headers":
            return self._headers()
        if name in _PLACES:
            return self._place(name)
        plain: dict[str, np.ndarray[Any, Any]] = {
            "offset": self.offsets,
            "timestamp": self.times,
            "timestampType": self.time_types,
        }
        return numbers(plain[name][: self.rows], FIELDS[name])

    def _place(self, name: str) -> pa.Array:
        taken = self.batches[:, batch_table.TAKEN]
        if name == "batch_index":
            index = self.offsets[: self.rows] - np.repeat(self.batches[:, batch_table.BASE_OFFSET], taken)
            return numbers(index.astype(np.int32), FIELDS[name])
        if name == "publish_time":
            return numbers(np.repeat(self.batches[:, batch_table.PUBLISH_TIME] * 1000, taken), FIELDS[name])
        return numbers(np.repeat(self.batches[:, batch_table.ENTRY_ID], taken), FIELDS[name])

    def _headers(self) -> pa.Array:
        totals, count = self.totals, int(self.totals[batch_table.HEADERS])
        names = self.names.array(pa.string(), count, totals[batch_table.NAME_BYTES], 0)
        if totals[batch_table.FOREIGN_NAMES]:
            names = _as_utf8(names)
        contents = self.contents.array(
            pa.binary(), count, totals[batch_table.CONTENT_BYTES], totals[batch_table.NULL_CONTENTS]
        )
        pairs = pa.StructArray.from_arrays([names, contents], fields=list(HEADER))
        bare = int(totals[batch_table.BARE_ROWS])
        buffers = [pa.py_buffer(self.header_bits) if bare else None, pa.py_buffer(self.header_ends)]
        return pa.Array.from_buffers(FIELDS["headers"], self.rows, buffers, bare, children=[pairs])


def _room(count: int, kind: Any) -> np.ndarray[Any, Any]:
    """Return room for so many numbers, with anything in it, from Arrow's own pool.

    What a batch gives back there serves the next one; fresh memory would have to be cleared by the system, page by
    page, which is a third of the time that the kernel takes for large records.
    """
    return (
        np.frombuffer(pa.allocate_buffer(count * np.dtype(kind).itemsize), kind)
        if count
        else np.empty(0, kind)
    )


class _Strings:
    """Room for one column of bytes, as Arrow lays it out: ends, data, validity bits."""

    def __init__(self, most: int, room: int) -> None:
        self.ends = _room(most + 1, np.int32)
        self.ends[0] = 0
        self.data = _room(room, np.uint8)
        self.bits = _bits(most)

    def array(self, kind: pa.DataType, count: int, size: int, nulls: int) -> pa.Array:
        """Return the first ``count`` of them, ``size`` bytes in all."""
        bits = pa.py_buffer(self.bits) if nulls else None
        ends, data = _without_room(self.ends, count + 1), _without_room(self.data, int(size))
        buffers = [bits, pa.py_buffer(ends), pa.py_buffer(data)]
        return pa.Array.from_buffers(kind, count, buffers, int(nulls))


def _without_room(taken: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """Return the first ``count``: whoever keeps the column, as a writer of files does, need not keep much more room."""
    return taken[:count].copy() if 4 * count < len(taken) else taken[:count]


def _bits(count: int) -> Bytes:
    return np.zeros((count + 7) // 8, np.uint8)


def _as_utf8(names: pa.Array) -> pa.Array:
    """Replace what is not UTF-8 in header keys as every Kafka client does when it reads them."""
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raw = names.cast(pa.binary()).to_pylist()
        return pa.array([name.decode(errors="replace") for name in raw], pa.string())
    return names
