"""Writing the two objects that tiered storage has of a ledger, whatever engine its entries come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from magnetar.ledger.errors import TierFailed
from magnetar.ledger.tiers.blocks import OffloadedIndex, encode_index
from magnetar.ledger.tiers.objects import VERSION_ATTRIBUTE, ObjectStore, data_key, index_key
from magnetar.ledger.values import LedgerSummary
from magnetar.records.compression import Buffer


class WrittenBlocks(Protocol):
    """The blocks of a data object; ``index`` and ``entry_bytes`` are whole when all of them have been taken."""

    index: OffloadedIndex
    entry_bytes: int

    def written(self) -> Iterable[Buffer]:
        """Yield the data object, a block at a time."""


def write_objects(
    store: ObjectStore,
    uuid: str,
    summary: LedgerSummary,
    blocks: WrittenBlocks,
    attributes: Mapping[str, str],
) -> int:
    """Write a ledger's two objects and ask whether they are there; return how many bytes they are.

    Raises what ``blocks`` raises, of which nothing is there then, and ``TierFailed``. Runs in a thread.
    """
    key, index_name = data_key(uuid, summary.ledger_id), index_key(uuid, summary.ledger_id)
    attributes = {VERSION_ATTRIBUTE: "1", **attributes}
    store.put(key, blocks.written(), attributes)
    index = encode_index(
        blocks.index, entries=summary.entries, length=blocks.entry_bytes, created_ms=summary.created_ms
    )
    store.put(index_name, [index], attributes)
    for name, size in ((key, blocks.index.data_bytes), (index_name, len(index))):
        there = store.size(name)
        if there != size:
            raise TierFailed(
                f"tiered storage {store.where}: {name} has {there} bytes there, and {size} were written"
            )
    return blocks.index.data_bytes + len(index)
