"""The table of record batches, which a walk along frames fills, and decoding to Arrow columns reads."""

from __future__ import annotations

from enum import IntEnum


class Fault(IntEnum):
    """A fault in the records of a batch; 0 is none."""

    NONE = 0
    CUT_SHORT = 1
    BAD_NUMBER = 2
    RECORD_TOO_LONG = 3
    FIELD_TOO_LONG = 4
    NOT_FILLED = 5
    BYTES_LEFT = 6
    BAD_OFFSET = 7
    BAD_HEADERS = 8


# Columns of the table of batches that `decode_rows` is given. It fills in TAKEN, and does not look at those behind it.
INFLATED, START, END, BASE_OFFSET, LAST_DELTA, BASE_TIME, MAX_TIME, ATTRIBUTES, COUNT = range(9)
TAKEN, PUBLISH_TIME, ENTRY_ID = range(9, 12)
BATCH_FIELDS = 12

# What `decode_rows` tells in ``totals``.
FAULT, FAULT_BATCH, FAULT_AT, ROWS, KEY_BYTES, VALUE_BYTES, HEADERS = range(7)
NAME_BYTES, CONTENT_BYTES, NULL_KEYS, NULL_VALUES, BARE_ROWS, NULL_CONTENTS, FOREIGN_NAMES = range(7, 14)
TOTALS = 14

# Bits of ``wants``.
WANT_KEY, WANT_VALUE, WANT_HEADERS = 1, 2, 4

# Columns of a row of `magnetar.records.readers.walk`, behind those above. FOREIGN is 1 for an entry that is not in
# format ``kafka``: START and END span the whole entry then, and MAX_TIME is `UNKNOWN_TIME`. One of a transaction
# of Pulsar's has ATTRIBUTES and PRODUCER_ID as its record batch would; MARKER is the type of a marker that Pulsar ends
# one with, otherwise 0.
FRAME_AT, LAST_OFFSET, PRODUCER_ID, FOREIGN, MARKER = range(BATCH_FIELDS, BATCH_FIELDS + 5)
ROW_FIELDS = BATCH_FIELDS + 5
UNKNOWN_TIME = 1 << 62


class FrameFault(IntEnum):
    """Why a walk ended before its time; 0 means it did not."""

    NONE = 0
    CUT_SHORT = 1
    WRONG_ENTRY = 2
    BAD_CRC = 3
    BAD_ENTRY = 4
    BAD_BATCH = 6
