"""Many of Pulsar's entries to Kafka's records by one call of machine code; see `magnetar.records.kernels.pulsar`.

First `open_entries` says of each entry what has to be decompressed; the caller does that, since the codecs are no
machine code of ours; then `fill_joined` makes record batches, or `fill_rows` records alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from magnetar.records.compiling import compiled
from magnetar.records.kernels.arrow import BYTES, OUT_BYTES, TABLE
from magnetar.records.kernels.pulsar import (
    ATTRIBUTES,
    BASE_SEQUENCE,
    HEADER_BYTES,
    INDEX,
    MESSAGES,
    PARTS,
    PAYLOAD_AT,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    PUBLISH_TIME,
    STATUS,
    TOO_MANY,
    fill_records,
    open_entry,
    put_head,
)

_i8 = types.int64
_PLAIN, _COMPRESSED = 1, 2

# What is told of each entry: where its batch or its records lie. A start of `TO_PLAIN` leaves the entry to the plain
# form, `WITH_THE_FIRST` says that it is in the batch of an entry before, of which ``ENTRIES`` tells how many it holds.
START, END, ENTRIES = range(3)
MADE_FIELDS = 3
TO_PLAIN, WITH_THE_FIRST = -1, -2

# What `fill_rows` tells of each entry: where its records lie in ``out``, and what the head of their batch would say.
(
    ROW_START,
    ROW_END,
    ROW_BASE_OFFSET,
    ROW_LAST_DELTA,
    ROW_BASE_TIME,
    ROW_MAX_TIME,
    ROW_ATTRIBUTES,
    ROW_COUNT,
) = range(8)
ROW_FIELDS = 8
_KEPT_ATTRIBUTES = 0x18


@compiled(types.void(BYTES, TABLE, TABLE))
def open_entries(data: Any, spans: Any, facts: Any) -> None:
    """Read the metadata of the entries ``data[start:end]`` of all ``spans`` into a row of ``facts`` each."""
    for row in range(spans.shape[0]):
        facts[row, STATUS] = open_entry(data[spans[row, 0] : spans[row, 1]], facts[row])


@compiled(types.boolean(TABLE, _i8, _i8, _i8))
def _goes_on(facts: Any, first: Any, last: Any, row: Any) -> Any:
    """Tell whether one head can speak for the entries ``first`` to ``last`` and for this one behind them."""
    messages = facts[last, INDEX] - facts[first, INDEX] + facts[first, MESSAGES]
    sequence = facts[first, BASE_SEQUENCE]
    return (
        facts[row, INDEX] - facts[row, MESSAGES] == facts[last, INDEX]
        and (facts[first, ATTRIBUTES] | facts[row, ATTRIBUTES]) & _KEPT_ATTRIBUTES == 0
        and facts[row, PRODUCER_ID] == facts[first, PRODUCER_ID]
        and facts[row, PRODUCER_EPOCH] == facts[first, PRODUCER_EPOCH]
        and facts[row, BASE_SEQUENCE] == (sequence if sequence < 0 else sequence + messages)
    )


@compiled(types.UniTuple(_i8, 2)(BYTES, BYTES, TABLE, TABLE, TABLE, _i8, _i8, OUT_BYTES, TABLE))
def fill_joined(
    data: Any, inflated: Any, spans: Any, bodies: Any, facts: Any, most_bytes: Any, batch_bytes: Any,
    out: Any, made: Any,
) -> Any:  # fmt: skip
    """Write record batches of opened entries; entries that follow each other share one of about ``batch_bytes``.

    A compressed entry's payload is ``inflated[start:end]`` of ``bodies``. Gives (bytes, entries): it ends where
    another entry would exceed ``most_bytes``, but not before the first. `TOO_MANY` as the bytes says that there are
    more messages and properties in them, all together, than an entry's ``LIMIT``.
    """
    parts = np.int64(0)
    to = start = end = np.int64(0)
    first = last = np.int64(-1)  # the entries of the batch under way
    count = latest = last_delta = np.int64(0)
    row = np.int64(0)
    while row < spans.shape[0]:
        made[row, START] = TO_PLAIN
        size = spans[row, 1] - spans[row, 0]
        if facts[row, STATUS] == _COMPRESSED:
            size = bodies[row, 1] - bodies[row, 0]
        joins = first >= 0 and to - start + size <= batch_bytes and _goes_on(facts, first, last, row)
        if first >= 0 and not joins:
            put_head(out, start, to, facts[first], last_delta, count, latest)
            first = np.int64(-1)
        if facts[row, STATUS] == _PLAIN:
            row += 1
            continue
        lead = first if joins else row
        delta = facts[row, INDEX] - facts[row, MESSAGES] - facts[lead, INDEX] + facts[lead, MESSAGES]
        begin = to if joins else to + HEADER_BYTES
        entry = data[spans[row, 0] : spans[row, 1]]
        facts[row, PARTS] = parts
        if facts[row, STATUS] == _COMPRESSED:
            body = inflated[bodies[row, 0] : bodies[row, 1]]
            end, records, time = fill_records(
                entry, body, np.int64(0), facts[row], delta, facts[lead, PUBLISH_TIME], out, begin
            )
        else:
            end, records, time = fill_records(
                entry, entry, facts[row, PAYLOAD_AT], facts[row], delta, facts[lead, PUBLISH_TIME], out, begin
            )
        if end == TOO_MANY:
            return end, row
        parts = facts[row, PARTS]
        if end < 0:
            if first >= 0:
                put_head(out, start, to, facts[first], last_delta, count, latest)
                first = np.int64(-1)
            row += 1
            continue
        if end > most_bytes and row > 0:
            break
        if joins:
            made[row, START] = WITH_THE_FIRST
            count += records
            latest = max(latest, time)
        else:
            first, start = row, to
            made[row, START], made[row, ENTRIES] = start, 0
            count, latest = records, time
        last, last_delta, to = row, delta + facts[row, MESSAGES] - 1, end
        made[first, END] = to
        made[first, ENTRIES] += 1
        row += 1
    if first >= 0:
        put_head(out, start, to, facts[first], last_delta, count, latest)
    return to, row


@compiled(_i8(BYTES, BYTES, TABLE, TABLE, TABLE, OUT_BYTES, TABLE))
def fill_rows(data: Any, inflated: Any, spans: Any, bodies: Any, facts: Any, out: Any, made: Any) -> Any:
    """Write the records of opened entries without heads; give how many bytes of ``out`` that takes.

    An entry that is left to the plain form has `TO_PLAIN` as ``ROW_START``.
    """
    to = np.int64(0)
    for row in range(spans.shape[0]):
        made[row, ROW_START] = TO_PLAIN
        if facts[row, STATUS] == _PLAIN:
            continue
        entry = data[spans[row, 0] : spans[row, 1]]
        published = facts[row, PUBLISH_TIME]
        if facts[row, STATUS] == _COMPRESSED:
            body = inflated[bodies[row, 0] : bodies[row, 1]]
            end, records, latest = fill_records(
                entry, body, np.int64(0), facts[row], np.int64(0), published, out, to
            )
        else:
            end, records, latest = fill_records(
                entry, entry, facts[row, PAYLOAD_AT], facts[row], np.int64(0), published, out, to
            )
        if end < 0:
            continue
        attributes = facts[row, ATTRIBUTES] & _KEPT_ATTRIBUTES
        made[row, ROW_START], made[row, ROW_END] = to, end
        made[row, ROW_BASE_OFFSET] = facts[row, INDEX] - facts[row, MESSAGES] + 1
        made[row, ROW_LAST_DELTA] = facts[row, MESSAGES] - 1
        made[row, ROW_BASE_TIME] = published
        made[row, ROW_MAX_TIME] = published if attributes & 0x08 else latest
        made[row, ROW_ATTRIBUTES] = attributes
        made[row, ROW_COUNT] = records
        to = end
    return to
