"""Walking a ledger's file: frames, entries and the heads of their record batches, into one table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from magnetar.records import readers
from magnetar.records.arrow import Bytes, Table
from magnetar.records.batch_table import ROW_FIELDS, FrameFault

ROWS = 8192

WORDS = {
    FrameFault.CUT_SHORT: "it is cut short",
    FrameFault.WRONG_ENTRY: "another entry's id stands there",
    FrameFault.BAD_CRC: "its checksum does not match",
    FrameFault.BAD_ENTRY: "its metadata cannot be read",
    FrameFault.BAD_BATCH: "it does not hold exactly one record batch with the offsets of its index",
}


class Walk(NamedTuple):
    """The frames that were found, where the walk ended, and why it could not go on."""

    rows: Table
    at: int
    entry_id: int
    fault: FrameFault


def walk_frames(
    data: Bytes,
    at: int,
    end: int,
    *,
    ledger_id: int,
    entry_id: int,
    verify: bool,
    max_rows: int = 1 << 62,
    most_bytes: int = 1 << 62,
) -> Walk:
    """Return the frames in ``data[at:end]``, up to about so many records or bytes, at most `ROWS` of them.

    ``verify`` has the checksums looked at; without it only a few bytes of each frame are read.
    """
    rows = np.empty((ROWS, ROW_FIELDS), np.int64)
    count, at, entry_id, fault = readers.walk(
        data, at, end, ledger_id, entry_id, verify, max_rows, most_bytes, rows
    )
    return Walk(rows[:count], int(at), int(entry_id), FrameFault(int(fault)))
