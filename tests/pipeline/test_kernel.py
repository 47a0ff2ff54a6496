"""The kernel against a decoder in plain Python that shares no line with it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.pipeline.options import COLUMNS, DAMAGE, HEADERS, POSITIONS
from magnetar.records import batch_table
from magnetar.records.arrow import FIELDS, BatchUnreadable, arrow_batches
from magnetar.records.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    Header,
    PlainRecord,
    decode_records,
    encode_batch,
    read_header,
    seal,
)
from magnetar.records.compression import Codec
from magnetar.records.errors import RecordsError
from magnetar.records.kernels import arrow as kernel

ALL = (*COLUMNS, HEADERS)
assert tuple(FIELDS) == (*ALL, *POSITIONS, DAMAGE)
maybe = st.none() | st.binary(max_size=200)
records = st.lists(
    st.builds(
        PlainRecord,
        key=maybe,
        value=maybe,
        headers=st.lists(st.builds(Header, st.text(max_size=6), maybe), max_size=4),
        timestamp=st.integers(-1, 2**47),
    ),
    min_size=1,
    max_size=150,
)


def table(*batches: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the batches end to end, and the table that `arrow_batches` wants."""
    rows, at = np.zeros((len(batches), batch_table.BATCH_FIELDS), np.int64), 0
    for row, batch in zip(rows, batches, strict=True):
        h = read_header(batch)
        start, at = at + HEADER_BYTES, at + len(batch)
        row[:] = (
            0,
            start,
            at,
            h.base_offset,
            h.last_offset_delta,
            h.base_timestamp,
            h.max_timestamp,
            h.attributes,
            h.records_count,
            0,
            7 + start,
            start,
        )
    return np.frombuffer(b"".join(batches), np.uint8), rows


def decoded(
    *batches: bytes, low: int = 0, high: int = 1 << 60, columns: tuple[str, ...] = ALL
) -> list[pa.RecordBatch]:
    stored, rows = table(*batches)
    found = list(arrow_batches(stored, rows, topic="t", partition=3, low=low, high=high, columns=columns))
    for each in found:
        each.validate(full=True)
    return found


def as_rows(batches: list[pa.RecordBatch]) -> list[tuple[object, ...]]:
    return [
        (
            offset,
            key,
            value,
            time // 1000,
            kind,
            [(header["key"], header["value"]) for header in headers or ()],
        )
        for batch in batches
        for offset, key, value, time, kind, headers in zip(
            *(batch[name].to_pylist() for name in ("offset", "key", "value")),
            batch["timestamp"].cast(pa.int64()).to_pylist(),
            *(batch[name].to_pylist() for name in ("timestampType", "headers")),
            strict=True,
        )
    ]


def expected(batch: bytes) -> list[tuple[object, ...]]:
    header = read_header(batch)
    kind = int(bool(header.attributes & LOG_APPEND_TIME))
    most = (1 << 63) // 1000 - 1  # what microseconds can hold
    return [
        (r.offset, r.key, r.value, max(min(r.timestamp, most), -most), kind, [tuple(h) for h in r.headers])
        for r in decode_records(batch)
    ]


@settings(max_examples=60, deadline=None)
@given(records, st.sampled_from(Codec), st.integers(0, 2**40), st.sampled_from([0, LOG_APPEND_TIME]))
def test_rows_are_those_of_the_plain_decoder(
    given_records: list[PlainRecord], codec: Codec, base_offset: int, attributes: int
) -> None:
    first = encode_batch(given_records, base_offset=base_offset, codec=codec, attributes=attributes)
    second = encode_batch(given_records, base_offset=base_offset + len(given_records), attributes=attributes)
    assert as_rows(decoded(first, second)) == expected(first) + expected(second)


@given(records, st.integers(0, 200), st.integers(0, 200))
def test_rows_outside_of_the_wanted_offsets_are_left_out(
    given_records: list[PlainRecord], low: int, high: int
) -> None:
    batch = encode_batch(given_records)
    assert as_rows(decoded(batch, low=low, high=high)) == [r for r in expected(batch) if low <= r[0] < high]


@settings(max_examples=300, deadline=None)
@given(records, st.data())
def test_damage_gives_the_plain_decoders_rows_or_is_refused(
    given_records: list[PlainRecord], data: st.DataObject
) -> None:
    batch = encode_batch(given_records)
    body = bytearray(batch[HEADER_BYTES:])
    for place in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=3)):
        body[place] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))] if data.draw(st.booleans()) else body
    damaged = seal(read_header(batch), bytes(body))
    try:
        rows = as_rows(decoded(damaged))
    except BatchUnreadable:
        return
    assert rows == expected(damaged)


