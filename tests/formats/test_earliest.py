"""What the broker tells its storage of the earliest time of a batch is what readers find, in every format."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.records.batch import HEADER_BYTES as HEAD
from magnetar.records.batch import (
    LOG_APPEND_TIME,
    UNKNOWN_TIME,
    PlainRecord,
    decode_records,
    encode_batch,
    read_header,
    seal,
)
from magnetar.records.entry import broker_entry_head
from magnetar.records.pulsar_entries import open_send, to_kafka
from magnetar.records.pulsar_metadata import TIMESTAMP_PROPERTY, MessageMetadata, encode_metadata
from magnetar.records.pulsar_plain import framed_message
from magnetar.topics.topic_config import ENTRY_FORMATS
from tests.admin.house import House, drafted

NOW = 1_700_000_000_000
TIMES = {
    "in order": [NOW, NOW + 1, NOW + 5],
    "out of order": [NOW, NOW - 300, NOW + 900],
    "without time": [-1, -1],
    "partly without": [NOW, -1, NOW],
    "the first is the last": [NOW, NOW - 1, NOW - 2, NOW - 3, NOW - 4, NOW - 5, NOW - 6],
}


@pytest.mark.parametrize("entry_format", ENTRY_FORMATS)
@pytest.mark.parametrize("stamped", [False, True])
async def test_readers_find_nothing_earlier(tmp_path: Path, entry_format: str, stamped: bool) -> None:
    async with House(tmp_path / "data") as house:
        partition = await house.topic()
        config = {"message_timestamp_type": "LogAppendTime"} if stamped else {}
        partition.topic.config = type(partition.topic.config)(entry_format=entry_format, **config)
        for times in TIMES.values():
            index = partition.log.state.writer.index if partition.log.state.writer else None  # type: ignore[attr-defined]
            if index is not None:
                index.earliest[-1] = (1 << 63) - 1  # so that it tells what comes now
            batch = encode_batch([PlainRecord(b"k", b"v", (), time) for time in times])
            base_offset, _, durable = partition.produce(await drafted(partition, memoryview(batch)))
            if durable is not None:
                await durable
            found = [
                record
                for part in (await partition.read(base_offset, 1 << 20))[0]
                for record in decode_records(part)
            ]
            index = partition.log.state.writer.index  # type: ignore[attr-defined]
            earliest = min(record.timestamp for record in found)
            assert index.earliest[-1] == earliest
            assert stamped or earliest == min(times)


@pytest.mark.parametrize("entry_format", ENTRY_FORMATS)
async def test_offsets_are_found_by_time_where_the_client_left_out_the_latest(
    tmp_path: Path, entry_format: str
) -> None:
    """As Sarama does: all its batches say that the latest time of their records is -1."""
    async with House(tmp_path / "data") as house:
        partition = await house.topic()
        partition.topic.config = type(partition.topic.config)(entry_format=entry_format)
        for first in (0, 10):
            batch = encode_batch([PlainRecord(b"k", b"v", (), NOW + first + i) for i in range(10)])
            sent = seal(read_header(batch)._replace(max_timestamp=-1), batch[HEAD:])
            *_, durable = partition.produce(await drafted(partition, memoryview(sent)))
            if durable is not None:
                await durable
        for at, wanted in ((0, 9), (7, 9), (9, 9), (10, 19), (15, 19), (19, 19), (20, None)):
            found = await partition.log.find_by_time(NOW + at)
            assert (found and found.last_offset) == wanted, at
        last = (await partition.read(10, 1 << 20))[0][-1]
        assert read_header(last).max_timestamp == NOW + 19


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2) | st.integers(NOW - 9, NOW + 9) | st.integers(0, (1 << 63) - 1),
    st.integers(0, 2) | st.integers(NOW - 9, NOW + 9),
    st.sampled_from(((), ((TIMESTAMP_PROPERTY, b"-5"),), ((b"a", b"b"),))),
    st.booleans(),
)
def test_a_message_of_pulsar_that_comes_alone_has_one_time(
    event_time: int, publish_time: int, properties: tuple[tuple[bytes, bytes], ...], encrypted: bool
) -> None:
    metadata = MessageMetadata(
        producer_name=b"p", publish_time=publish_time, event_time=event_time, properties=properties,
        encryption_keys=(b"\x0a\x01k\x12\x01v",) if encrypted else (),
    )  # fmt: skip
    sent = open_send(framed_message(encode_metadata(metadata), b"payload", 1).framed)
    (record,) = decode_records(to_kafka(broker_entry_head(NOW, 0) + bytes(sent.framed)))
    assert sent.earliest_ms <= record.timestamp
    if not properties and event_time < 1 << 55:
        assert sent.earliest_ms == record.timestamp


def test_what_times_a_batch_of_pulsar_has_is_not_looked_into() -> None:
    metadata = MessageMetadata(producer_name=b"p", publish_time=NOW, num_messages_in_batch=1, batched=True)
    sent = open_send(framed_message(encode_metadata(metadata), b"\0\0\0\2\x18\0" + b"", 1).framed)
    assert sent.earliest_ms == UNKNOWN_TIME


async def test_a_producer_that_says_it_is_the_brokers_time_is_taken_at_its_word(tmp_path: Path) -> None:
    async with House(tmp_path / "data") as house:
        partition = await house.topic()
        batch = encode_batch([PlainRecord(b"k", b"v", (), NOW + 99) for _ in range(9)])
        header = read_header(batch)._replace(attributes=LOG_APPEND_TIME, max_timestamp=NOW + 7)
        draft = await drafted(partition, memoryview(seal(header, batch[HEAD:])))
        assert draft.earliest_ms == NOW + 7


async def test_a_time_of_more_than_64_bits_is_cut_as_protobuf_has_it(tmp_path: Path) -> None:
    metadata = b"\x0a\x01p\x10\x00\x18" + b"\xff" * 9 + b"\x7f"
    sent = open_send(framed_message(metadata, bytes(40_000), 1).framed)
    assert (sent.metadata.publish_time, sent.earliest_ms) == (-1, UNKNOWN_TIME)
    async with House(tmp_path / "data") as house:
        log = (await house.topic()).log
        for _ in range(3):  # each begins a point of the index
            durable = log.append((sent.framed,), messages=1, timestamp_ms=sent.timestamp_ms).done
            assert durable is not None
            await durable
        assert log.log_end_offset == 3
