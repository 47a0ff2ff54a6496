"""The cache: what this broker writes is seen at once, what others write soon, and nothing old comes after newer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from random import Random

import pytest

from magnetar.metadata import (
    ANY,
    MUST_NOT_EXIST,
    BadVersion,
    Delete,
    MemoryStore,
    MemoryTree,
    MetadataCorrupt,
    MetadataUnavailable,
    MetadataUncertain,
    Op,
    Put,
    Stored,
)
from magnetar.metadata.cache import MetadataCache


class Notes:
    """A reader that keeps what it is told, as it is."""

    root = "/notes"

    def __init__(self) -> None:
        self.now: dict[str, Stored] = {}
        self.history: list[tuple[str, bytes | None]] = []

    def apply(self, path: str, stored: Stored | None) -> None:
        if stored is not None and stored.value == b"damaged":
            raise MetadataCorrupt(path, "it says so")
        if stored is None:
            self.now.pop(path, None)
        else:
            self.now[path] = stored
        self.history.append((path, None if stored is None else stored.value))

    def known(self) -> Iterable[str]:
        return tuple(self.now)


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree()


@pytest.fixture
async def cache(tree: MemoryTree) -> AsyncIterator[MetadataCache]:
    cache = MetadataCache(MemoryStore(tree))
    yield cache
    await cache.close()


async def settled(cache: MetadataCache) -> None:
    """Give what was told time to be read."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_what_is_there_is_loaded_and_own_writes_show_at_once(cache: MetadataCache) -> None:
    await cache.store.commit(
        [Put("/notes/old", b"1", ANY), Put("/notes", b"root", ANY), Put("/notebook", b"", ANY)]
    )
    notes = Notes()
    await cache.follow(notes)
    assert notes.now == {"/notes/old": (b"1", 0)}
    assert await cache.commit([Put("/notes/new", b"2", MUST_NOT_EXIST), Delete("/notes/old", 0)]) == [0, -1]
    assert notes.now == {"/notes/new": (b"2", 0)}


async def test_what_another_client_writes_is_followed(cache: MetadataCache, tree: MemoryTree) -> None:
    notes, other = Notes(), MemoryStore(tree)
    await cache.follow(notes)
    await other.commit([Put("/notes/a", b"1", ANY), Put("/else", b"", ANY)])
    await settled(cache)
    await other.commit([Put("/notes/a", b"2", 0), Put("/notes/b", b"3", ANY)])
    await settled(cache)
    assert notes.now == {"/notes/a": (b"2", 1), "/notes/b": (b"3", 0)}
    await other.commit([Delete("/notes/a", 1)])
    await settled(cache)
    assert notes.now == {"/notes/b": (b"3", 0)}


async def test_a_lost_race_leaves_the_winners_value_known(cache: MetadataCache, tree: MemoryTree) -> None:
    notes, other = Notes(), MemoryStore(tree)
    await cache.follow(notes)
    await other.commit([Put("/notes/a", b"theirs", ANY)])
    with pytest.raises(BadVersion):
        await cache.commit([Put("/notes/a", b"mine", MUST_NOT_EXIST)])
    assert notes.now == {"/notes/a": (b"theirs", 0)}


async def test_changes_of_two_brokers_are_all_kept(tree: MemoryTree) -> None:
    async def count(notes: Notes, cache: MetadataCache) -> None:
        def plan() -> list[Put]:
            known = notes.now.get("/notes/n", Stored(b"0", MUST_NOT_EXIST))
            return [Put("/notes/n", b"%d" % (int(known.value) + 1), known.version)]

        for _ in range(20):
            await cache.change(plan)

    both = [(Notes(), MetadataCache(MemoryStore(tree))) for _ in range(2)]
    for notes, cache in both:
        await cache.follow(notes)
    await asyncio.gather(*(count(*each) for each in both))
    assert tree.get("/notes/n") == (b"40", 39)
    for _, cache in both:
        await cache.close()


async def test_after_a_lost_session_everything_is_read_anew(cache: MetadataCache, tree: MemoryTree) -> None:
    notes, store = Notes(), cache.store
    assert isinstance(store, MemoryStore)
    await cache.commit([Put("/notes/goes", b"", ANY), Put("/notes/stays", b"", ANY)])
    await cache.follow(notes)
    told, tree.on_changed[:] = tree.on_changed[:], []  # the store is not heard of for a while
    await MemoryStore(tree).commit([Put("/notes/came", b"", ANY), Delete("/notes/goes", ANY)])
    await settled(cache)
    assert set(notes.now) == {"/notes/goes", "/notes/stays"}
    tree.on_changed[:] = told
    await store.lose_session()
    await settled(cache)
    assert set(notes.now) == {"/notes/came", "/notes/stays"}


