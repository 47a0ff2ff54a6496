"""Numbers that are given once, ever, whoever asks: a node holds the next one, in decimal digits."""

from __future__ import annotations

from magnetar.metadata.errors import BadVersion, MetadataCorrupt
from magnetar.metadata.ops import MUST_NOT_EXIST, Put
from magnetar.metadata.port import MetadataStore


async def take_numbers(store: MetadataStore, path: str, count: int, *, at_least: int = 0) -> int:
    """Return the first of ``count`` numbers that nobody else gets, none below ``at_least``."""
    while True:
        stored = await store.get(path)
        try:
            first = max(at_least, int(stored.value) if stored is not None else 0)
        except ValueError:
            raise MetadataCorrupt(path, "not a number") from None
        expected = MUST_NOT_EXIST if stored is None else stored.version
        try:
            await store.commit([Put(path, b"%d" % (first + count), expected)])
        except BadVersion:
            continue
        return first
