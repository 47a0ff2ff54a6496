"""What every metadata store must do, and no more than ZooKeeper does, too.

A store joins by subclassing and giving two fixtures: ``store``, and ``other``, a second client of the same store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from magnetar.metadata import (
    ANY,
    MAX_COMMIT_BYTES,
    MUST_NOT_EXIST,
    BadVersion,
    Check,
    Delete,
    InvalidPath,
    MetadataStore,
    NotEmpty,
    NotFound,
    Op,
    ParentIsEphemeral,
    Put,
    TooLarge,
    Watch,
)


async def make(store: MetadataStore, *paths: str) -> None:
    """Create nodes with nothing in them, one after the other."""
    for path in paths:
        await store.commit([Put(path, b"", MUST_NOT_EXIST)])


async def told(watch: Watch, *paths: str) -> None:
    """Wait until a watch has told of these paths, and see to it that it tells of no others than they and parents."""
    found: set[str] = set()
    while not found >= set(paths):
        changes = await anext(watch)
        assert not changes.lost
        found |= changes.paths
    assert all(any(f"{path}/".startswith(f"{each}/") for path in paths) for each in found), found


class MetadataStoreContract:
    # One client.

    async def test_a_value_comes_back_with_its_version(self, store: MetadataStore) -> None:
        assert await store.get("/a") is None
        assert await store.commit([Put("/a", b"one", MUST_NOT_EXIST)]) == [0]
        assert await store.commit([Put("/a", b"two", 0)]) == [1]
        assert await store.get("/a") == (b"two", 1)

    async def test_a_write_must_expect_the_right_version(self, store: MetadataStore) -> None:
        with pytest.raises(NotFound):
            await store.commit([Put("/a", b"", 0)])
        await make(store, "/a")
        for expected in (MUST_NOT_EXIST, 1):
            with pytest.raises(BadVersion) as refused:
                await store.commit([Put("/a", b"x", expected)])
            assert refused.value.actual in (0, None)
        assert await store.commit([Put("/a", b"x", 0)]) == [1]

    async def test_any_is_whatever_is_there_or_not(self, store: MetadataStore) -> None:
        assert await store.commit([Put("/a", b"1", ANY)]) == [0]
        assert await store.commit([Put("/a", b"2", ANY)]) == [1]
        await store.commit([Delete("/a", ANY)])
        with pytest.raises(NotFound):
            await store.commit([Delete("/a", ANY)])

    async def test_versions_begin_again_after_a_deletion(self, store: MetadataStore) -> None:
        await make(store, "/a")
        await store.commit([Put("/a", b"", 0)])
        with pytest.raises(BadVersion):
            await store.commit([Delete("/a", 0)])
        assert await store.commit([Delete("/a", 1)]) == [MUST_NOT_EXIST]
        assert await store.get("/a") is None
        assert await store.commit([Put("/a", b"again", MUST_NOT_EXIST)]) == [0]

    async def test_a_node_is_deleted_after_those_beneath_it(self, store: MetadataStore) -> None:
        await make(store, "/a", "/a/b", "/a/b/c", "/ab")
        for path in ("/a", "/a/b"):
            with pytest.raises(NotEmpty):
                await store.commit([Delete(path, 0)])
        with pytest.raises(NotEmpty):
            await store.commit([Delete("/a/b/c", 0), Put("/a/b/new", b"", MUST_NOT_EXIST), Delete("/a/b", 0)])
        assert await store.get("/a/b/c") == (b"", 0)
        await store.commit([Delete("/a/b/c", 0), Delete("/a/b", 0), Delete("/a", 0)])
        assert await store.children("/") == ["ab"]

    async def test_children_include_nodes_that_only_have_nodes_beneath(self, store: MetadataStore) -> None:
        await make(store, "/t", "/t/b/x", "/t/b/y", "/t/a", "/t-else/z")
        assert await store.children("/t") == ["a", "b"]
        assert await store.children("/t/b") == ["x", "y"]
        assert await store.children("/t/a") == []
        assert await store.children("/nowhere") == []
        assert await store.children("/") == ["t", "t-else"]

    async def test_many_are_read_in_the_order_asked_for(self, store: MetadataStore) -> None:
        names = [f"/n/{number}" for number in range(450)]
        await store.commit([Put(name, name.encode(), MUST_NOT_EXIST) for name in names])
        asked = ["/nowhere", *reversed(names), names[7]]
        found = await store.get_many(asked)
        assert found == [None, *((name.encode(), 0) for name in reversed(names)), (b"/n/7", 0)]

    async def test_a_tree_is_all_that_lies_beneath(self, store: MetadataStore) -> None:
        await make(store, "/t", "/t/b", "/t/a", "/t/a/deep", "/t/é", "/u", "/t-else")
        assert list(await store.get_tree("/t")) == ["/t/a", "/t/a/deep", "/t/b", "/t/é"]
        assert list(await store.get_tree("/u")) == []

    @pytest.mark.parametrize(
        "last",
        [
            Put("/b", b"", MUST_NOT_EXIST),
            Put("/new", b"", 0),
            Delete("/b", 7),
            Check("/b", 7),
            Check("/c", ANY),
        ],
    )
    async def test_a_commit_of_which_one_operation_fails_does_nothing(
        self, store: MetadataStore, last: Op
    ) -> None:
        await make(store, "/b", "/gone")
        with pytest.raises(BadVersion):
            await store.commit([Put("/b", b"x", 0), Put("/a", b"x", ANY), Delete("/gone", 0), last])
        assert await store.get_many(["/a", "/b", "/gone"]) == [None, (b"", 0), (b"", 0)]

    async def test_operations_see_those_before_them(self, store: MetadataStore) -> None:
        ops: Sequence[Op] = [
            Put("/a", b"1", MUST_NOT_EXIST),
            Put("/a", b"2", 0),
            Check("/a", 1),
            Delete("/a", 1),
            Check("/a", MUST_NOT_EXIST),
            Put("/a", b"3", MUST_NOT_EXIST),
        ]
        assert await store.commit(ops) == [0, 1, 1, MUST_NOT_EXIST, MUST_NOT_EXIST, 0]
        assert await store.get("/a") == (b"3", 0)

    async def test_nothing_is_committed_by_nothing(self, store: MetadataStore) -> None:
        assert await store.commit([]) == []

    @pytest.mark.parametrize("path", ["", "a", "/", "/a/", "//a", "/a//b", "/a\0"])
    async def test_malformed_paths_are_refused(self, store: MetadataStore, path: str) -> None:
        for op in (Put(path, b"", ANY), Delete(path, ANY), Check(path, ANY)):
            with pytest.raises(InvalidPath):
                await store.commit([op])
        with pytest.raises(InvalidPath):
            await store.get(path)
        if path != "/":
            with pytest.raises(InvalidPath):
                await store.children(path)

    async def test_a_commit_has_a_largest_size(self, store: MetadataStore) -> None:
        value = bytes(MAX_COMMIT_BYTES - 1000)
        assert await store.commit([Put("/fits", value, MUST_NOT_EXIST)]) == [0]
        assert await store.get("/fits") == (value, 0)
        for ops in (
            [Put("/large", bytes(MAX_COMMIT_BYTES), ANY)],
            [Put(f"/{n}", value[::2], ANY) for n in range(3)],
        ):
            with pytest.raises(TooLarge):
                await store.commit(ops)
        assert await store.children("/") == ["fits"]

    async def test_closing_twice_is_harmless(self, store: MetadataStore) -> None:
        await store.close()
        await store.close()

    # Two clients at the same time.

    async def test_a_client_sees_what_another_wrote(self, store: MetadataStore, other: MetadataStore) -> None:
        await store.commit([Put("/a", b"mine", MUST_NOT_EXIST)])
        assert await other.get("/a") == (b"mine", 0)
        with pytest.raises(BadVersion):
            await other.commit([Put("/a", b"theirs", MUST_NOT_EXIST)])
        await other.commit([Put("/a", b"theirs", 0)])
        with pytest.raises(BadVersion):
            await store.commit([Put("/a", b"mine again", 0)])
        assert await store.get("/a") == (b"theirs", 1)

    async def test_of_many_that_create_a_node_one_succeeds(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        clients = [store, other] * 20
        outcomes = await asyncio.gather(
            *(each.commit([Put("/a", b"%d" % n, MUST_NOT_EXIST)]) for n, each in enumerate(clients)),
            return_exceptions=True,
        )
        assert [each for each in outcomes if not isinstance(each, BadVersion)] == [[0]]
        winner = outcomes.index([0])
        assert await other.get("/a") == (b"%d" % winner, 0)

    async def test_compare_and_set_loses_no_step(self, store: MetadataStore, other: MetadataStore) -> None:
        async def count_up(client: MetadataStore) -> None:
            for _ in range(25):
                while True:
                    found = await client.get("/n")
                    assert found is not None
                    try:
                        await client.commit([Put("/n", b"%d" % (int(found.value) + 1), found.version)])
                    except BadVersion:
                        continue
                    break

        await store.commit([Put("/n", b"0", MUST_NOT_EXIST)])
        await asyncio.gather(count_up(store), count_up(other), count_up(store))
        assert await other.get("/n") == (b"75", 75)

    async def test_commits_at_the_same_time_each_hold_together(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        async def write(client: MetadataStore, name: bytes) -> None:
            for _ in range(30):
                await client.commit([Put("/one", name, ANY), Put("/two", name, ANY)])

        await asyncio.gather(write(store, b"a"), write(other, b"b"))
        one, two = await store.get_many(["/one", "/two"])
        assert one == two
        assert one is not None
        assert one.version == 59

    async def test_a_read_does_not_miss_a_commit_asked_for_before(self, store: MetadataStore) -> None:
        for number in range(20):
            commit = asyncio.ensure_future(store.commit([Put("/a", b"%d" % number, ANY)]))
            await asyncio.sleep(0)
            found = await store.get("/a")
            assert found is not None
            assert int(found.value) == number
            await commit

    # Watches.

    async def test_a_watch_tells_of_all_beneath_its_path(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        await make(store, "/t", "/t/old")
        watch = await store.watch("/t")
        await other.commit([Put("/t/a/deep", b"", ANY), Put("/tea", b"", ANY), Put("/u", b"", ANY)])
        await told(watch, "/t/a/deep")
        await store.commit([Put("/t", b"own", 0), Delete("/t/old", 0)])
        await told(watch, "/t", "/t/old")
        watch.close()

    async def test_a_watch_tells_later_of_what_changed_meanwhile(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        watch = await store.watch("/t")
        for number in range(10):
            await other.commit([Put(f"/t/{number % 3}", b"", ANY)])
        await told(watch, "/t/0", "/t/1", "/t/2")

    async def test_who_reads_after_a_watch_told_finds_the_change(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        watch = await store.watch("/n")

        async def follow() -> list[bytes]:
            seen: list[bytes] = []
            while not seen or seen[-1] != b"19":
                await anext(watch)
                found = await store.get("/n")
                assert found is not None
                seen.append(found.value)
            return seen

        following = asyncio.ensure_future(follow())
        for number in range(20):
            await other.commit([Put("/n", b"%d" % number, ANY)])
        seen = await following
        assert seen == sorted(seen, key=int)

    async def test_a_commit_that_failed_is_not_told(self, store: MetadataStore, other: MetadataStore) -> None:
        watch = await store.watch("/t")
        with pytest.raises(BadVersion):
            await other.commit([Put("/t/a", b"", ANY), Put("/t/b", b"", 4)])
        await other.commit([Put("/t/c", b"", ANY)])
        await told(watch, "/t/c")

    async def test_a_watch_ends_when_it_is_closed(self, store: MetadataStore) -> None:
        watch = await store.watch("/t")
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        watch.close()
        with pytest.raises(StopAsyncIteration):
            await waiting
        left = await store.watch("/t")
        await store.close()
        assert [each async for each in left] == []

    # Sessions.

    async def test_an_ephemeral_node_ends_with_its_client(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        watch = await store.watch("/b")
        await make(store, "/b")
        await other.commit([Put("/b/1", b"here", MUST_NOT_EXIST, ephemeral=True)])
        await store.commit([Put("/b/2", b"mine", MUST_NOT_EXIST, ephemeral=True)])
        await other.commit([Put("/b/1", b"still here", 0)])
        assert await store.children("/b") == ["1", "2"]
        assert await store.get("/b/1") == (b"still here", 1)
        assert list(await store.get_tree("/b")) == ["/b/1", "/b/2"]
        await told(watch, "/b/1", "/b/2", "/b")
        await other.close()
        await told(watch, "/b/1")
        assert await store.children("/b") == ["2"]

    async def test_an_ephemeral_node_is_checked_and_deleted_as_others(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        await store.commit([Put("/b", b"", MUST_NOT_EXIST, ephemeral=True)])
        with pytest.raises(BadVersion):
            await other.commit([Put("/b", b"", MUST_NOT_EXIST, ephemeral=True)])
        with pytest.raises(ParentIsEphemeral):
            await other.commit([Put("/b/c", b"", MUST_NOT_EXIST)])
        with pytest.raises(BadVersion):
            await other.commit([Check("/b", 0), Put("/x", b"", ANY), Delete("/b", 1)])
        await other.commit([Delete("/b", 0)])
        assert await store.children("/") == []
        assert await other.commit([Put("/b", b"lasts", MUST_NOT_EXIST)]) == [0]
        await store.close()
        assert await other.get("/b") == (b"lasts", 0)

    async def test_a_lost_session_takes_its_nodes_along_and_tells(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        await store.commit([Put("/b", b"", MUST_NOT_EXIST, ephemeral=True), Put("/c", b"", MUST_NOT_EXIST)])
        watch, lost = await store.watch("/x"), store.session
        calls: list[str] = []
        lost.on_lost.append(lambda: calls.append("lost"))
        await self.lose_session(store)
        assert calls == ["lost"]
        assert await other.children("/") == ["c"]
        assert store.session is not lost
        assert (await anext(watch)).lost  # what changed while nobody watched was not told
        await store.commit([Put("/b", b"", MUST_NOT_EXIST, ephemeral=True)])
        await store.close()
        assert calls == ["lost"]
        assert await other.children("/") == ["c"]

    async def lose_session(self, store: MetadataStore) -> None:
        """Do what befalls a client of which its store has not heard for long."""
        raise NotImplementedError
