"""Splits, placements and unloads among brokers of one metadata store: each bundle has one owner at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from magnetar.cluster import cluster_ownership
from magnetar.cluster.cluster_ownership import BrokerIdTaken, ClusterOwnership
from magnetar.cluster.ownership import HASHES, Bundle, NotOwned
from magnetar.metadata import MUST_NOT_EXIST, Delete, MetadataUncertain, Op, Put
from magnetar.metadata.memory import MemoryStore, MemoryTree

NAMESPACE = "public/default"
WHOLE = Bundle(NAMESPACE)
LEFT, RIGHT = Bundle(NAMESPACE, 0, HASHES // 2), Bundle(NAMESPACE, HASHES // 2, HASHES)


@pytest.fixture
async def brokers() -> AsyncIterator[list[ClusterOwnership]]:
    """Two brokers that know of one namespace with one bundle."""
    tree = MemoryTree()
    made = [ClusterOwnership(MemoryStore(tree), "c", number, None, 1, 4.0) for number in (1, 2)]
    for each in made:
        await each.start()
        each.listens("http", _endpoint(each.node_id))
    for each in made:
        await each.begin(lambda: [NAMESPACE])
    await until(lambda: all(len(each.brokers()) == 2 for each in made))
    await until(lambda: all(each.owner_of(WHOLE) for each in made))
    yield made
    for each in made:
        await each.close()


def _endpoint(number: int) -> object:
    from magnetar.serving.listeners import Endpoint

    return Endpoint("127.0.0.1", 8000 + number)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - what changes tells nobody
            await asyncio.sleep(0.01)


def owner_and_other(brokers: list[ClusterOwnership]) -> tuple[ClusterOwnership, ClusterOwnership]:
    first, second = brokers
    return (first, second) if WHOLE in first.mine() else (second, first)


async def test_both_parts_are_the_owners_under_a_higher_epoch(brokers: list[ClusterOwnership]) -> None:
    owner, other = owner_and_other(brokers)
    before = owner.owner_of(WHOLE)
    assert before is not None
    told: list[tuple[str, Bundle]] = []

    async def lost(bundle: Bundle) -> None:
        assert owner.owner_of(bundle) is None
        told.append(("lost", bundle))

    async def acquired(bundle: Bundle) -> None:
        assert bundle in owner.bundles(NAMESPACE)
        told.append(("acquired", bundle))

    owner.on_lost.append(lost)
    owner.on_acquired.append(acquired)
    await owner.split(WHOLE, HASHES // 2)
    assert told[:3] == [("lost", WHOLE), ("acquired", LEFT), ("acquired", RIGHT)]
    await until(lambda: tuple(other.bundles(NAMESPACE)) == (LEFT, RIGHT))
    await until(lambda: all(other.owner_of(each) is not None for each in (LEFT, RIGHT)))
    assert all(other.owner_of(each).epoch > before.epoch for each in (LEFT, RIGHT))  # type: ignore[union-attr]
    assert other.owner_of(WHOLE) is None


async def test_who_has_not_heard_of_a_split_does_not_take_the_whole(brokers: list[ClusterOwnership]) -> None:
    owner, other = owner_and_other(brokers)
    known, policies = other._bounds[NAMESPACE], other._policies[NAMESPACE]
    await owner.split(WHOLE, HASHES // 2)
    await until(lambda: tuple(other.bundles(NAMESPACE)) == (LEFT, RIGHT))
    other._bounds[NAMESPACE], other._policies[NAMESPACE] = known, policies  # as if the news were late
    await until(lambda: other.owner_of(WHOLE) is None)
    await other._take(WHOLE)
    assert WHOLE not in other.mine()
    assert tuple(other.bundles(NAMESPACE)) == (LEFT, RIGHT)  # it has looked again


async def test_only_the_owner_splits(brokers: list[ClusterOwnership]) -> None:
    owner, other = owner_and_other(brokers)
    with pytest.raises(NotOwned) as refused:
        await other.split(WHOLE, HASHES // 2)
    assert refused.value.owner == owner.owner_of(WHOLE)
    assert tuple(owner.bundles(NAMESPACE)) == (WHOLE,)


async def test_a_split_that_is_not_kept_leaves_the_bundle_to_whom_it_is_meant_for(
    brokers: list[ClusterOwnership],
) -> None:
    owner, other = owner_and_other(brokers)
    stale = owner._policies[NAMESPACE]
    owner._policies[NAMESPACE] = stale._replace(version=stale.version + 7)
    with pytest.raises(Exception, match="version"):
        await owner.split(WHOLE, HASHES // 2)
    await until(lambda: all(each.owner_of(WHOLE) is not None for each in (owner, other)))
    assert tuple(owner.bundles(NAMESPACE)) == (WHOLE,)


async def test_a_bundle_goes_where_it_is_placed_and_falls_back_when_that_broker_ends(
    brokers: list[ClusterOwnership],
) -> None:
    owner, other = owner_and_other(brokers)
    await owner.place(WHOLE, other.node_id)
    await until(lambda: WHOLE in other.mine() and owner.owner_of(WHOLE) == other.owner_of(WHOLE))
    await owner.place(WHOLE, owner.node_id)
    await until(lambda: WHOLE in owner.mine())
    await owner.place(WHOLE, other.node_id)
    await until(lambda: WHOLE in other.mine())
    await other.close()
    await until(lambda: WHOLE in owner.mine())


async def test_any_broker_has_the_owner_let_go(brokers: list[ClusterOwnership]) -> None:
    owner, other = owner_and_other(brokers)
    before = owner.owner_of(WHOLE)
    assert before is not None
    await other.unload(WHOLE)
    await until(lambda: (now := other.owner_of(WHOLE)) is not None and now.epoch > before.epoch)
    assert await other._store.children("/magnetar/bundle-unloads/public/default") == []


async def test_a_broker_that_loses_two_sessions_at_once_comes_back_once(
    brokers: list[ClusterOwnership],
) -> None:
    owner, _ = owner_and_other(brokers)
    before = len(owner._tasks)
    store = owner._store
    assert isinstance(store, MemoryStore)
    await store.lose_session()
    await store.lose_session()
    await until(lambda: len(owner._tasks) == before)  # nothing tries to come back any more
    claimed = await store.get(f"/magnetar/broker-ids/{owner.node_id}")
    assert claimed is not None
    await until(lambda: all(each.owner_of(WHOLE) is not None for each in brokers))


async def test_who_lets_go_slowly_does_not_take_away_what_another_has_taken_since(
    brokers: list[ClusterOwnership],
) -> None:
    owner, other = owner_and_other(brokers)
    lets_go, may_end = asyncio.Event(), asyncio.Event()

    async def lost(_: Bundle) -> None:
        lets_go.set()
        await may_end.wait()

    owner.on_lost.append(lost)
    store = owner._store
    assert isinstance(store, MemoryStore)
    await owner.place(WHOLE, other.node_id)
    released = asyncio.ensure_future(owner.release(WHOLE))
    await lets_go.wait()
    await store.lose_session()  # what it owned ends with it, and the other takes it
    await until(lambda: WHOLE in other.mine())
    may_end.set()
    await released
    told = await store.get(f"/namespace/{WHOLE}")
    assert told is not None
    assert other.owner_of(WHOLE) is not None
    await until(lambda: owner.owner_of(WHOLE) == other.owner_of(WHOLE))


async def test_who_lost_a_session_has_let_go_of_its_bundles_before_it_takes_them_again(
    brokers: list[ClusterOwnership],
) -> None:
    owner, other = owner_and_other(brokers)
    lets_go, may_end = asyncio.Event(), asyncio.Event()

    async def lost(_: Bundle) -> None:
        lets_go.set()
        await may_end.wait()

    await other.close()
    owner.on_lost.append(lost)
    store = owner._store
    assert isinstance(store, MemoryStore)
    await store.lose_session()
    await lets_go.wait()
    for _ in range(3):
        await owner._take(WHOLE)
    assert owner.mine() == []
    may_end.set()
    await until(lambda: WHOLE in owner.mine())


@pytest.mark.parametrize("done", [False, True])
async def test_what_was_taken_or_let_go_of_without_an_answer_is_owned_again(
    brokers: list[ClusterOwnership], monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    owner, other = owner_and_other(brokers)
    path = f"/namespace/{WHOLE}"
    unanswered = {Put: 0, Delete: 0}
    for each in brokers:
        store = each._store
        assert isinstance(store, MemoryStore)

        async def does_not_answer(ops: Sequence[Op], commit: Any = store.commit) -> Sequence[int]:
            kinds = [type(op) for op in ops if op.path == path]
            if not kinds or unanswered[kinds[0]] == 2:
                return await commit(ops)
            unanswered[kinds[0]] += 1
            if done:
                await commit(ops)
            raise MetadataUncertain("the connection broke")

        monkeypatch.setattr(store, "commit", does_not_answer)
    await owner.place(WHOLE, other.node_id)
    await owner.release(WHOLE)
    await until(lambda: WHOLE in other.mine() and owner.owner_of(WHOLE) == other.owner_of(WHOLE))
    assert unanswered == {Put: 2, Delete: 2}


async def test_what_was_taken_without_an_answer_is_owned_again_while_many_ask_for_it(
    brokers: list[ClusterOwnership], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is never free then: each who waits for it has to look, and not only who comes by from time to time."""
    owner, _ = owner_and_other(brokers)
    path, store, answers = f"/namespace/{WHOLE}", owner._store, [True]
    assert isinstance(store, MemoryStore)
    commit = store.commit

    async def does_not_answer(ops: Sequence[Op]) -> Sequence[int]:
        versions = await commit(ops)
        if not answers[0] and any(type(op) is Put and op.path == path for op in ops):
            answers[0] = True
            raise MetadataUncertain("the connection broke")
        return versions

    monkeypatch.setattr(store, "commit", does_not_answer)
    asking: list[asyncio.Task[None]] = []

    async def many_ask(_bundle: Bundle) -> None:
        if not asking:
            answers[0] = False
            asking.extend(asyncio.create_task(asks()) for _ in range(300))
            await asyncio.sleep(0.1)

    async def asks() -> None:
        while True:
            try:
                assert (await owner.acquire(WHOLE)).node_id == owner.node_id
                return
            except NotOwned:
                await asyncio.sleep(0)

    await owner.place(WHOLE, owner.node_id)
    owner.on_lost.append(many_ask)
    await owner.release(WHOLE)
    async with asyncio.timeout(60):
        await asyncio.gather(*asking)
    assert answers[0]
    assert WHOLE in owner.mine()


