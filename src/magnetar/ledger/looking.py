"""Looking at single entries while others wait: what is looked up by time or place is found out in turns, and in a
thread where an entry's metadata are large.

A producer says a few dozen bytes of a message, and may say some MB: each property, of 4 bytes, takes two microseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from time import perf_counter
from typing import Final, TypeVar

from magnetar.ledger.values import StoredEntry
from magnetar.records.entry import decode_entry, latest_timestamp, payload_at
from magnetar.records.errors import EntryCorrupt

LARGE_BYTES: Final = 4 << 10
"""Metadata beyond that are taken apart in a thread: they may have a thousand properties, which take 2 ms."""
TURN_S = 0.001
"""After which others have a turn, seconds."""
T = TypeVar("T")


async def looked_at(entry: StoredEntry, look: Callable[[StoredEntry], T]) -> T:
    """Return what ``look`` finds in an entry, and raise what it raises."""
    if has_large_metadata(entry):
        return await asyncio.get_running_loop().run_in_executor(None, look, entry)
    return look(entry)


async def each_looked_at(
    entries: Iterable[StoredEntry], look: Callable[[StoredEntry], T]
) -> AsyncGenerator[tuple[StoredEntry, T], None]:
    """Yield each entry with what ``look`` finds in it."""
    until_s = perf_counter() + TURN_S
    for entry in entries:
        yield entry, await looked_at(entry, look) if has_large_metadata(entry) else look(entry)
        if perf_counter() > until_s:
            await asyncio.sleep(0)
            until_s = perf_counter() + TURN_S


async def first_wanted(
    entries: Iterable[StoredEntry], wanted: Callable[[StoredEntry], bool]
) -> StoredEntry | None:
    """Return the first entry for which ``wanted`` holds, None if it holds for none."""
    async with aclosing(each_looked_at(entries, wanted)) as looked:
        async for entry, is_wanted in looked:
            if is_wanted:
                return entry
    return None


def newest(entry: StoredEntry) -> int:
    """Return the latest time that an entry's messages have, ms."""
    return latest_timestamp(entry.data)


def base_offset(entry: StoredEntry) -> int:
    """Return the offset of an entry's first message."""
    return decode_entry(entry.data).base_offset


def has_large_metadata(entry: StoredEntry) -> bool:
    """True if it takes long to take an entry's metadata apart."""
    if len(entry.data) <= LARGE_BYTES:
        return False
    try:
        return payload_at(entry.data) > LARGE_BYTES
    except EntryCorrupt:
        return False  # whoever looks says so
