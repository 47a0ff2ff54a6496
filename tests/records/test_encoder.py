"""Arrow columns become the record batches that Kafka's own clients would make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from magnetar.records.arrow import FIELDS
from magnetar.records.batch import Header, PlainRecord, check_crc, decode_records, read_header
from magnetar.records.compression import Codec
from magnetar.records.encoder import Columns, HeaderWithoutKey, stamped

_bytes = st.none() | st.binary(max_size=300)
_headers = st.lists(st.tuples(st.text(max_size=20), _bytes), max_size=4)
_rows = st.lists(
    st.tuples(_bytes, _bytes, st.none() | _headers, st.integers(-(1 << 40), 1 << 50)), min_size=1, max_size=60
)


def columns(rows: list[Any], *, offset: int = 0) -> Columns:
    """Lay rows out; ``offset`` more come before them, which a slice then leaves out."""
    rows = [(b"not", b"ours", [("x", b"y")], 0)] * offset + rows
    headers = [None if h is None else [{"key": k, "value": v} for k, v in h] for _, _, h, _ in rows]
    return Columns(
        len(rows) - offset,
        key=pa.array([row[0] for row in rows], pa.binary()).slice(offset),
        value=pa.array([row[1] for row in rows], pa.binary()).slice(offset),
        headers=pa.array(headers, FIELDS["headers"]).slice(offset),
        times=np.array([row[3] for row in rows[offset:]], np.int64),
    )


@settings(deadline=None, max_examples=40)
@given(rows=_rows, target=st.integers(1, 5000), codec=st.sampled_from(list(Codec)), offset=st.integers(0, 9))
def test_what_is_encoded_is_decoded(rows: list[Any], target: int, codec: Codec, offset: int) -> None:
    order = np.arange(len(rows) - 1, -1, -1)
    found = []
    for batch in columns(rows, offset=offset).batches_of(order, target_bytes=target, codec=codec):
        header = read_header(batch.data)
        check_crc(batch.data, header)
        records = decode_records(batch.data)
        assert batch.records == len(records) == header.records_count == header.last_offset_delta + 1
        assert header.max_timestamp == max(record.timestamp for record in records)
        assert [record.offset for record in records] == list(range(len(records)))
        found += [record._replace(offset=0) for record in records]
    assert found == [
        PlainRecord(key, value, [Header(*each) for each in headers or ()], time)
        for key, value, headers, time in reversed(rows)
    ]


def test_batches_are_about_as_large_as_they_should_be() -> None:
    rows = [(None, b"x" * 1000, None, 0)] * 100
    sizes = [
        len(each.data)
        for each in columns(rows).batches_of(np.arange(100), target_bytes=10_000, codec=Codec.none)
    ]
    assert len(sizes) == 12
    assert max(sizes) <= 10_000 + 61


@given(keys=st.lists(st.binary(max_size=40), min_size=1), partitions=st.integers(1, 50))
def test_keys_go_where_kafkas_producer_sends_them(keys: list[bytes], partitions: int) -> None:
    chosen = columns([(key, b"", None, 0) for key in keys]).partitions(None, partitions)
    assert list(chosen) == [(murmur2(key) & 0x7FFFFFFF) % partitions for key in keys]


def test_rows_without_a_key_are_spread_and_those_with_a_partition_stay() -> None:
    rows = columns([(None, b"", None, 0)] * 100)
    assert np.bincount(rows.partitions(None, 4, first=3)).tolist() == [25] * 4
    asked = np.where(np.arange(100) < 40, 2, -1).astype(np.int32)
    assert np.bincount(rows.partitions(asked, 4)).tolist() == [15, 15, 55, 15]


def test_a_header_needs_a_key() -> None:
    with pytest.raises(HeaderWithoutKey):
        columns([(b"", b"", [(None, b"v")], 0)])


def test_a_stamp_changes_the_producer_and_nothing_else() -> None:
    (batch,) = columns([(b"k", b"v", None, 7)]).batches_of(np.arange(1), target_bytes=100, codec=Codec.none)
    data = stamped(batch.data, 1 << 40, 3, 0x7FFFFFFF)
    header = read_header(data)
    check_crc(data, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1 << 40, 3, 0x7FFFFFFF)
    assert decode_records(data) == decode_records(batch.data)
