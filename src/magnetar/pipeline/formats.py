"""Entries of other formats than ``kafka``: what they hold, as the record batches that a Fetch would bring."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from magnetar.pipeline.compiler_pages import let_go_of_compiler
from magnetar.records import batch_table, readers
from magnetar.records.arrow import BatchUnreadable, Bytes, Table
from magnetar.records.batch import HEADER_BYTES, batches
from magnetar.records.batch_table import FOREIGN, LAST_OFFSET
from magnetar.records.errors import RecordsError

if TYPE_CHECKING:
    from magnetar.pipeline.chunked import LedgerChunks

# The columns that say what the head of a batch says, in the order of `pulsar_many.ROW_START` and on.
_HEAD = [
    batch_table.START, batch_table.END, batch_table.BASE_OFFSET, batch_table.LAST_DELTA,
    batch_table.BASE_TIME, batch_table.MAX_TIME, batch_table.ATTRIBUTES, batch_table.COUNT,
]  # fmt: skip
_log = logging.getLogger("magnetar.pipeline")
_AT_ONCE_BYTES = 8 << 20  # of what was compressed
_PLAIN_BYTES = 1 << 20


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
    foreign = np.flatnonzero(rows[:, FOREIGN])
    if not readers.converts():
        yield from _one_by_one(data, rows, foreign, chunked)
        return
    from magnetar.records.joined import kafka_rows  # most topics need none of it

    _load()
    begin = 0
    for first, stop, stored, heads in kafka_rows(
        data, rows[foreign][:, [batch_table.START, batch_table.END]], _AT_ONCE_BYTES
    ):
        end = int(foreign[stop]) if stop < len(foreign) else len(rows)
        # Entries in format ``kafka`` come with the foreign one before them, the first of all with the one behind.
        yield _together(data, rows, begin, end, stored, foreign[first:stop], heads, chunked)
        begin = end


def _one_by_one(
    data: Bytes, rows: Table, foreign: Table, chunked: LedgerChunks | None
) -> Iterator[tuple[Bytes, Table]]:
    """Do the same while machine code is being compiled."""
    sizes = np.cumsum(rows[:, batch_table.END] - rows[:, batch_table.START])
    begin = 0
    while begin < len(rows):
        done = sizes[begin - 1] if begin else 0
        end = max(int(np.searchsorted(sizes, done + _PLAIN_BYTES, "right")), begin + 1)
        some = foreign[(foreign >= begin) & (foreign < end)]
        yield _together(data, rows, begin, end, data[:0], some, np.full((len(some), 1), -1), chunked)
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
            found = _batches_of(data[row[batch_table.START] : row[batch_table.END]], row, number, chunked)
        else:
            found = [(data[row[batch_table.START] : row[batch_table.END]], row.copy())]
        for part, new in found:
            new[batch_table.START], new[batch_table.END] = at, at + len(part)
            at += len(part)
            parts.append(part)
            made.append(new)
    return np.concatenate(parts), np.stack(made) if made else rows[:0]


def _batches_of(
    entry: Bytes, row: Table, number: int, chunked: LedgerChunks | None
) -> list[tuple[Bytes, Table]]:
    from magnetar.records.conversion import kafka_batch
    from magnetar.records.pulsar_plain import UnreadableBatch, plain_kafka_batch

    content = memoryview(entry.tobytes())
    try:
        found = []
        together = None if chunked is None else chunked.batch_of(row, content)
        convert = kafka_batch if readers.converts() else plain_kafka_batch
        made = convert(content) if together is None else together
        if isinstance(made, UnreadableBatch):
            what = "offsets up to %d come as one row, marked pulsar.unreadable: entry %d cannot be read: %s"
            _log.warning(what, row[LAST_OFFSET], row[batch_table.ENTRY_ID], made.why)
        for header, whole in batches(made):
            new = row.copy()
            new[FOREIGN] = 0
            new[batch_table.BASE_OFFSET], new[batch_table.LAST_DELTA] = (
                header.base_offset,
                header.last_offset_delta,
            )
            new[batch_table.BASE_TIME], new[batch_table.MAX_TIME] = (
                header.base_timestamp,
                header.max_timestamp,
            )
            new[batch_table.ATTRIBUTES], new[batch_table.COUNT] = header.attributes, header.records_count
            found.append((np.frombuffer(whole[HEADER_BYTES:], np.uint8), new))
    except RecordsError as error:
        raise EntryUnreadable(number, error) from None
    return found