@given(st.binary(max_size=300), st.integers(0, 2**31 - 1))
def test_any_bytes_are_rows_or_refused(body: bytes, count: int) -> None:
    header = read_header(encode_batch([PlainRecord(b"", b"")]))._replace(
        records_count=count, last_offset_delta=max(count - 1, 0)
    )
    damaged = seal(header, body)
    try:
        found = decoded(damaged, columns=("key", "value", "offset", "headers"))
    except BatchUnreadable:
        return
    assert sum(batch.num_rows for batch in found) == count
    with_plain = decode_records(damaged)
    assert [r.value for r in with_plain] == [v for batch in found for v in batch["value"].to_pylist()]


@given(st.binary(max_size=400), st.integers(0, 30), st.integers(0, 2**32 - 1))
def test_crc_is_that_of_the_library(data: bytes, start: int, crc: int) -> None:
    start = min(start, len(data))
    found = kernel.crc32c(np.frombuffer(data or b"\0", np.uint8), start, len(data), np.uint32(crc))
    assert found == crc32c(data[start:], crc)


@pytest.mark.parametrize("size", [3071, 3072, 3073, 6144, 65_536, 100_003])
def test_crc_of_what_is_long_enough_for_lanes(size: int) -> None:
    data = np.frombuffer(np.random.default_rng(size).bytes(size + 3), np.uint8)
    assert kernel.crc32c(data, 3, len(data), np.uint32(9)) == crc32c(data[3:].tobytes(), 9)
    changed = data.copy()
    changed[size // 2] ^= 1
    assert kernel.crc32c(changed, 3, len(data), np.uint32(9)) != crc32c(data[3:].tobytes(), 9)


@given(st.binary(min_size=8, max_size=8), st.integers(0, 2**32 - 1))
def test_crc_by_tables_is_the_same(data: bytes, crc: int) -> None:
    state = kernel._crc_by_tables(np.uint64(~crc & 0xFFFFFFFF), np.uint64(int.from_bytes(data, "little")))
    assert ~int(state) & 0xFFFFFFFF == crc32c(data, crc)


def test_header_keys_that_are_not_utf8_are_replaced_as_clients_do() -> None:
    batch = encode_batch([PlainRecord(b"k", b"v", (Header("abc", b"1"), Header("é", b"2")))])
    damaged = seal(read_header(batch), batch[HEADER_BYTES:].replace(b"abc", b"a\xffc"))
    assert as_rows(decoded(damaged))[0][5] == [("a\ufffdc", b"1"), ("é", b"2")]


def test_records_without_headers_have_null_headers_as_in_sparks_kafka_source() -> None:
    batch = encode_batch([PlainRecord(b"k", b"v"), PlainRecord(b"k", b"v", (Header("h", None),))])
    assert decoded(batch)[0]["headers"].to_pylist() == [None, [{"key": "h", "value": None}]]


def test_a_count_that_lies_takes_no_memory() -> None:
    batch = encode_batch([PlainRecord(b"k", b"v")])
    lying = seal(
        read_header(batch)._replace(records_count=2**31 - 1, last_offset_delta=2**31 - 2),
        batch[HEADER_BYTES:],
    )
    with pytest.raises(BatchUnreadable, match="claims more bytes"):
        decoded(lying)


def test_what_unpacks_to_much_comes_in_several_batches() -> None:
    batches = [
        encode_batch([PlainRecord(None, bytes(5 << 20))], base_offset=n, codec=Codec.zstd) for n in range(20)
    ]
    found = decoded(*batches, columns=("value", "offset"))
    assert len(found) > 1
    assert [o for batch in found for o in batch["offset"].to_pylist()] == list(range(20))


def test_wrong_compression_names_the_batch() -> None:
    good = encode_batch([PlainRecord(b"k", b"v")])
    bad = seal(read_header(good)._replace(attributes=Codec.zstd, base_offset=1), good[HEADER_BYTES:])
    with pytest.raises(RecordsError) as caught:
        decoded(good, bad)
    assert isinstance(caught.value, BatchUnreadable)
    assert caught.value.batch == 1


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.none])
def test_batches_that_unpack_to_more_than_fits_at_once_come_one_after_the_other(codec: Codec) -> None:
    sizes = (10, 2 << 20, 2 << 20, 3 << 20, 30, 40 << 20, 50, 4 << 20, 3 << 20)
    batches, offset = [], 0
    for number, size in enumerate(sizes):
        some = [PlainRecord(key=b"%d" % number, value=b"x" * (size // 2), timestamp=number) for _ in range(2)]
        batches.append(encode_batch(some, base_offset=offset, codec=Codec.none if size == 30 else codec))
        offset += 2
    found = decoded(*batches)
    assert len(found) > 3
    assert as_rows(found) == [row for batch in batches for row in expected(batch)]
