"""What the entries of compacted ledgers say of whence they came, in the broker's own part of an entry."""

from __future__ import annotations

import struct
from typing import NamedTuple

from magnetar.records.compression import Buffer
from magnetar.records.entry import broker_entry_head
from magnetar.records.errors import EntryCorrupt
from magnetar.records.pulsar_metadata import fields
from magnetar.records.varint import encode_unsigned

_BROKER_SIZE = struct.Struct(">I")
_LEDGER_FIELD, _ENTRY_FIELD, _SINCE_FIELD, _THERE_FIELD = 100, 101, 102, 103
_ENDS_FIELD, _NOTED_FIELD = 104, 105


class Copied(NamedTuple):
    """Whence an entry of a compacted ledger came, and since when (ms) it is there, or a marker has nothing to end."""

    ledger_id: int
    entry_id: int
    since_ms: int
    there: bytes = b""
    """Where messages were left out: a bit for each that is there, the first one's the lowest of the first byte."""
    ends_at: int = -1
    """Of a piece of a chunked message that is whole: the offset of its last piece."""
    noted: bool = False
    """Of what a transaction wrote: whether a compaction has gone by its keys, as it has by all that is of none."""


def copied_head(broker_timestamp: int, index: int, copied: Copied) -> bytes:
    """Return the broker's entry metadata of a copy: Pulsar's two fields, and 100 to 105 for what `Copied` says."""
    head = broker_entry_head(broker_timestamp, index)
    numbers = (
        (_LEDGER_FIELD, copied.ledger_id),
        (_ENTRY_FIELD, copied.entry_id),
        (_SINCE_FIELD, copied.since_ms),
    )
    body = head[6:] + b"".join(encode_unsigned(n << 3) + encode_unsigned(value) for n, value in numbers)
    if copied.there:
        body += encode_unsigned(_THERE_FIELD << 3 | 2) + encode_unsigned(len(copied.there)) + copied.there
    if copied.ends_at >= 0:
        body += encode_unsigned(_ENDS_FIELD << 3) + encode_unsigned(copied.ends_at)
    if copied.noted:
        body += encode_unsigned(_NOTED_FIELD << 3) + b"\x01"
    return head[:2] + _BROKER_SIZE.pack(len(body)) + body


def copied_from(data: Buffer) -> Copied:
    """Return whence a copy came; raise ``EntryCorrupt`` if it does not say."""
    size = _BROKER_SIZE.unpack_from(data, 2)[0]
    numbers, there = {}, b""
    for field, value in fields(data, 6, 6 + size):
        if isinstance(value, int):
            numbers[field] = value
        elif field == _THERE_FIELD:
            there = bytes(value)
    try:
        return Copied(
            numbers[_LEDGER_FIELD],
            numbers[_ENTRY_FIELD],
            numbers[_SINCE_FIELD],
            there,
            numbers.get(_ENDS_FIELD, -1),
            bool(numbers.get(_NOTED_FIELD)),
        )
    except KeyError:
        raise EntryCorrupt("an entry of a compacted ledger that does not say whence it came") from None


def behind_broker_head(data: memoryview) -> memoryview:
    """Return what follows the broker's entry metadata."""
    return data[6 + int(_BROKER_SIZE.unpack_from(data, 2)[0]) :]
