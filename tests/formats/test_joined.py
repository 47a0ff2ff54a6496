"""Entries that are converted together hold what each holds alone; what lies around the room for them is not touched."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.records import joined
from magnetar.records.batch import PlainRecord, decode_records, encode_batch, read_header
from magnetar.records.compression import Codec
from magnetar.records.conversion import framed_batch, kafka_batch, machine_code, use_machine_code
from magnetar.records.entry import broker_entry_head
from magnetar.records.errors import RecordsError
from magnetar.records.joined import joined_batches
from tests.records.test_machine_code import pulsar_entries
from tests.records.test_pulsar_entries import NOW


@pytest.fixture(autouse=True, scope="module")
def _machine() -> None:
    assert use_machine_code()


def in_a_row(entries: list[bytes]) -> list[bytes]:
    """Return the entries with offsets that follow each other."""
    found, offset = [], 0
    for entry in entries:
        try:
            header = read_header(kafka_batch(entry))
        except RecordsError:
            messages = 1
        else:
            messages = header.last_offset_delta + 1
        offset += messages
        size = int.from_bytes(entry[2:6], "big")
        found.append(broker_entry_head(NOW, offset - 1) + entry[6 + size :])
    return found


@settings(deadline=None)
@given(st.lists(pulsar_entries(), min_size=1, max_size=6), st.integers(0, 600), st.integers(61, 1000))
def test_they_hold_what_each_holds_alone(entries: list[bytes], most: int, batch_bytes: int) -> None:
    entries = in_a_row(entries)
    read = b"frame".join([b"", *entries])
    places = [5 * (number + 1) + sum(map(len, entries[:number])) for number in range(len(entries))]
    views = [memoryview(read)[at : at + len(entry)] for at, entry in zip(places, entries, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joined, "BATCH_BYTES", batch_bytes)
        found = joined_batches(entries, most)
        assert found == joined_batches(views, most, places=places)
    assert found
    at = 0
    for batch, held in found:
        some, at = entries[at : at + held], at + held
        if batch is None:
            assert held == 1
            continue
        alone = [bytes(kafka_batch(each)) for each in some]
        header = read_header(batch)
        assert header.size == len(batch)
        assert (header.base_offset, header.last_offset) == (
            read_header(alone[0]).base_offset,
            read_header(alone[-1]).last_offset,
        )
        assert list(decode_records(batch)) == [row for each in alone for row in decode_records(each)]
        if held == 1:
            assert bytes(batch) == alone[0]
        else:
            assert header.max_timestamp == max(read_header(each).max_timestamp for each in alone)
    size = sum(len(batch) for batch, _ in found if batch is not None)
    assert size <= most or len([batch for batch, _ in found if batch is not None]) <= 1


@settings(deadline=None)
@given(st.lists(pulsar_entries(), min_size=1, max_size=4))
def test_nothing_is_written_beyond_the_room_that_is_taken(entries: list[bytes]) -> None:
    """Machine code checks no bounds when it writes: the room must be enough for any bytes."""
    kernels = machine_code(0)
    assert kernels is not None
    many = kernels.many
    ends = np.cumsum([len(entry) for entry in entries])
    spans = np.stack([ends - [len(entry) for entry in entries], ends], axis=1)
    data = np.frombuffer(b"".join(entries), np.uint8)
    opened = joined.OpenedEntries(kernels, data, spans)
    count = opened.inflate(0, 1 << 40)
    room = opened.room(0, count)
    out = np.full(room + 64, 0xAB, np.uint8)
    rows = opened.inflated, spans, opened.bodies, opened.facts
    made = np.empty((count, many.MADE_FIELDS), np.int64)
    assert many.fill_joined(data, *rows, 1 << 40, 1 << 20, out, made)[0] <= room
    assert (out[room:] == 0xAB).all()
    assert many.fill_rows(data, *rows, out, np.empty((count, many.ROW_FIELDS), np.int64)) <= room
    assert (out[room:] == 0xAB).all()


def test_one_head_speaks_only_for_entries_of_one_producer_in_order() -> None:
    entries, offset = [], 0
    for producer, sequence in ((5, 0), (5, 3), (5, 9), (6, 12), (-1, -1), (-1, -1)):
        batch = encode_batch(
            [PlainRecord(b"k", b"%d" % offset, (), NOW + offset)] * 3,
            producer_id=producer, producer_epoch=min(producer, 0), base_sequence=sequence,
        )  # fmt: skip
        framed = framed_batch(memoryview(batch), read_header(batch), NOW, Codec.lz4)
        offset += 3
        entries.append(broker_entry_head(NOW, offset - 1) + bytes(framed))
    found = joined_batches(entries, 1 << 20)
    assert found is not None
    assert [held for _, held in found] == [2, 1, 1, 2]
    heads = [read_header(batch) for batch, _ in found if batch is not None]
    assert [(each.producer_id, each.base_sequence) for each in heads] == [(5, 0), (5, 9), (6, 12), (-1, -1)]
    rows = [row for batch, _ in found if batch is not None for row in decode_records(batch)]
    assert [row.offset for row in rows] == list(range(18))
    assert [row.timestamp - NOW for row in rows] == [n // 3 * 3 for n in range(18)]
