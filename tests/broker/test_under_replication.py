"""Ledgers with too few copies are counted by one broker, from the marks of BookKeeper's auditor."""

from __future__ import annotations

from magnetar.ledger.bookkeeper.under_replication import MARKS, count_marks, look_at_copies
from magnetar.ledger.bookkeeper.well_being import BookiesHealth
from magnetar.metadata import MUST_NOT_EXIST, MetadataStore, MetadataUnavailable, Put
from magnetar.metadata.memory import MemoryStore, MemoryTree


async def marked(tree: MemoryTree, ledgers: int) -> None:
    store = MemoryStore(tree)
    for number in range(ledgers):
        name = f"{number:016d}"
        path = "/".join([MARKS, *(name[at : at + 4] for at in range(0, 16, 4)), f"urL{number:010d}"])
        await store.commit([Put(path, b"replica: bookie-1:3181", MUST_NOT_EXIST)])
    await store.close()


async def test_marks_are_counted_up_to_a_bound() -> None:
    tree = MemoryTree()
    assert await count_marks(MemoryStore(tree)) == 0, "autorecovery has never run"
    await marked(tree, 30)
    assert await count_marks(MemoryStore(tree)) == 30
    assert await count_marks(MemoryStore(tree), most=12) == 12


async def test_one_broker_counts_and_does_not_know_what_it_cannot_see() -> None:
    tree, health = MemoryTree(), BookiesHealth()
    await marked(tree, 2)
    is_there = counts = True
    opened: list[MetadataStore] = []

    async def open_store() -> MetadataStore:
        if not is_there:
            raise MetadataUnavailable("ZooKeeper cannot be reached")
        opened.append(MemoryStore(tree))
        return opened[-1]

    async def look() -> None:
        await look_at_copies(open_store, health, counts=counts)

    assert health.under_replicated is None
    await look()
    assert health.under_replicated == 2
    is_there = False
    await look()
    assert health.under_replicated is None
    is_there, counts = True, False
    await look()
    assert (health.under_replicated, len(opened)) == (None, 1)
