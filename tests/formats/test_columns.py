"""What Spark makes of an entry is what the plain mapping makes of it, whatever a Pulsar producer sent."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.pipeline.formats import in_kafka_format
from magnetar.pipeline.frames import walk_frames
from magnetar.records import readers
from magnetar.records.arrow import BatchUnreadable, arrow_batches
from magnetar.records.batch import PlainRecord, decode_records, encode_batch
from magnetar.records.batch_table import FrameFault
from magnetar.records.entry import decode_entry
from magnetar.records.errors import RecordsError
from magnetar.records.pulsar_metadata import MessageMetadata, encode_metadata
from magnetar.records.pulsar_plain import framed_message, plain_kafka_batch
from tests.pipeline.test_kernel import ALL, as_rows
from tests.pipeline.writer import frame
from tests.records.test_machine_code import pulsar_entries
from tests.records.test_pulsar_entries import NOW, kafka_entry, stored

LEDGER = 7
MAX_MS = (1 << 63) // 1000 - 1  # what a timestamp of Spark's can be


@settings(deadline=None)
@given(st.lists(pulsar_entries(), min_size=1, max_size=4))
def test_columns_are_those_of_the_plain_mapping(entries: list[bytes]) -> None:
    entries.append(kafka_entry(encode_batch([PlainRecord(b"k", b"v", (), NOW)], base_offset=5), 5))
    compare(entries)


@settings(deadline=None)
@given(st.lists(pulsar_entries(), min_size=1, max_size=3), st.data())
def test_what_a_producer_broke_comes_marked_as_from_fetch(entries: list[bytes], data: st.DataObject) -> None:
    broken = []
    for entry in entries:
        whole = bytearray(entry)
        size = len(decode_entry(entry).payload)
        for _ in range(data.draw(st.integers(0, 3)) if size else 0):
            whole[-data.draw(st.integers(1, size))] ^= data.draw(st.integers(1, 255))
        broken.append(bytes(whole))
    compare(broken)


def test_a_broken_payload_is_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    metadata = MessageMetadata(b"p", 0, NOW, num_messages_in_batch=2, batched=True)
    entry = stored(framed_message(encode_metadata(metadata), b"\0\0\0\4\x18\xff\xff\3" * 2, 2).framed, 1)
    compare([entry])
    assert "marked pulsar.unreadable: entry 0 cannot be read: message 0 claims" in caplog.text


def compare(entries: list[bytes]) -> None:
    """Hold what Spark gets equal to what Fetch gives."""
    wanted = []
    for number, entry in enumerate(entries):
        if decode_entry(entry).base_offset < 0:
            return
        try:
            found = decode_records(plain_kafka_batch(entry))
        except RecordsError:
            for compiled in (True, False):
                with pytest.raises(BatchUnreadable):
                    columns(entries[: number + 1], compiled=compiled)
            return
        wanted += [
            (r.offset, r.key, r.value, min(r.timestamp, MAX_MS), 0, [tuple(header) for header in r.headers])
            for r in found
        ]
    assert columns(entries, compiled=True) == wanted
    assert columns(entries, compiled=False) == wanted


def columns(entries: list[bytes], *, compiled: bool) -> list[tuple[object, ...]]:
    """Read a ledger of these entries as a Spark task does."""
    data = np.frombuffer(b"".join(frame(LEDGER, n, entry) for n, entry in enumerate(entries)), np.uint8)
    walk = walk_frames(data, 0, len(data), ledger_id=LEDGER, entry_id=0, verify=True)
    assert walk.fault is FrameFault.NONE
    found = []
    with mock.patch.object(readers, "converts", return_value=compiled):
        for content, rows in in_kafka_format(data, walk.rows):
            found += arrow_batches(content, rows, topic="t", partition=0, low=0, high=1 << 62, columns=ALL)
    return as_rows(found)
