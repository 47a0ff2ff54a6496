"""The end of an open ledger, and a last record, without the kernel: for those who find that there is nothing new.

To load the kernel takes half a second of processor time, in which Python walks more frames than a broker leaves behind
its index. What is not plain here (many frames, damage, another entry format, transactions to be looked at) is for the
kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.ledger.formats.layout import FRAME_BYTES, LedgerFrame, read_frame
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.pipeline.port import LastRecord
from magnetar.records.batch import UNKNOWN_TIME, last_record_before, read_header
from magnetar.records.entry import kafka_payload_at, last_offset, read_head
from magnetar.records.errors import RecordsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.pipeline.mapped import Cut, MappedLedger

FEW_BYTES = 2 << 20
FEW_FRAMES = 5000
_NOBODY_KNOWS = 1 << 62
_LEAST_US, _MOST_US = -(1 << 63), (1 << 63) - 1


class NotPlain(Exception):
    """It takes the kernel to tell."""


def take_whole_frames(file: MappedLedger, index: SparseIndex) -> None:
    """Take what lies behind an index's end into it, if that is little, up to the first frame that is not whole."""
    if len(file) - index.end > FEW_BYTES:
        return
    for frame in _frames(file, index.end, index.entries, len(file)):
        try:
            last = last_offset(frame.entry)
        except RecordsError:
            return
        at = kafka_payload_at(frame.entry)
        if at >= 0 and at + 43 <= len(frame.entry):
            time = int.from_bytes(frame.entry[at + 35 : at + 43], "big", signed=True)
        else:
            time = _NOBODY_KNOWS
        if last < index.next_offset:
            return
        index.add(FRAME_BYTES + len(frame.entry), last + 1 - index.next_offset, time, UNKNOWN_TIME + 1)


def last_in_cut(file: MappedLedger, cut: Cut, *, committed: bool) -> LastRecord | None:
    """Return the last record of a ledger's offsets ``[cut.low, cut.high)``, if there is one; raise `NotPlain`."""
    if cut.end - cut.start > FEW_BYTES:
        raise NotPlain
    found = None
    try:
        for frame in _frames(file, cut.start, cut.entry_id, cut.end):
            last, at = read_head(frame.entry)
            if last >= cut.low:
                record = _last_of_entry(frame.entry, at, cut, committed=committed)
                found = found if record is None else record
            if last >= cut.high - 1:
                return found
    except RecordsError:
        raise NotPlain from None
    raise NotPlain  # the frames end before the offsets that were promised


def _last_of_entry(entry: memoryview, at: int, cut: Cut, *, committed: bool) -> LastRecord | None:
    at = at if at >= 0 else kafka_payload_at(entry)
    if at < 0:
        raise NotPlain
    header = read_header(entry, at)
    if header.is_control or header.base_offset >= cut.high:
        return None
    if committed and header.is_transactional:
        raise NotPlain
    record = last_record_before(entry[at:], cut.high)
    if record is None or record.offset < cut.low:
        return None
    return LastRecord(record.offset, in_microseconds(record.timestamp), record.key, record.value)


def in_microseconds(timestamp_ms: int) -> int:
    """Return a time as the columns have it: cut to what 64 bits can hold."""
    return min(max(timestamp_ms * 1000, _LEAST_US), _MOST_US)


def _frames(file: MappedLedger, at: int, entry_id: int, end: int) -> Iterator[LedgerFrame]:
    data = memoryview(file.data.data)[:end]
    for _ in range(FEW_FRAMES):
        frame = read_frame(data, at, file.ledger_id, entry_id)
        if frame is None:
            return
        yield frame
        at += FRAME_BYTES + len(frame.entry)
        entry_id += 1
