"""What must hold for all records, batches and entries, whatever they hold."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from magnetar.records.batch import (
    HEADER_BYTES,
    Header,
    PlainRecord,
    batches,
    decode_records,
    encode_batch,
    keys_and_values,
    read_header,
    recompressed,
    with_log_append_time,
)
from magnetar.records.check import check_batch
from magnetar.records.compression import Codec, compress, decompress
from magnetar.records.entry import (
    broker_entry_head,
    decode_entry,
    index_of,
    kafka_message_head,
    kafka_payload_at,
    last_offset,
    latest_timestamp,
    payload_at,
    read_head,
)
from magnetar.records.errors import CorruptBatch, EntryCorrupt, InvalidRecord, RecordsError
from magnetar.records.varint import decode_unsigned, decode_zigzag, encode_unsigned, encode_zigzag

codecs = st.sampled_from(Codec)
blobs = st.none() | st.binary(max_size=40) | st.integers(0, 300).map(bytes)
headers = st.lists(st.builds(Header, st.text(max_size=5), blobs), max_size=3)
times = st.integers(0, 2**42)
records = st.builds(PlainRecord, blobs, blobs, headers, times, st.just(0))


@given(st.integers(0, 2**64 - 1))
def test_plain_varints_come_back(value: int) -> None:
    written = encode_unsigned(value)
    assert decode_unsigned(b"x" + written + b"y", 1) == (value, 1 + len(written))


@given(st.integers(-(2**63), 2**63 - 1))
def test_zigzag_varints_come_back(value: int) -> None:
    written = encode_zigzag(value)
    assert decode_zigzag(written, 0, most_bytes=10) == (value, len(written))
    assert (len(written) <= 5) == (-(2**34) <= value < 2**34)


@given(st.integers(0, 2**64 - 1), st.data())
def test_a_varint_cut_short_is_refused(value: int, data: st.DataObject) -> None:
    written = encode_unsigned(value)
    with pytest.raises(CorruptBatch):
        decode_unsigned(written[: data.draw(st.integers(0, len(written) - 1))], 0)


@given(st.integers(1, 12))
def test_a_varint_that_goes_on_is_refused(most_bytes: int) -> None:
    with pytest.raises(CorruptBatch):
        decode_unsigned(b"\x80" * 20, 0, most_bytes=most_bytes)


@given(codecs, st.binary(max_size=2000), st.integers(1, 200))
def test_compressed_bytes_come_back(codec: Codec, seed: bytes, times: int) -> None:
    data = seed * times
    assert bytes(decompress(codec, compress(codec, data))) == data


@given(codecs.filter(bool), st.integers(1, 1 << 20))
def test_nothing_decompresses_beyond_the_bound(codec: Codec, most_bytes: int) -> None:
    packed = compress(codec, bytes(most_bytes + 1))
    with pytest.raises(InvalidRecord):
        decompress(codec, packed, most_bytes=most_bytes)
    assert len(decompress(codec, packed, most_bytes=most_bytes + 1)) == most_bytes + 1


@given(codecs.filter(bool), st.binary(max_size=300))
def test_noise_does_not_decompress_or_stays_small(codec: Codec, noise: bytes) -> None:
    try:
        assert len(decompress(codec, noise, most_bytes=1 << 20)) <= 1 << 20
    except RecordsError:
        pass


@given(st.lists(records, min_size=1, max_size=20), codecs, st.integers(0, 2**60))
def test_batches_come_back(written: list[PlainRecord], codec: Codec, base_offset: int) -> None:
    batch = encode_batch(written, base_offset=base_offset, codec=codec)
    expected = [record._replace(offset=base_offset + i) for i, record in enumerate(written)]
    assert decode_records(batch) == expected
    header = check_batch(memoryview(batch))
    assert (header.records_count, header.base_offset, header.codec) == (len(written), base_offset, codec)
    assert header.max_timestamp == max(record.timestamp for record in written)


@given(st.lists(records, max_size=200), st.sampled_from(Codec), st.booleans())
@example(
    [PlainRecord(None, bytes(8191)), PlainRecord(bytes(8192), None), PlainRecord(bytes(64), bytes(63))],
    Codec.none,
    True,
)
def test_keys_and_values_are_those_of_the_records(
    written: list[PlainRecord], codec: Codec, at_once: bool
) -> None:
    if at_once:  # as coordinators write theirs
        written = [record._replace(timestamp=5, headers=()) for record in written]
    if written:
        batch = encode_batch(written, codec=codec)
        assert list(keys_and_values(batch)) == [(record.key, record.value) for record in written]


def test_keys_and_values_are_those_of_the_records_whatever_byte_is_another() -> None:
    written = [PlainRecord(b"k", None), PlainRecord(None, b"v" * 64), PlainRecord(b"k" * 65, b"v")]
    batch = encode_batch([record._replace(timestamp=5) for record in written])
    for at in range(HEADER_BYTES, len(batch)):
        for other in range(256):
            changed = batch[:at] + bytes([other]) + batch[at + 1 :]
            try:
                expected = [(record.key, record.value) for record in decode_records(changed)]
            except RecordsError:
                with pytest.raises(RecordsError):
                    list(keys_and_values(changed))
            else:
                assert list(keys_and_values(changed)) == expected, (at, other)


@given(st.lists(records, min_size=1, max_size=5), codecs, codecs)
def test_another_codec_or_clock_changes_nothing_else(
    written: list[PlainRecord], first: Codec, then: Codec
) -> None:
    batch = encode_batch(written, codec=first)
    again = recompressed(batch, read_header(batch), then)
    assert check_batch(memoryview(again)).codec is then
    assert decode_records(again) == decode_records(batch)
    stamped = with_log_append_time(batch, read_header(batch), 12345)
    check_batch(memoryview(stamped))
    assert {record.timestamp for record in decode_records(stamped)} == {12345}
    assert [record.value for record in decode_records(stamped)] == [record.value for record in written]


@given(st.lists(records, min_size=1, max_size=5), st.data())
def test_any_flipped_bit_is_noticed(written: list[PlainRecord], data: st.DataObject) -> None:
    batch = bytearray(encode_batch(written))
    at = data.draw(
        st.integers(8, len(batch) - 1).filter(lambda at: not 12 <= at < 16)
    )  # the broker owns those
    batch[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(RecordsError):
        check_batch(memoryview(bytes(batch)))


@given(st.lists(records, min_size=1, max_size=5), st.data())
def test_a_batch_cut_short_is_refused(written: list[PlainRecord], data: st.DataObject) -> None:
    batch = encode_batch(written)
    with pytest.raises(RecordsError):
        check_batch(memoryview(batch)[: data.draw(st.integers(0, len(batch) - 1))])


@given(st.lists(st.lists(records, min_size=1, max_size=3), max_size=4), st.integers(0, HEADER_BYTES))
def test_batches_end_to_end_are_walked_up_to_a_cut(written: list[list[PlainRecord]], rest: int) -> None:
    laid = b"".join(map(encode_batch, written)) + encode_batch([PlainRecord(b"k", b"v", [], 0, 0)])[:rest]
    assert [decode_records(view) for _, view in batches(laid)] == [
        decode_records(encode_batch(each)) for each in written
    ]


@settings(max_examples=200)
@example(
    [PlainRecord(None, None, [], 0, 0)], 128, 33554432
)  # an index whose bytes look like another field's begin
@given(st.lists(records, min_size=1, max_size=5), st.integers(0, 2**45), st.integers(0, 2**50))
def test_entries_come_back(written: list[PlainRecord], now_ms: int, base_offset: int) -> None:
    batch = encode_batch(written, base_offset=base_offset)
    index = base_offset + len(written) - 1
    entry = broker_entry_head(now_ms, index) + kafka_message_head(now_ms, len(written)) + batch
    found = decode_entry(entry)
    assert (found.broker.broker_timestamp, found.broker.index) == (now_ms, index)
    assert (found.message.entry_format, found.message.publish_time) == ("kafka", now_ms)
    assert (found.base_offset, bytes(found.payload)) == (base_offset, batch)
    assert entry[payload_at(entry) :] == batch
    assert index_of(entry) == found.broker
    assert last_offset(entry) == index
    assert latest_timestamp(memoryview(entry)) == max(record.timestamp for record in written)


@given(
    st.integers(0, 2**37) | st.integers(0, 40).map(lambda bits: (1 << bits) - 1),
    st.integers(2**35, 2**42 - 1),
    st.integers(1, 2**21),
    st.booleans(),
)
def test_a_glance_at_an_entry_says_what_a_look_says(
    index: int, now_ms: int, messages: int, mixed: bool
) -> None:
    head = broker_entry_head(now_ms, index) + kafka_message_head(now_ms, messages, mixed=mixed)
    seen, kafka_at = read_head(memoryview(head + b"payload"))
    assert seen == last_offset(head) == index_of(head).index == index
    assert kafka_payload_at(memoryview(head)) == (-1 if mixed else len(head))
    assert kafka_at == (-1 if mixed or index >= 2**35 else len(head))  # else nobody would be quick


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda rest: b"\x0e\x02\0\0\0\x04" + rest))
def test_what_is_no_entry_is_refused_or_read_but_never_else(noise: bytes) -> None:
    for read in (decode_entry, index_of, payload_at):
        try:
            read(noise)
        except EntryCorrupt:
            pass


def _check_glance(entry: memoryview) -> None:
    """See whether `read_head` and who looks longer agree."""
    try:
        seen, kafka_at = read_head(entry)
    except EntryCorrupt:
        with pytest.raises(EntryCorrupt):
            last_offset(entry)
    else:
        assert (seen, True) == (last_offset(entry), kafka_at in (-1, kafka_payload_at(entry)))


@pytest.mark.parametrize("index", [5, 300, 70_000, 3_000_000, 900_000_000])
def test_whatever_byte_is_another_a_glance_says_what_a_look_says(index: int) -> None:
    head = broker_entry_head(1_700_000_000_000, index) + kafka_message_head(1_700_000_000_001, 300)
    for at in range(len(head)):
        entry = bytearray(head)
        for byte in range(256):
            entry[at] = byte
            _check_glance(memoryview(entry))


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_an_entry_with_changed_metadata_is_refused_or_read_but_never_else(
    written: list[PlainRecord], data: st.DataObject
) -> None:
    head = broker_entry_head(1_700_000_000_000, 41) + kafka_message_head(1_700_000_000_000, len(written))
    entry = bytearray(head + encode_batch(written))
    for _ in range(data.draw(st.integers(1, 3))):
        entry[data.draw(st.integers(0, len(head) - 1))] = data.draw(st.integers(0, 255))
    _check_glance(memoryview(entry))
    for read in (decode_entry, index_of, last_offset, lambda e: latest_timestamp(memoryview(e))):
        try:
            read(bytes(entry))
        except RecordsError:
            pass
