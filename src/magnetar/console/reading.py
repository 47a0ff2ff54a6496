"""Records of a partition, from an offset on or back from one, within bounds of bytes and time.

A read that is bounded says how far it came, and the next one goes on from there. Entries are read by the loop, a
megabyte at a time, and taken apart in a thread. An entry that cannot be read is shown as such, never left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import NamedTuple

from magnetar.console.sought import SoughtRecords
from magnetar.ledger.port import ManagedLedger, StoredEntry
from magnetar.logs.decided import aborted_among
from magnetar.pulsar.rest.request import AdminRequest
from magnetar.records.batch import HEADER_BYTES, Header, batches
from magnetar.records.compression import decompress
from magnetar.records.entry import decode_entry
from magnetar.records.errors import RecordsError
from magnetar.records.pulsar_entries import to_kafka
from magnetar.records.schema_ids import schema_version

_CHUNK_BYTES = 1 << 20
_WINDOW_BYTES = 8 << 20
_SMALL_BYTES = 256 << 10
_MOST_AT_A_TIME = 4


class FoundRecord(NamedTuple):
    """One record, and what is known of its entry."""

    partition: int
    offset: int
    timestamp: int
    """In ms."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    ledger: int
    entry: int
    format: str
    codec: str
    state: str
    """Empty for what every reader gets; aborted, undecided, marker, or unreadable."""
    schema: bytes = b""
    """The version of the topic's schema that a Pulsar producer named."""
    problem: str = ""


class Effort:
    """The bounds of one page, and the bytes and records that it has read."""

    def __init__(self, most_bytes: int, most_s: float) -> None:
        self.most_bytes = most_bytes
        self.read_bytes = self.records = 0
        self._until_s = monotonic() + most_s

    @property
    def is_spent(self) -> bool:
        return self.read_bytes >= self.most_bytes or self.is_late

    @property
    def is_late(self) -> bool:
        return monotonic() >= self._until_s


class PagesRead(asyncio.Semaphore):
    """Pages of records that are read at a time: each may hold as many bytes as a page may read."""

    def __init__(self) -> None:
        super().__init__(_MOST_AT_A_TIME)


def readings_of(ask: AdminRequest) -> PagesRead:
    """Return those of a broker; others wait for their turn."""
    offers = ask.services.broker.offers
    found = offers.find(PagesRead)
    if found is None:
        found = PagesRead()
        offers.add(found)
    return found


class RecordsRead(NamedTuple):
    """Records in the order of reading, and where to go on: at an offset, or before it."""

    records: list[FoundRecord]
    at: int


async def newer(
    log: ManagedLedger, partition: int, start: int, limit: int, sought: SoughtRecords, effort: Effort
) -> RecordsRead:
    """Return records from offset ``start`` on, the oldest first."""
    at, found = max(start, log.log_start_offset), list[FoundRecord]()
    while at < log.high_watermark and len(found) < limit and not effort.is_spent:
        entries = await log.read(at, max_bytes=_CHUNK_BYTES)
        entries = [each for each in entries if each.last_offset < log.high_watermark]
        if not entries:
            return RecordsRead(found, log.high_watermark)  # what was there was compacted
        rows, done = await _unpacked(log, partition, entries, (at, 1 << 62), sought, effort, backwards=False)
        found += rows
        at = entries[done - 1].last_offset + 1
    if len(found) > limit:
        at = found[limit - 1].offset + 1
    return RecordsRead(found[:limit], at)


async def older(
    log: ManagedLedger, partition: int, before: int, limit: int, sought: SoughtRecords, effort: Effort
) -> RecordsRead:
    """Return records before offset ``before``, the newest first."""
    before, found = min(before, log.high_watermark), list[FoundRecord]()
    window = max(2 * limit, 100)
    while before > log.log_start_offset and len(found) < limit and not effort.is_spent:
        start = max(before - window, log.log_start_offset)
        entries, size = await _window(log, start, before)
        if size > _WINDOW_BYTES and len(entries) > 1 and window > 1:
            effort.read_bytes += size
            window = max(window // 8, 1)
            continue
        if not entries:
            before = start  # what was there was compacted
            window *= 4
            continue
        bases = [start, *(each.last_offset + 1 for each in entries[:-1])]
        rows, done = await _unpacked(
            log, partition, entries[::-1], (start, before), sought, effort, backwards=True
        )
        found += rows
        before = max(bases[-done], start)
        window = window * 4 if size < _SMALL_BYTES else window
    if len(found) > limit:
        before = found[limit - 1].offset
    return RecordsRead(found[:limit], before)


async def _window(log: ManagedLedger, start: int, before: int) -> tuple[list[StoredEntry], int]:
    """Return the entries that hold the offsets, as far as a bound of bytes lets."""
    entries: list[StoredEntry] = []
    size = 0
    while start < before and size <= _WINDOW_BYTES:
        some = await log.read(start, max_bytes=_CHUNK_BYTES, up_to=before)
        if not some:
            break
        some = [each for each in some if not entries or each.last_offset > entries[-1].last_offset]
        if not some:
            break
        entries += some
        size += sum(len(each.data) for each in some)
        start = some[-1].last_offset + 1
    return entries, size


async def _unpacked(
    log: ManagedLedger,
    partition: int,
    entries: list[StoredEntry],
    offsets: tuple[int, int],
    sought: SoughtRecords,
    effort: Effort,
    *,
    backwards: bool,
) -> tuple[list[FoundRecord], int]:
    """Return the records of entries in their order, ``backwards`` within each if so; and of how many entries.

    At least one entry is done, whatever is left of the effort.
    """
    in_order = entries[::-1] if backwards else entries
    numbers = await aborted_among(log, in_order)
    aborted = {in_order[number].last_offset for number in numbers}
    stable = log.last_stable_offset

    def work() -> tuple[list[FoundRecord], int]:
        rows: list[FoundRecord] = []
        done = 0
        for stored in entries:
            some = [
                row
                for row in _of_entry(partition, stored, sought, effort, stored.last_offset in aborted, stable)
                if offsets[0] <= row.offset < offsets[1]
            ]
            rows += reversed(some) if backwards else some
            effort.read_bytes += len(stored.data)
            done += 1
            if effort.is_late:
                break
        return rows, done

    return await asyncio.to_thread(work)


def _of_entry(
    partition: int, stored: StoredEntry, sought: SoughtRecords, effort: Effort, aborted: bool, stable: int
) -> Iterator[FoundRecord]:
    place = stored.ledger_id, stored.entry_id
    try:
        entry = decode_entry(stored.data)
        version = schema_version(stored.data) or b""
        kind = entry.message.entry_format
        for header, batch in batches(to_kafka(stored.data)):
            effort.records += header.records_count
            body = decompress(header.codec, batch[HEADER_BYTES:])
            state = ""
            if header.is_control:
                state = "marker"
            elif header.is_transactional:
                state = "aborted" if aborted else "undecided" if header.last_offset >= stable else ""
            for record in sought.among(body, header, version):
                yield FoundRecord(
                    partition,
                    record.offset,
                    record.timestamp,
                    record.key,
                    record.value,
                    record.headers,
                    *place,
                    kind,
                    header.codec.name,
                    state,
                    version,
                )
    except RecordsError as error:
        yield FoundRecord(
            partition,
            stored.last_offset,
            0,
            None,
            bytes(stored.data),
            (),
            *place,
            "",
            "",
            "unreadable",
            b"",
            str(error),
        )
