"""Which entries below a log's last stable offset count for readers of messages, whichever protocol they speak."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.ledger.looking import each_looked_at, looked_at
from magnetar.ledger.port import ManagedLedger, StoredEntry
from magnetar.logs.producer_log import producer_header

_BLOCK_OFFSETS, _BLOCK_BYTES = 500, 1 << 20


async def aborted_among(log: ManagedLedger, entries: Sequence[StoredEntry]) -> frozenset[int]:
    """Return the numbers of those entries that aborted transactions wrote; others have turns meanwhile."""
    transactions = log.transactions
    if transactions is None or not entries or not transactions.aborted_count:
        return frozenset()
    found = transactions.aborted_in(entries[0].last_offset, entries[-1].last_offset + 1)
    if not found:
        return frozenset()
    by_producer: dict[int, list[tuple[int, int]]] = {}
    for each in found:
        by_producer.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))
    numbers = set()
    number = 0
    async for _, header in each_looked_at(entries, producer_header):
        if header is not None and header.is_transactional:
            ranges = by_producer.get(header.producer_id, ())
            if any(first <= header.base_offset <= last for first, last in ranges):
                numbers.add(number)
        number += 1
    return frozenset(numbers)


async def last_message(log: ManagedLedger, before: int, *, compacted: bool = False) -> StoredEntry | None:
    """Return the last entry below offset ``before`` that some consumer gets: no marker, and nothing aborted.

    ``compacted`` looks at what who reads the compacted form gets. Raises ``LedgerError``.
    """
    read, least, step = log.read, log.log_start_offset, _BLOCK_OFFSETS
    if compacted and log.compacted is not None:
        read, least = log.read_compacted, 0  # copies may be older than the history
    while before > least:
        start = max(before - step, least)
        block: list[StoredEntry] = []
        at = start
        while at < before and (some := await read(at, max_bytes=_BLOCK_BYTES, up_to=before)):
            block += some
            at = some[-1].last_offset + 1
        aborted = await aborted_among(log, block)
        for number in reversed(range(len(block))):
            header = await looked_at(block[number], producer_header)
            if number not in aborted and not (header is not None and header.is_control):
                return block[number]
        before = start
        step = _BLOCK_OFFSETS if block else 2 * step  # what was compacted has large gaps
    return None
