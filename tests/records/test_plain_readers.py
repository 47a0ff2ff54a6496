"""Plain Python, which reads while machine code is being compiled, does to any bytes what machine code does to them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from magnetar.records import batch_table, plain_arrow, plain_frames
from magnetar.records.batch import LOG_APPEND_TIME, Header, PlainRecord, encode_batch
from magnetar.records.kernels import arrow, frames
from tests.pipeline.test_kernel import records, table
from tests.pipeline.writer import frame
from tests.records.test_machine_code import pulsar_entries
from tests.records.test_pulsar_entries import kafka_entry

LEDGER = 7
LIMITS = st.sampled_from([(-(1 << 63), (1 << 63) - 1), (0, 1 << 40), (1 << 40, 1 << 46)])
TIMES = st.sampled_from([0, 1 << 40, (1 << 63) - 1, -(1 << 63)])


def changed(data: st.DataObject, whole: bytes) -> bytes:
    """Return bytes with some of them other ones, or cut."""
    out = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 3)) if out else 0):
        out[data.draw(st.integers(0, len(out) - 1))] = data.draw(
            st.integers(0, 255) | st.sampled_from([0x7F, 0x80])
        )
    return bytes(out[: data.draw(st.integers(0, len(out)))] if data.draw(st.integers(0, 4)) == 0 else out)


class Columns:
    """Room for all that is decoded, as `magnetar.records.arrow` takes it."""

    def __init__(self, stored: Any, rows: Any) -> None:
        most, room = int(rows[:, batch_table.COUNT].clip(0, 400).sum()), len(stored) + 1
        self.rows, self.totals = rows.copy(), np.zeros(batch_table.TOTALS, np.int64)
        self.numbers = [np.zeros(most, kind) for kind in (np.int64, np.int64, np.int32)]
        self.strings = [self._strings(most, room), self._strings(most, room)]
        self.headers = [np.zeros(most + 1, np.int32), np.zeros(most + 8, np.uint8)]
        self.names, self.contents = self._strings(room, room), self._strings(room, room)

    def _strings(self, most: int, room: int) -> list[Any]:
        return [np.zeros(most + 1, np.int32), np.zeros(room, np.uint8), np.zeros(most + 8, np.uint8)]

    def fill(
        self, decode: Any, stored: Any, low: int, high: int, times: tuple[int, int], wants: int
    ) -> list[Any]:
        strings = [each for column in self.strings for each in column]
        decode(
            stored, stored[:0], self.rows, low, high, *times, wants, self.totals, *self.numbers, *strings,
            *self.headers, *self.names[:2], *self.contents,
        )  # fmt: skip
        if self.totals[batch_table.FAULT]:
            return [self.totals[batch_table.FAULT : batch_table.FAULT_AT + 1].tolist()]
        filled = [
            self.rows,
            self.totals,
            *self.numbers,
            *strings,
            *self.headers,
            *self.names[:2],
            *self.contents,
        ]
        return [each.tolist() for each in filled]


@settings(deadline=None, max_examples=300)
@given(records, st.data())
def test_records_become_the_same_columns(given_records: list[PlainRecord], data: st.DataObject) -> None:
    attributes = data.draw(st.sampled_from([0, LOG_APPEND_TIME]))
    stored, rows = table(
        *(encode_batch(given_records, base_offset=at, attributes=attributes) for at in (3, 200))
    )
    if data.draw(st.booleans()):
        begin = int(rows[0, batch_table.START])
        body = changed(data, stored[begin:].tobytes())
        stored = np.frombuffer(stored[:begin].tobytes() + body, np.uint8)
        rows[:, [batch_table.START, batch_table.END]] = rows[:, [batch_table.START, batch_table.END]].clip(
            0, len(stored)
        )
        rows[0, batch_table.COUNT] += data.draw(st.integers(-1, 1))
    if data.draw(st.booleans()):
        rows[:, batch_table.BASE_TIME] = data.draw(TIMES)
    of = (
        data.draw(st.integers(0, 5)),
        data.draw(st.integers(3, 400)),
        data.draw(LIMITS),
        data.draw(st.integers(0, 7)),
    )
    plain, machine = (Columns(stored, rows).fill(by.decode_rows, stored, *of) for by in (plain_arrow, arrow))
    assert plain == machine


def test_a_header_count_beyond_its_record_is_the_same_fault() -> None:
    stored, rows = table(encode_batch([PlainRecord(None, None, (Header("h", None),))]))
    assert stored[-4] == 2
    body = stored.copy()
    body[-4] = 0x7E  # the count
    of = 0, 9, (-(1 << 63), (1 << 63) - 1), 7
    plain, machine = (Columns(body, rows).fill(by.decode_rows, body, *of) for by in (plain_arrow, arrow))
    assert plain == machine == [[batch_table.Fault.BAD_HEADERS, 0, 0]]


@settings(deadline=None, max_examples=300)
@given(
    st.lists(pulsar_entries(), min_size=1, max_size=3),
    st.lists(st.binary(max_size=20), min_size=1, max_size=3),
    st.data(),
)
def test_frames_become_the_same_rows(pulsar: list[bytes], values: list[bytes], data: st.DataObject) -> None:
    batch = encode_batch([PlainRecord(None, each) for each in values], base_offset=5)
    entries = [*pulsar, kafka_entry(batch, 5), *pulsar]
    some = data.draw(st.integers(0, len(entries) - 1))
    entries[some] = changed(data, entries[some])
    ledger = b"".join(frame(LEDGER, number, each) for number, each in enumerate(entries))
    if data.draw(st.booleans()):
        ledger = changed(data, ledger)
    stored, verify = np.frombuffer(ledger, np.uint8), data.draw(st.booleans())
    limits = data.draw(st.sampled_from([(1 << 62, 1 << 62), (2, 1 << 62), (1 << 62, 100)]))
    found = []
    for by in (plain_frames, frames):
        rows = np.zeros((5, batch_table.ROW_FIELDS), np.int64)
        told = by.walk(stored, 0, len(stored), LEDGER, 0, verify, *limits, rows)
        found.append(([int(each) for each in told], rows[: told[0]].tolist()))
    assert found[0] == found[1]


@given(
    st.lists(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]), max_size=12).map(bytes),
    st.sampled_from([5, 10]),
)
@example(b"\xff" * 9 + b"\x01", 10)
@example(b"\xff" * 9 + b"\x02", 10)
def test_numbers_are_the_same(data: bytes, most: int) -> None:
    stored = np.frombuffer(data or b"\0", np.uint8)
    for plain, machine in ((plain_arrow.unsigned, arrow.unsigned), (plain_arrow.zigzag, arrow.zigzag)):
        wanted = tuple(map(int, machine(stored, 0, len(data), most)))
        assert (
            plain(data, 0, len(data), most) == wanted or wanted[1] == -1 == plain(data, 0, len(data), most)[1]
        )