async def test_who_waited_while_the_session_was_lost_does_not_take_what_is_still_open_here(
    brokers: list[ClusterOwnership],
) -> None:
    owner, other = owner_and_other(brokers)
    other._is_closing = True  # lest it be quicker
    store, may_close, closes = owner._store, asyncio.Event(), asyncio.Event()
    assert isinstance(store, MemoryStore)

    async def lost(_bundle: Bundle) -> None:
        closes.set()
        await may_close.wait()
        assert WHOLE not in owner.mine(), "it was taken while its logs were open"

    await owner.place(WHOLE, owner.node_id)
    owner.on_lost.append(lost)
    lock = owner._locks.setdefault(WHOLE, asyncio.Lock())
    async with lock:
        waiting = [asyncio.create_task(owner._take(WHOLE, whoever=True)) for _ in range(3)]
        await asyncio.sleep(0)
        await store.lose_session()
        await closes.wait()
    await asyncio.gather(*waiting)
    assert WHOLE not in owner.mine()
    may_close.set()
    await until(lambda: WHOLE in owner.mine())


async def release_it(owner: ClusterOwnership) -> None:
    await owner.release(WHOLE)


async def split_it(owner: ClusterOwnership) -> None:
    await owner.split(WHOLE, HASHES // 2)


async def lose_the_session(owner: ClusterOwnership) -> None:
    assert isinstance(owner._store, MemoryStore)
    await owner._store.lose_session()


@pytest.mark.parametrize("let_go", [release_it, split_it, lose_the_session])
async def test_nobody_waits_for_a_bundle_that_goes(
    brokers: list[ClusterOwnership], let_go: Callable[[ClusterOwnership], Awaitable[None]]
) -> None:
    """A coordinator that is to let go of its partition first writes what is decided, and may have to open its log."""
    owner, other = owner_and_other(brokers)
    other._is_closing = True
    refused: list[NotOwned] = []

    async def writes(bundle: Bundle) -> None:
        if bundle == WHOLE and not refused:
            with pytest.raises(NotOwned) as raised:
                await owner.acquire(bundle)
            refused.append(raised.value)

    await owner.place(WHOLE, owner.node_id)
    owner.on_lost.append(writes)
    async with asyncio.timeout(60):
        await let_go(owner)
        await until(lambda: bool(refused) and not owner._going)
        for each in owner.bundles(NAMESPACE):
            assert (await owner.acquire(each)).node_id == owner.node_id


async def test_nobody_waits_for_a_bundle_behind_whoever_is_about_to_let_go_of_it(
    brokers: list[ClusterOwnership],
) -> None:
    owner, other = owner_and_other(brokers)
    other._is_closing = True
    await owner.place(WHOLE, owner.node_id)
    async with asyncio.timeout(60), owner._locks.setdefault(WHOLE, asyncio.Lock()):
        goes = asyncio.create_task(owner.release(WHOLE))
        await asyncio.sleep(0)
        del owner._mine[WHOLE]  # as if the session were lost just now
        with pytest.raises(NotOwned):
            await owner.acquire(WHOLE)
    await goes


async def test_a_lookup_waits_for_the_next_owner(brokers: list[ClusterOwnership]) -> None:
    owner, other = owner_and_other(brokers)
    goes, may_go = asyncio.Event(), asyncio.Event()

    async def lets_go(_bundle: Bundle) -> None:
        goes.set()
        await may_go.wait()

    owner.on_lost.append(lets_go)
    await owner.place(WHOLE, other.node_id)
    await goes.wait()
    looked_up = asyncio.create_task(owner.acquire_later(WHOLE))
    await asyncio.sleep(0.1)
    assert not looked_up.done()
    may_go.set()
    with pytest.raises(NotOwned) as told:
        await looked_up
    assert told.value.owner is not None
    assert told.value.owner.node_id == other.node_id


async def test_a_claim_whose_answer_did_not_come_is_this_brokers_own(
    brokers: list[ClusterOwnership], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, _ = owner_and_other(brokers)
    before = len(owner._tasks)
    store = owner._store
    assert isinstance(store, MemoryStore)
    commit = store.commit
    asked: list[Op] = []

    async def does_not_answer(ops: Sequence[Op]) -> Sequence[int]:
        if "broker-ids" in ops[0].path:
            asked.append(ops[0])
        versions = await commit(ops)
        if len(asked) == 1 and ops[0] is asked[0]:
            raise MetadataUncertain("the connection broke")
        return versions

    monkeypatch.setattr(store, "commit", does_not_answer)
    await store.lose_session()
    await until(lambda: bool(asked) and len(owner._tasks) == before)
    assert [type(each) for each in asked] == [
        Put,
        Put,
    ]  # it is known again, and neither given up nor made anew


async def test_bundles_of_a_lost_session_are_let_go_of_side_by_side_a_few_at_a_time() -> None:
    """Each waits for bookies and for ZooKeeper, which may not be there."""
    broker = ClusterOwnership(MemoryStore(MemoryTree()), "c", 1, None, 40, 4.0)
    await broker.start()
    broker.listens("http", _endpoint(1))
    await broker.begin(lambda: [NAMESPACE])
    await until(lambda: len(broker.mine()) == 40)
    going, let_go = 0, 0
    may_go = asyncio.Event()

    async def lost(bundle: Bundle) -> None:
        nonlocal going, let_go
        going += 1
        await may_go.wait()
        going -= 1
        let_go += 1

    broker.on_lost.append(lost)
    await broker._store.lose_session()  # type: ignore[attr-defined]
    await until(lambda: going == 16)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (going, let_go) == (16, 0)
    may_go.set()
    await until(lambda: let_go == 40)
    await until(lambda: len(broker.mine()) == 40)
    await broker.close()


async def test_a_claim_that_was_sent_under_an_earlier_session_is_made_anew(
    brokers: list[ClusterOwnership], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, _ = owner_and_other(brokers)
    before = len(owner._tasks)
    store = owner._store
    assert isinstance(store, MemoryStore)
    path = f"/magnetar/broker-ids/{owner.node_id}"
    commit, earlier = store.commit, await store.get(path)
    assert earlier is not None
    late: list[str] = []

    async def comes_late(ops: Sequence[Op]) -> Sequence[int]:
        if ops[0].path != path or late:
            return await commit(ops)
        late.append(path)
        await commit([Put(path, earlier.value, MUST_NOT_EXIST, ephemeral=True)])
        raise MetadataUncertain("the connection broke")

    monkeypatch.setattr(store, "commit", comes_late)
    await store.lose_session()
    await until(lambda: bool(late) and len(owner._tasks) == before)
    now = await store.get(path)
    assert now is not None
    assert now.value == owner._claim() != earlier.value


async def test_placements_of_bundles_that_have_gone_are_deleted(
    brokers: list[ClusterOwnership], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_ownership, "_SETTLED_S", 0.0)
    owner, other = owner_and_other(brokers)
    store, names = owner._store, [NAMESPACE, "public/soon"]
    for each in brokers:
        each._topics = each._topics._replace(namespaces=lambda: names)
    soon = other.bundles("public/soon")[0]
    await other.place(soon, other.node_id)
    await owner.place(WHOLE, owner.node_id)
    await until(lambda: all(len(each._placements) == 2 for each in brokers))
    await owner.split(WHOLE, HASHES // 2)
    await other.place(LEFT, owner.node_id)
    await until(lambda: all(set(each._placements) == {str(LEFT), str(soon)} for each in brokers))
    names.remove("public/soon")
    await until(lambda: all(set(each._placements) == {str(LEFT)} for each in brokers))
    assert await store.children(f"/magnetar/bundle-placements/{NAMESPACE}") == [str(LEFT).rpartition("/")[2]]
    assert await store.children("/magnetar/bundle-placements/public/soon") == []


async def test_a_placement_that_comes_before_its_bundle_stays(brokers: list[ClusterOwnership]) -> None:
    """Changes at different nodes may be heard of in another order."""
    owner, other = owner_and_other(brokers)
    await owner.place(LEFT, other.node_id)
    await until(lambda: all(str(LEFT) in each._placements_gone for each in brokers))
    await owner.split(WHOLE, HASHES // 2)
    await until(lambda: all(not each._placements_gone for each in brokers))
    assert all(str(LEFT) in each._placements for each in brokers)


async def test_another_brokers_number_is_not_taken(brokers: list[ClusterOwnership]) -> None:
    store = brokers[0]._store
    assert isinstance(store, MemoryStore)
    double = ClusterOwnership(MemoryStore(store.blocking), "c", 1, None, 1, 0.2)
    with pytest.raises(BrokerIdTaken, match="has the number 1"):
        await double.start()
    await double.close()
