"""The mapping of Kafka records and Pulsar messages, both ways: nothing lost, nothing shifted, damage refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.records.batch import (
    CONTROL,
    LOG_APPEND_TIME,
    Header,
    PlainRecord,
    decode_records,
    encode_batch,
    read_header,
)
from magnetar.records.compression import Codec
from magnetar.records.crc import crc32c
from magnetar.records.entry import broker_entry_head, decode_entry, kafka_message_head
from magnetar.records.errors import CorruptBatch, EntryCorrupt, InvalidRecord, RecordsError
from magnetar.records.pulsar_compression import compress_payload, decompress_payload
from magnetar.records.pulsar_entries import open_send, to_kafka, to_pulsar
from magnetar.records.pulsar_metadata import (
    Compression,
    MessageMetadata,
    SingleMessageMetadata,
    decode_metadata,
    decode_single,
    encode_metadata,
    encode_single,
)
from magnetar.records.pulsar_plain import framed_message, singles
from tests.records import pulsar_oracle as oracle

codecs = st.sampled_from(Codec)
blobs = st.none() | st.binary(max_size=40) | st.integers(0, 300).map(bytes)
names = st.text(max_size=4) | st.sampled_from(["a", "__kafka.headers", "__kafka.timestamp"])
headers = st.lists(
    st.builds(Header, names, st.none() | st.binary(max_size=8) | st.text(max_size=8).map(str.encode)),
    max_size=4,
)
times = st.integers(0, 2**42) | st.integers(-2, 2)
records = st.builds(PlainRecord, blobs, blobs, headers, times, st.just(0))
producers = st.tuples(st.integers(0, 2**40), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)) | st.just(
    (-1, -1, -1)
)
NOW = 1_700_000_000_000


def kafka_entry(batch: bytes, index: int) -> bytes:
    messages = read_header(batch).last_offset_delta + 1
    return broker_entry_head(NOW, index) + kafka_message_head(NOW, messages) + batch


def stored(framed: object, index: int) -> bytes:
    return broker_entry_head(NOW, index) + bytes(framed)  # type: ignore[call-overload]


def sent(metadata: MessageMetadata, payload: bytes) -> bytes:
    return bytes(framed_message(encode_metadata(metadata), payload, 1).framed)


def batch_payload(*messages: tuple[SingleMessageMetadata, bytes]) -> bytes:
    parts = []
    for single, payload in messages:
        written = encode_single(single)
        parts.append(struct.pack(">I", len(written)) + written + payload)
    return b"".join(parts)


@given(st.lists(records, min_size=1, max_size=6), codecs, st.integers(0, 2**40), producers)
def test_kafka_records_survive_the_way_through_pulsar(
    written: list[PlainRecord], codec: Codec, base: int, producer: tuple[int, int, int]
) -> None:
    producer_id, epoch, sequence = producer
    batch = encode_batch(
        written,
        base_offset=base,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    last = base + len(written) - 1
    message = to_pulsar(kafka_entry(batch, last))
    assert message.messages == len(written)
    back = to_kafka(stored(message.framed, last))
    assert decode_records(back) == decode_records(batch)
    was, now = read_header(batch), read_header(back)
    assert now[:1] + now[9:] == was[:1] + was[9:]
    assert crc32c(memoryview(back)[21:]) == now.crc
    assert len(back) == now.size


@given(st.lists(records, min_size=1, max_size=4), codecs)
def test_what_pulsar_gets_is_what_protobuf_reads(written: list[PlainRecord], codec: Codec) -> None:
    batch = encode_batch(written, codec=codec)
    message = to_pulsar(kafka_entry(batch, len(written) - 1))
    assert bytes(message.framed[:2]) == b"\x0e\x01"
    assert struct.unpack_from(">I", message.framed, 2)[0] == crc32c(message.framed[6:])
    metadata = oracle.MessageMetadata.FromString(bytes(message.metadata))
    assert metadata.num_messages_in_batch == len(written)
    body = bytes(
        decompress_payload(
            metadata.compression, message.payload, metadata.uncompressed_size or len(message.payload)
        )
    )
    at = 0
    for record in written:
        (size,) = struct.unpack_from(">I", body, at)
        single = oracle.SingleMessageMetadata.FromString(body[at + 4 : at + 4 + size])
        at += 4 + size
        payload = body[at : at + single.payload_size]
        at += single.payload_size
        assert (None if single.null_value else payload) == record.value
        assert single.HasField("ordering_key") == single.HasField("partition_key") == (record.key is not None)
        assert single.ordering_key == (record.key or b"")
        assert single.event_time == max(record.timestamp, 0)
        assert len({each.key for each in single.properties}) == len(single.properties)
    assert at == len(body)


def test_headers_are_properties_that_a_pulsar_consumer_can_read() -> None:
    plain = [Header("trace", "ä1".encode()), Header("empty", b"")]
    hard = [Header("a", b"1"), Header("a", b"2"), Header("bin", b"\xff\0"), Header("none", None)]
    batch = encode_batch([PlainRecord(b"k", b"v", plain, 5), PlainRecord(b"\xff", b"v", hard, 5)])
    (_, easy), (_, difficult) = _singles(to_pulsar(kafka_entry(batch, 1)).payload)
    assert easy.properties == ((b"trace", "ä1".encode()), (b"empty", b""))
    assert (easy.partition_key, easy.partition_key_b64_encoded) == (b"k", False)
    assert difficult.properties[0] == (b"a", b"2")
    assert [name for name, _ in difficult.properties] == [b"a", b"__kafka.headers"]
    assert (difficult.partition_key, difficult.partition_key_b64_encoded) == (b"/w==", True)


def _singles(body: object) -> list[tuple[int, SingleMessageMetadata]]:

    count, at = 0, 0
    data = bytes(body)  # type: ignore[call-overload]
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        at += 4 + size + decode_single(data, at + 4, at + 4 + size).payload_size
        count += 1
    return [(number, single) for number, single, _ in singles(data, count)]


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("batched", [False, True])
def test_a_pulsar_message_becomes_a_record(compression: Compression, batched: bool) -> None:
    payload = b"hello" * 50
    common = {
        "properties": ((b"p", b"1"), (b"p", b"2")),
        "partition_key": b"aGk=",
        "partition_key_b64_encoded": True,
    }
    if batched:
        inside = batch_payload(
            (SingleMessageMetadata(payload_size=len(payload), event_time=7, **common), payload),  # type: ignore[arg-type]
            (SingleMessageMetadata(compacted_out=True), b""),
            (SingleMessageMetadata(null_value=True, partition_key=b"k", ordering_key=b"o"), b""),
            (SingleMessageMetadata(null_partition_key=True, partition_key=b"k"), b""),
        )
        metadata = MessageMetadata(
            b"p-1",
            3,
            NOW,
            compression=compression,
            uncompressed_size=len(inside),
            num_messages_in_batch=4,
            batched=True,
        )
    else:
        inside = payload
        metadata = MessageMetadata(
            b"p-1",
            3,
            NOW,
            compression=compression,
            uncompressed_size=len(inside),
            event_time=7,
            **common,  # type: ignore[arg-type]
        )
    found = open_send(sent(metadata, bytes(compress_payload(compression, inside))))
    assert found.messages == (4 if batched else 1)
    batch = to_kafka(stored(found.framed, 9 + found.messages))
    rows = decode_records(batch)
    assert rows[0] == PlainRecord(b"hi", payload, [Header("p", b"1"), Header("p", b"2")], 7, 10)
    assert read_header(batch).last_offset == 9 + found.messages
    if batched:
        assert rows[1:] == [PlainRecord(b"o", None, [], NOW, 12), PlainRecord(None, b"", [], NOW, 13)]


def test_chunks_and_encrypted_messages_keep_their_offsets_and_come_marked() -> None:
    chunk = MessageMetadata(b"p", 1, NOW, partition_key=b"k", uuid=b"p-1", num_chunks_from_msg=3, chunk_id=1)
    (row,) = decode_records(to_kafka(stored(sent(chunk, b"piece"), 5)))
    assert (row.key, row.value, row.offset) == (b"k", b"piece", 5)
    assert row.headers[0] == Header("pulsar.chunk", b"p-1/1/3")
    assert decode_metadata(row.headers[1].value or b"") == chunk
    key = oracle.MessageMetadata(producer_name="p", sequence_id=1, publish_time=NOW, encryption_algo="AES",
                                 num_messages_in_batch=10, encryption_param=b"iv")  # fmt: skip
    key.encryption_keys.add(key="k1", value=b"secret")
    frame = framed_message(key.SerializeToString(), b"c" * 99, 10).framed
    batch = to_kafka(stored(open_send(frame, num_messages=10).framed, 14))
    (row,) = decode_records(batch)
    assert (row.value, row.offset, read_header(batch).last_offset) == (b"c" * 99, 5, 14)
    assert row.headers[0] == Header("pulsar.encrypted", b"AES")
    assert oracle.MessageMetadata.FromString(row.headers[1].value).encryption_param == b"iv"


def test_brokers_markers_hold_no_records() -> None:
    marker = sent(MessageMetadata(b"", 0, NOW, marker_type=10), b"for brokers")
    batch = to_kafka(stored(marker, 5))
    assert (read_header(batch).records_count, read_header(batch).last_offset) == (0, 5)
    assert to_pulsar(stored(marker, 5)).control


@pytest.mark.parametrize(("kind", "marker"), [(b"\0\0", 22), (b"\0\1", 21)])
def test_the_end_of_a_transaction_is_a_marker_for_pulsar(kind: bytes, marker: int) -> None:
    batch = encode_batch(
        [PlainRecord(b"\0\0" + kind, b"\0" * 6, (), NOW)], attributes=CONTROL, producer_id=7, producer_epoch=1
    )
    message = to_pulsar(kafka_entry(batch, 0))
    assert message.control
    assert oracle.MessageMetadata.FromString(bytes(message.metadata)).marker_type == marker
    assert to_kafka(kafka_entry(batch, 0)) == batch


def test_log_append_time_stays() -> None:
    batch = encode_batch([PlainRecord(b"k", b"v", (), 5)], attributes=LOG_APPEND_TIME)
    back = to_kafka(stored(to_pulsar(kafka_entry(batch, 0)).framed, 0))
    assert read_header(back).attributes == LOG_APPEND_TIME
    assert decode_records(back) == decode_records(batch)


def test_offsets_without_a_record_are_messages_compacted_out() -> None:
    from magnetar.records.batch import HEADER_BYTES, seal

    batch = encode_batch([PlainRecord(b"a", b"1", (), 5), PlainRecord(b"b", b"2", (), 5)])
    one = len(batch[HEADER_BYTES:]) // 2
    header = read_header(batch)._replace(records_count=1, last_offset_delta=3)
    compacted = seal(header, batch[HEADER_BYTES + one :])
    message = to_pulsar(kafka_entry(compacted, 3))
    assert [single.compacted_out for _, single in _singles(message.payload)] == [True, False, True, True]
    assert decode_records(to_kafka(stored(message.framed, 3))) == decode_records(compacted)


@given(st.binary(max_size=60))
def test_anything_else_is_refused(data: bytes) -> None:
    for read in (to_kafka, to_pulsar, open_send):
        try:
            read(data)
        except RecordsError:
            pass


@given(st.data())
def test_a_damaged_entry_is_refused_or_read_whole(data: st.DataObject) -> None:
    """Whatever byte is hit, there is an answer: an error of ours, or a batch that holds together."""
    written = data.draw(st.lists(records, min_size=1, max_size=3))
    batch = encode_batch(written, codec=data.draw(codecs))
    whole = bytearray(stored(to_pulsar(kafka_entry(batch, 2)).framed, 2))
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decode_records(to_kafka(whole))
        to_pulsar(whole)
    except RecordsError:
        pass


def test_a_wrong_checksum_is_refused() -> None:
    frame = bytearray(sent(MessageMetadata(b"p", 0, NOW), b"hello"))
    frame[-1] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        open_send(frame)


def test_metadata_that_cannot_be_is_refused_with_its_place() -> None:
    frame = bytes(framed_message(b"\x0a\x00\x10\x00\x18\x01\x22\x7f", b"", 1).framed)
    with pytest.raises(EntryCorrupt, match="byte 16"):
        open_send(frame)
    with pytest.raises(EntryCorrupt, match="claims 4294967295 bytes"):
        open_send(b"\xff\xff\xff\xff\0")


def test_a_count_that_the_payload_cannot_hold_takes_no_offsets() -> None:
    batch = batch_payload((SingleMessageMetadata(payload_size=1), b"x"))
    for messages in (2, 0, -1, 2**31 - 1):
        metadata = MessageMetadata(b"p", 0, NOW, num_messages_in_batch=messages, batched=True)
        with pytest.raises(InvalidRecord, match="cannot be in"):
            open_send(sent(metadata, batch))
    with pytest.raises(InvalidRecord, match="command speaks of 2"):
        open_send(
            sent(MessageMetadata(b"p", 0, NOW, num_messages_in_batch=1, batched=True), batch), num_messages=2
        )


@pytest.mark.parametrize("name", [b"entry.format", b"__kafka.batch"])
def test_the_brokers_own_marks_are_refused(name: bytes) -> None:
    with pytest.raises(InvalidRecord, match="the broker's own"):
        open_send(sent(MessageMetadata(b"p", 0, NOW, properties=((name, b"kafka"),)), b""))


@pytest.mark.parametrize("compression", list(Compression)[1:])
def test_a_bomb_takes_no_memory_and_comes_marked(compression: Compression) -> None:
    small = bytes(compress_payload(compression, b"a" * 100))
    for wrong, why in ((1 << 31, b"claims 2147483648 bytes"), (99, b"99"), (101, b"101")):
        metadata = MessageMetadata(b"p", 0, NOW, compression=compression, uncompressed_size=wrong)
        (row,) = decode_records(to_kafka(stored(sent(metadata, small), 5)))
        assert (row.value, row.offset, row.headers[0].key) == (small, 5, "pulsar.unreadable")
        assert why in (row.headers[0].value or b"")
        assert decode_metadata(row.headers[1].value or b"") == metadata


def test_the_formats_are_told_by_the_mark() -> None:
    batch = encode_batch([PlainRecord(b"k", b"v")])
    assert decode_entry(kafka_entry(batch, 0)).message.entry_format == "kafka"
    assert decode_entry(stored(sent(MessageMetadata(b"p"), b""), 0)).message.entry_format == "pulsar"
