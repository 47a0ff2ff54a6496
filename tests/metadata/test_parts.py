"""Values of any size: they change in one step, and whoever loses a race leaves nothing that counts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from magnetar.metadata import (
    ANY,
    MAX_COMMIT_BYTES,
    MUST_NOT_EXIST,
    BadVersion,
    Delete,
    MemoryStore,
    MemoryTree,
    MetadataCorrupt,
    MetadataStore,
    Put,
    SqliteStore,
)
from magnetar.metadata.parts import WHOLE_BYTES, delete_value, get_value, is_head, put_value

SIZES = (0, 10, WHOLE_BYTES, WHOLE_BYTES + 1, MAX_COMMIT_BYTES * 3)


@pytest.mark.parametrize("makes_parents", [False, True])
async def test_values_of_every_size_follow_each_other(makes_parents: bool) -> None:
    store = MemoryStore(MemoryTree(makes_parents=makes_parents))
    expected = MUST_NOT_EXIST
    for number, size in enumerate([*SIZES, *reversed(SIZES)]):
        value = Random(number).randbytes(size)
        expected = await put_value(store, "/large", value, expected)
        assert expected == number
        assert await get_value(store, "/large") == (value, expected)
        stored = await store.get("/large")
        assert stored is not None
        assert is_head(stored.value) == (size > WHOLE_BYTES)
        generations = await store.children("/magnetar/parts")
        assert len(generations) == (size > WHOLE_BYTES), "parts that count no more are gone"
    await put_value(store, "/large", bytes(SIZES[-1]), expected)
    await delete_value(store, "/large", expected + 1)
    assert await get_value(store, "/large") is None
    assert await store.children("/magnetar/parts") == []


async def test_it_fits_a_store_on_disk_together_with_others(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "metadata.sqlite")
    value = Random(1).randbytes(WHOLE_BYTES * 2)
    assert await put_value(store, "/large", value, MUST_NOT_EXIST, [Put("/beside", b"1", ANY)]) == 0
    assert await get_value(store, "/large") == (value, 0)
    assert await store.get("/beside") == (b"1", 0)
    await store.close()


async def test_a_lost_race_leaves_the_winners_value_and_no_parts() -> None:
    store = MemoryStore()
    mine, theirs = bytes(SIZES[-1]), b"x" * SIZES[-1]
    outcomes = await asyncio.gather(
        put_value(store, "/large", mine, MUST_NOT_EXIST),
        put_value(store, "/large", theirs, MUST_NOT_EXIST),
        return_exceptions=True,
    )
    assert sorted(map(type, outcomes), key=str) == [int, BadVersion]
    stored = await get_value(store, "/large")
    assert stored is not None
    assert stored.value == (mine if outcomes[0] == 0 else theirs)
    assert len(await store.children("/magnetar/parts")) == 1


async def test_whoever_reads_while_it_changes_gets_one_of_both() -> None:
    store = MemoryStore()
    values = [bytes([number]) * SIZES[-1] for number in range(6)]
    await put_value(store, "/large", values[0], MUST_NOT_EXIST)

    async def change() -> None:
        for version, value in enumerate(values[1:]):
            await put_value(store, "/large", value, version)

    async def read() -> int:
        stored = await get_value(store, "/large")
        assert stored is not None
        assert stored.value == values[stored.version]
        return stored.version

    changing = asyncio.ensure_future(change())
    seen = {await read()}
    while not changing.done():
        seen.add(await read())
    assert len(seen) > 2


async def test_parts_that_are_missing_are_damage() -> None:
    store: MetadataStore = MemoryStore()
    await put_value(store, "/large", bytes(SIZES[-1]), MUST_NOT_EXIST)
    (generation,) = await store.children("/magnetar/parts")
    await store.commit([Delete(f"/magnetar/parts/{generation}/1", ANY)])
    with pytest.raises(MetadataCorrupt, match="/large"):
        await get_value(store, "/large")
    await store.commit([Put("/large", b"\0MGPARTS1{}", ANY)])
    with pytest.raises(MetadataCorrupt, match="/large"):
        await get_value(store, "/large")


async def test_a_value_that_looks_like_a_head_is_kept_in_parts() -> None:
    store = MemoryStore()
    await put_value(store, "/a", b"\0MGPARTS1 or so", MUST_NOT_EXIST)
    assert await get_value(store, "/a") == (b"\0MGPARTS1 or so", 0)
