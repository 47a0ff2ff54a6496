"""The number of ledgers with fewer copies than they should have, by the marks of BookKeeper's auditor.

    /ledgers/underreplication/ledgers/0000/0000/0000/0007/urL0000000007

A mark goes when the copies are made again. One broker counts for all, once a minute, and no more than `MOST`: each mark
has nodes of its own above it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from magnetar.ledger.bookkeeper.well_being import BookiesHealth
from magnetar.metadata import MetadataError, MetadataStore

MARKS = "/ledgers/underreplication/ledgers"
MOST = 1000


async def count_marks(store: MetadataStore, most: int = MOST) -> int:
    """Return how many marks there are, ``most`` at most; raise ``MetadataError``."""
    found, level = 0, [MARKS]
    while level and found < most:
        path = level.pop()
        for name in await store.children(path):
            if name.startswith("urL"):
                found += 1
            else:
                level.append(f"{path}/{name}")
    return min(found, most)


async def look_at_copies(
    opened: Callable[[], Awaitable[MetadataStore]], health: BookiesHealth, *, counts: bool
) -> None:
    """Count the marks in the store that ``opened`` connects to, if this broker ``counts``; else note None."""
    health.under_replicated = None
    if not counts:
        return
    try:
        store = await opened()
    except MetadataError:
        return
    try:
        health.under_replicated = await count_marks(store)
    except MetadataError:
        return
    finally:
        await store.close()
