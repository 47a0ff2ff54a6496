"""Entries of other formats than ``kafka``: what they hold, as the record batches that a Fetch would bring."""

from __future__ import annotations

import numpy as np

from magnetar.pipeline.frames import FOREIGN
from magnetar.records import kernel
from magnetar.records.arrow import BatchUnreadable, Bytes, Table
from magnetar.records.batch import HEADER_BYTES, batches
from magnetar.records.errors import RecordsError

# The columns that say what the head of a batch says, in the order of `magnetar.records.pulsar_kernel.ROW_START` and on.
_HEAD = [
    kernel.START, kernel.END, kernel.BASE_OFFSET, kernel.LAST_DELTA,
    kernel.BASE_TIME, kernel.MAX_TIME, kernel.ATTRIBUTES, kernel.COUNT,
]  # fmt: skip


def in_kafka_format(data: Bytes, rows: Table) -> tuple[Bytes, Table]:
    """Give bytes and table of the same records with every entry in format ``kafka``.

    An entry that held several batches has several rows. Raises `BatchUnreadable` for an entry of an unknown format or
    one that cannot be read; its number is that in ``rows``.
    """
    if not rows[:, FOREIGN].any():
        return data, rows
    from magnetar.records.conversion import kafka_rows, use_machine_code  # most topics need none of it

    use_machine_code()
    foreign = rows[:, FOREIGN] != 0
    stored, heads = kafka_rows(
        data, rows[foreign][:, [kernel.START, kernel.END]], rows[foreign][:, kernel.COUNT]
    )
    if foreign.all() and (heads[:, 0] >= 0).all():
        new = rows.copy()
        new[:, _HEAD], new[:, FOREIGN] = heads, 0
        return stored, new
    parts, made, at, done = [stored], [], len(stored), iter(heads)
    for number, row in enumerate(rows):
        head = next(done) if row[FOREIGN] else None
        if head is not None and head[0] >= 0:
            new = row.copy()
            new[_HEAD], new[FOREIGN] = head, 0
            made.append(new)
            continue
        if head is not None:
            found = _batches_of(data[row[kernel.START] : row[kernel.END]], row, number)
        else:
            found = [(data[row[kernel.START] : row[kernel.END]], row.copy())]
        for part, new in found:
            new[kernel.START], new[kernel.END] = at, at + len(part)
            at += len(part)
            parts.append(part)
            made.append(new)
    return np.concatenate(parts), np.stack(made)


def _batches_of(entry: Bytes, row: Table, number: int) -> list[tuple[Bytes, Table]]:
    from magnetar.records.conversion import kafka_batch

    content = memoryview(entry.tobytes())
    try:
        found = []
        for header, whole in batches(kafka_batch(content)):
            new = row.copy()
            new[FOREIGN] = 0
            new[kernel.BASE_OFFSET], new[kernel.LAST_DELTA] = header.base_offset, header.last_offset_delta
            new[kernel.BASE_TIME], new[kernel.MAX_TIME] = header.base_timestamp, header.max_timestamp
            new[kernel.ATTRIBUTES], new[kernel.COUNT] = header.attributes, header.records_count
            found.append((np.frombuffer(whole[HEADER_BYTES:], np.uint8), new))
    except RecordsError as error:
        raise BatchUnreadable(number, error) from None
    return found