async def test_what_cannot_be_read_is_logged_and_the_rest_followed(
    cache: MetadataCache, tree: MemoryTree, caplog: pytest.LogCaptureFixture
) -> None:
    notes, other = Notes(), MemoryStore(tree)
    await cache.follow(notes)
    await other.commit([Put("/notes/a", b"damaged", ANY), Put("/notes/b", b"fine", ANY)])
    await settled(cache)
    assert set(notes.now) == {"/notes/b"}
    assert "metadata is damaged at /notes/a" in caplog.text


async def test_a_store_that_cannot_be_read_for_a_while_is_asked_again(
    tree: MemoryTree, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("magnetar.metadata.cache._AGAIN_SECONDS", 0)
    caplog.set_level(logging.CRITICAL)
    notes, cache, failures = Notes(), MetadataCache(Failing(tree)), [1, 2, 3]
    await cache.follow(notes)
    cache.store.failures = failures  # type: ignore[attr-defined]
    await MemoryStore(tree).commit([Put("/notes/a", b"1", ANY)])
    await settled(cache)
    assert notes.now == {"/notes/a": (b"1", 0)}
    assert not failures
    await cache.close()


class Failing(MemoryStore):
    failures: list[int]

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__(tree)
        self.failures = []

    async def get_many(self, paths: Iterable[str]) -> list[Stored | None]:
        if self.failures:
            self.failures.pop()
            raise MetadataUnavailable("not now")
        return await super().get_many(paths)


class Late(MemoryStore):
    """Answers come late: what was read may be old by then."""

    def __init__(self, tree: MemoryTree, dice: Random) -> None:
        super().__init__(tree)
        self._dice = dice

    async def get_many(self, paths: Iterable[str]) -> list[Stored | None]:
        found = await super().get_many(paths)
        for _ in range(self._dice.randrange(12)):
            await asyncio.sleep(0)
        return found


@pytest.mark.parametrize("seed", range(40))
async def test_what_is_read_late_does_not_hide_what_was_written_since(seed: int) -> None:
    dice, tree = Random(seed), MemoryTree()
    notes, cache, other = Notes(), MetadataCache(Late(tree, dice)), MemoryStore(tree)
    await cache.follow(notes)
    for number in range(30):
        path = f"/notes/{dice.randrange(3)}"
        if dice.random() < 0.5:
            await other.commit([Put(path, b"other %d" % number, ANY)])
        else:
            await cache.commit([Put(path, b"own %d" % number, ANY)])
            assert notes.now[path].value == b"own %d" % number
        for _ in range(dice.randrange(6)):
            await asyncio.sleep(0)
        numbers = [int(value.split()[1]) for each, value in notes.history if each == path and value]
        assert numbers == sorted(numbers), f"something old came after newer: {numbers}"
    for _ in range(100):
        await asyncio.sleep(0)
    assert notes.now == dict(tree.scan("/notes/"))
    await cache.close()


class _LosesAnswers(MemoryStore):
    """What is committed is kept, or not, and nobody is told."""

    comes_back = True
    keeps = True

    async def commit(self, ops: Sequence[Op]) -> list[int]:
        if self.keeps:
            await super().commit(ops)
        raise MetadataUncertain("the connection broke while a commit was written")


async def test_a_commit_whose_answer_was_lost_counts_if_it_is_there() -> None:
    tree = MemoryTree()
    await MemoryStore(tree).commit([Put("/notes/gone", b"", MUST_NOT_EXIST), Put("/notes/old", b"1", ANY)])
    store, notes = _LosesAnswers(tree), Notes()
    cache = MetadataCache(store)
    await cache.follow(notes)
    assert await cache.commit([
        Put("/notes/new", b"1", MUST_NOT_EXIST), Put("/notes/old", b"2", 0), Delete("/notes/gone", 0),
    ]) == [0, 1, MUST_NOT_EXIST]  # fmt: skip
    assert notes.now == {"/notes/new": Stored(b"1", 0), "/notes/old": Stored(b"2", 1)}
    with pytest.raises(MetadataUncertain):  # whose session it is of is not known
        await cache.commit([Put("/notes/ours", b"", MUST_NOT_EXIST, ephemeral=True)])
    store.keeps = False
    with pytest.raises(MetadataUncertain):  # it may still come
        await cache.commit([Put("/notes/old", b"3", 1)])
    with pytest.raises(MetadataUncertain):  # the same was there before
        await cache.commit([Put("/notes/old", b"2", 1)])
    await MemoryStore(tree).commit([Put("/notes/old", b"theirs", 1)])
    with pytest.raises(MetadataUncertain):
        await cache.commit([Put("/notes/old", b"ours", 1)])
    store.keeps, store.comes_back = True, False
    with pytest.raises(MetadataUncertain):
        await cache.commit([Put("/notes/old", b"4", 2)])
    await cache.close()
