"""What is read waits for commits that are about the same, and for no others."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from magnetar.metadata import MetadataUncertain
from magnetar.metadata.ops import MUST_NOT_EXIST, Put

pytest.importorskip("kazoo", reason="kazoo is not installed: make install")

from kazoo.protocol.serialization import GetChildren, Transaction
from kazoo.protocol.states import ZnodeStat

from magnetar.metadata.zookeeper import ZooKeeperStore
from magnetar.metadata.zookeeper_requests import GetMany

STAT = ZnodeStat(*([0] * len(ZnodeStat._fields)))


class Held:
    """A session that answers what is read at once, and commits when it is told to."""

    id = 1
    ended = ""
    connected = True
    answered_at = 0.0
    trouble = ""

    def __init__(self) -> None:
        self.commits: list[asyncio.Future[Any]] = []

    def ask(self, request: Any) -> asyncio.Future[Any]:
        asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if isinstance(request, Transaction):
            self.commits.append(asked)
        elif isinstance(request, GetChildren):
            asked.set_result([])
        elif isinstance(request, GetMany):
            asked.set_result([(b"x", STAT)] * len(request.paths))
        else:
            asked.set_result((b"x", STAT))
        return asked

    def withdraw(self, future: asyncio.Future[Any]) -> bool:
        return False


@pytest.fixture
async def store() -> ZooKeeperStore:
    store = ZooKeeperStore("127.0.0.1:1", "", 30.0)
    store.session = Held()  # type: ignore[assignment]
    return store


async def test_reads_of_other_nodes_are_answered_while_a_commit_is_written(store: ZooKeeperStore) -> None:
    session: Any = store.session
    writing = asyncio.ensure_future(store.commit([Put("/topics/a/list", b"", MUST_NOT_EXIST)]))
    await asyncio.sleep(0)
    assert len(session.commits) == 1
    for path in ("/topics/b", "/topics/a/other", "/topics/a/list/beneath"):
        assert await store.get(path) is not None
    # What it is about, and what lies above that, which it may make.
    waiting = [asyncio.ensure_future(store.get(path)) for path in ("/topics/a/list", "/topics/a", "/topics")]
    listing = asyncio.ensure_future(store.children("/topics/a"))
    many = asyncio.ensure_future(store.get_many(["/elsewhere", "/topics/a/list"]))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(each.done() for each in (*waiting, listing, many, writing))
    session.commits[0].set_result([])
    await asyncio.gather(*waiting, listing, many, writing)


async def test_a_thousand_openings_wait_for_none_of_each_other(store: ZooKeeperStore) -> None:
    """Each reads a node, writes it and reads another: with ZooKeeper that answers no commit all have come to that."""
    session: Any = store.session

    async def opening(number: int) -> None:
        await store.get(f"/logs/{number}")
        await store.commit([Put(f"/logs/{number}", b"", MUST_NOT_EXIST)])

    opened = [asyncio.ensure_future(opening(number)) for number in range(1000)]
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(session.commits) == 1000
    for each in session.commits:
        each.set_result([])
    await asyncio.gather(*opened)


async def test_a_commit_is_waited_for_as_long_as_anything_is_answered(store: ZooKeeperStore) -> None:
    store._seconds = 0.05
    session: Any = store.session
    writing = asyncio.ensure_future(store.commit([Put("/a", b"", MUST_NOT_EXIST)]))
    reading = asyncio.ensure_future(store.get("/a"))
    end = time.monotonic() + 6 * store._seconds
    while time.monotonic() < end:  # answers to others' requests come
        session.answered_at = time.monotonic()
        await asyncio.sleep(0.001)
    assert not writing.done()
    session.commits[0].set_result([])
    assert await writing == [0]
    assert await reading is not None
    with pytest.raises(MetadataUncertain, match="the answer to a commit did not come"):
        await store.commit([Put("/b", b"", MUST_NOT_EXIST)])
