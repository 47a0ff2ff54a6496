"""Entries of other formats than ``kafka``: what they hold, as the record batches that a Fetch would bring."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from magnetar.pipeline.compiler_pages import let_go_of_compiler
from magnetar.pipeline.frames import FOREIGN, LAST_OFFSET
from magnetar.records.arrow import BatchUnreadable, Bytes, Table
from magnetar.records.batch import HEADER_BYTES, batches
from magnetar.records.errors import RecordsError
from magnetar.records.kernels import arrow as kernel

if TYPE_CHECKING:
    from magnetar.pipeline.chunked import LedgerChunks

# The columns that say what the head of a batch says, in the order of `pulsar_many.ROW_START` and on.
_HEAD = [
    kernel.START, kernel.END, kernel.BASE_OFFSET, kernel.LAST_DELTA,
    kernel.BASE_TIME, kernel.MAX_TIME, kernel.ATTRIBUTES, kernel.COUNT,
]  # fmt: skip
_log = logging.getLogger("magnetar.pipeline")
_AT_ONCE_BYTES = 8 << 20  # of what was compressed


class EntryUnreadable(BatchUnreadable):
    """An entry is of an unknown format, or cannot be read; ``batch`` is its number in the table that was given."""


def in_kafka_format(
    data: Bytes, rows: Table, chunked: LedgerChunks | None = None
) -> Iterator[tuple[Bytes, Table]]:
    """Yield bytes and table of the same records with every entry in format ``kafka``, some entries after the other.

    An entry that held several batches has several rows. ``chunked`` puts pieces of messages together; without it they
    come marked. Raises `EntryUnreadable`.
    """
    if not rows[:, FOREIGN].any():
        yield data, rows
        return
    from magnetar.records.joined import kafka_rows  # most topics need none of it

    _load()
    foreign = np.flatnonzero(rows[:, FOREIGN])
    begin = 0
    for first, stop, stored, heads in kafka_rows(
        data, rows[foreign][:, [kernel.START, kernel.END]], _AT_ONCE_BYTES
    ):
        end = int(foreign[stop]) if stop < len(foreign) else len(rows)
        # Entries in format ``kafka`` come with the foreign one before them, the first of all with the one behind.
        yield _together(data, rows, begin, end, stored, foreign[first:stop], heads, chunked)
        begin = end


@cache
def _load() -> None:
    from magnetar.records.conversion import use_machine_code

    use_machine_code()
    let_go_of_compiler()


def _together(
    data: Bytes,
    rows: Table,
    begin: int,
    end: int,
    stored: Bytes,
    foreign: Table,
    heads: Table,
    chunked: LedgerChunks | None,
) -> tuple[Bytes, Table]:
    """Return ``rows[begin:end]``, of which ``foreign`` were converted into ``stored``."""
    if len(foreign) == end - begin and (heads[:, 0] >= 0).all():
        new = rows[begin:end].copy()
        new[:, _HEAD], new[:, FOREIGN] = heads, 0
        return stored, new
    parts, made, at, done = [stored], [], len(stored), iter(heads)
    for number in range(begin, end):
        row = rows[number]
        head = next(done) if row[FOREIGN] else None
        if head is not None and head[0] >= 0:
            new = row.copy()
            new[_HEAD], new[FOREIGN] = head, 0
            made.append(new)
            continue
        if head is not None:
            found = _batches_of(data[row[kernel.START] : row[kernel.END]], row, number, chunked)
        else:
            found = [(data[row[kernel.START] : row[kernel.END]], row.copy())]
        for part, new in found:
            new[kernel.START], new[kernel.END] = at, at + len(part)
            at += len(part)
            parts.append(part)
            made.append(new)
    return np.concatenate(parts), np.stack(made) if made else rows[:0]


def _batches_of(
    entry: Bytes, row: Table, number: int, chunked: LedgerChunks | None
) -> list[tuple[Bytes, Table]]:
    from magnetar.records.conversion import kafka_batch
    from magnetar.records.pulsar_plain import UnreadableBatch

    content = memoryview(entry.tobytes())
    try:
        found = []
        together = None if chunked is None else chunked.batch_of(row, content)
        made = kafka_batch(content) if together is None else together
        if isinstance(made, UnreadableBatch):
            what = "offsets up to %d come as one row, marked pulsar.unreadable: entry %d cannot be read: %s"
            _log.warning(what, row[LAST_OFFSET], row[kernel.ENTRY_ID], made.why)
        for header, whole in batches(made):
            new = row.copy()
            new[FOREIGN] = 0
            new[kernel.BASE_OFFSET], new[kernel.LAST_DELTA] = header.base_offset, header.last_offset_delta
            new[kernel.BASE_TIME], new[kernel.MAX_TIME] = header.base_timestamp, header.max_timestamp
            new[kernel.ATTRIBUTES], new[kernel.COUNT] = header.attributes, header.records_count
            found.append((np.frombuffer(whole[HEADER_BYTES:], np.uint8), new))
    except RecordsError as error:
        raise EntryUnreadable(number, error) from None
    return found
