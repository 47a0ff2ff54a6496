"""The store in ZooKeeper keeps the contract on a real server, and what only a server far away can do to it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from magnetar.metadata import (
    ANY,
    MUST_NOT_EXIST,
    BadVersion,
    Check,
    Delete,
    InvalidPath,
    MetadataFull,
    MetadataStore,
    MetadataUnavailable,
    MetadataUncertain,
    Put,
    Stored,
)
from magnetar.metadata.cache import MetadataCache
from tests.cluster.servers import Server, class_path, free_port, zookeeper
from tests.contracts.metadata_store import MetadataStoreContract, told

class_path()  # skips the module where ZooKeeper cannot be run

from kazoo.client import KazooClient  # noqa: E402
from kazoo.exceptions import NoNodeError  # noqa: E402
from kazoo.protocol.serialization import Create, GetChildren, GetData  # noqa: E402
from kazoo.security import make_acl  # noqa: E402

from magnetar.metadata.zookeeper import ZooKeeperStore  # noqa: E402
from magnetar.metadata.zookeeper_requests import GetMany  # noqa: E402
from magnetar.metadata.zookeeper_session import LEASE  # noqa: E402

_SECONDS = 4.0  # of a session
_roots = (f"/tests/{number}" for number in count())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = zookeeper(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    """Return a server that a test may stop and kill."""
    server = zookeeper(tmp_path, extra="enforceQuota=true\n")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def root() -> str:
    return next(_roots)


async def connect(server: Server, root: str, seconds: float = _SECONDS) -> ZooKeeperStore:
    return await ZooKeeperStore.open(f"127.0.0.1:{server.port}", root, session_seconds=seconds)


@pytest.fixture
async def store(server: Server, root: str) -> AsyncIterator[ZooKeeperStore]:
    store = await connect(server, root)
    yield store
    await store.close()


@pytest.fixture
async def other(server: Server, root: str) -> AsyncIterator[ZooKeeperStore]:
    other = await connect(server, root)
    yield other
    await other.close()


async def end_session(store: ZooKeeperStore) -> None:
    """Have ZooKeeper end a session, as it does when it has not heard of it, and wait until the store knows."""
    lost = store.session
    told = asyncio.Event()
    lost.on_lost.append(told.set)
    # Whoever knows the session's id and password may end it: ZooKeeper's own way to test this.
    thief = KazooClient(hosts=lost._hosts, client_id=lost._client.client_id)
    await asyncio.to_thread(thief.start)
    await asyncio.to_thread(thief.stop)
    await told.wait()


class TestZooKeeperStore(MetadataStoreContract):
    async def lose_session(self, store: MetadataStore) -> None:
        assert isinstance(store, ZooKeeperStore)
        await end_session(store)


@pytest.mark.slow
async def test_paths_lie_below_the_root_as_pulsar_has_them(
    store: ZooKeeperStore, root: str, server: Server
) -> None:
    await store.commit([Put("/admin/policies/public/default", b"{}", MUST_NOT_EXIST)])
    plain = await connect(server, "")
    assert await plain.get(f"{root}/admin/policies/public/default") == (b"{}", 0)
    assert "zookeeper" not in await plain.children("/")
    await plain.close()


async def test_what_zookeeper_takes_for_another_path_is_refused(store: ZooKeeperStore) -> None:
    for path in ("/a/./b", "/a/..", "/a/\x01"):
        with pytest.raises(InvalidPath):
            await store.commit([Put(path, b"", MUST_NOT_EXIST)])
    assert await store.children("/") == []


async def test_a_node_that_must_not_exist_is_checked_where_its_parents_are_missing(
    store: ZooKeeperStore,
) -> None:
    assert await store.commit([Check("/a/b/c", MUST_NOT_EXIST), Put("/a/x", b"", MUST_NOT_EXIST)]) == [-1, 0]
    assert await store.get_many(["/a/b", "/a/b/c", "/a/x"]) == [None, None, (b"", 0)]
    await store.commit([Put("/a/b/c", b"", MUST_NOT_EXIST)])
    with pytest.raises(BadVersion):
        await store.commit([Check("/a/b/c", MUST_NOT_EXIST), Put("/a/y", b"", MUST_NOT_EXIST)])
    assert await store.get("/a/y") is None


@pytest.mark.slow
async def test_a_commit_that_others_are_quicker_than_is_tried_again(
    store: ZooKeeperStore, other: ZooKeeperStore
) -> None:
    async def write(client: ZooKeeperStore, name: str) -> None:
        for number in range(40):
            # Parents come and go under the other's hands.
            await client.commit(
                [Put("/p/q/shared", name.encode(), ANY), Put(f"/p/q/{name}", b"%d" % number, ANY)]
            )
            await client.commit([Delete(f"/p/q/{name}", ANY)])

    await asyncio.gather(write(store, "one"), write(other, "two"))
    assert await store.children("/p/q") == ["shared"]
    assert (await store.get("/p/q/shared")).version == 79


async def test_a_hundred_thousand_bytes_times_many_go_through_a_narrow_door(store: ZooKeeperStore) -> None:
    """More requests at once than kazoo could be given, without the loop being held up."""
    value = bytes(1000)
    await asyncio.gather(
        *(
            store.commit([Put(f"/n/{part}-{each}", value, MUST_NOT_EXIST) for each in range(100)])
            for part in range(30)
        )
    )
    started = time.monotonic()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    tree = await store.get_tree("/")
    ticking.cancel()
    assert len(tree) == 3001
    assert ticks > (time.monotonic() - started) * 20


async def test_a_session_that_no_server_answers_is_given_up_before_its_time(own: Server) -> None:
    store = await connect(own, "/mine", 2.0)
    await store.commit([Put("/b", b"", MUST_NOT_EXIST, ephemeral=True)])
    watch, session, lost = await store.watch("/"), store.session, asyncio.Event()
    session.on_lost.append(lost.set)
    heard = time.monotonic()
    own.send(signal.SIGSTOP)
    try:
        await lost.wait()
        assert time.monotonic() - heard < 2.0  # ZooKeeper would keep it for so long
        assert not await store.is_writable()
        with pytest.raises(MetadataUnavailable):
            await store.get("/b")
        with pytest.raises(MetadataUnavailable):
            await store.commit([Put("/c", b"", MUST_NOT_EXIST)])
    finally:
        own.send(signal.SIGCONT)
    assert (await anext(watch)).lost
    while await store.get("/b") is not None:  # noqa: ASYNC110 - the old session ends by itself
        await asyncio.sleep(0.05)
    await store.commit([Put("/b", b"", MUST_NOT_EXIST, ephemeral=True)])
    assert await store.get("/c") is None
    assert await store.is_writable()
    await store.close()


async def test_the_loop_goes_on_while_many_ask_a_server_that_hangs(
    store: ZooKeeperStore, server: Server
) -> None:
    server.send(signal.SIGSTOP)
    try:
        asked = [
            asyncio.ensure_future(store.commit([Put(f"/{number}", bytes(30_000), MUST_NOT_EXIST)]))
            for number in range(1000)
        ]
        for _ in range(20):
            await asyncio.sleep(0.01)
    finally:
        server.send(signal.SIGCONT)
    assert await asyncio.gather(*asked) == [[0]] * 1000


async def test_an_idle_session_is_believed_in_for_longer_than_its_time(store: ZooKeeperStore) -> None:
    calls: list[str] = []
    store.session.on_lost.append(lambda: calls.append("lost"))
    before = store.session._believed_until
    await asyncio.sleep(_SECONDS * LEASE + 0.5)
    assert calls == []
    assert store.session._believed_until > before


@pytest.mark.slow
async def test_a_store_goes_on_after_its_server_was_restarted(own: Server) -> None:
    store = await connect(own, "/mine", 20.0)
    await store.commit([Put("/b", b"", MUST_NOT_EXIST, ephemeral=True)])
    session, watch = store.session, await store.watch("/w")
    own.kill()
    read = asyncio.ensure_future(store.get("/b"))
    await asyncio.sleep(0.2)
    own.start()
    assert await read == (b"", 0)  # the session outlived the server
    assert store.session is session
    assert (await anext(watch)).lost
    await store.commit([Put("/w/x", b"", MUST_NOT_EXIST)])
    await told(watch, "/w/x", "/w")
    await store.close()


@pytest.mark.slow
async def test_a_commit_whose_answer_was_lost_is_uncertain(own: Server) -> None:
    store = await connect(own, "", 20.0)
    await store.commit([Put("/n", b"", MUST_NOT_EXIST)])
    own.send(signal.SIGSTOP)
    commit = asyncio.ensure_future(store.commit([Put("/n", b"maybe", 0)]))
    await asyncio.sleep(0.2)
    own.kill()
    with pytest.raises(MetadataUncertain):
        await commit
    own.start()
    assert await store.get("/n") in [(b"", 0), (b"maybe", 1)]
    await store.close()


async def test_an_address_where_no_zookeeper_is_says_so() -> None:
    port = free_port()
    words = f"ZooKeeper at 127.0.0.1:{port} cannot be reached: does it want TLS"
    with pytest.raises(MetadataUnavailable, match=words):
        await ZooKeeperStore.open(f"127.0.0.1:{port}", session_seconds=0.5)


@pytest.mark.slow
async def test_who_was_let_in_before_is_not_asked_for_tls_when_servers_go(own: Server) -> None:
    store = await connect(own, "")
    first = store.session
    own.kill()
    for _ in range(2):  # the second time in a session that never began
        with pytest.raises(MetadataUnavailable, match=r"cannot be reached$"):
            await store.get("/b")
        lost = asyncio.Event()
        if store.session is first:
            first.on_lost.append(lost.set)
            await lost.wait()
    assert store.session is not first
    await store.close()


async def test_a_quota_that_is_used_up_is_a_full_store(own: Server) -> None:
    store = await connect(own, "", 20.0)
    await store.commit([Put("/q", b"", MUST_NOT_EXIST)])
    limits = "/zookeeper/quota/q/zookeeper_limits"
    await store.commit([Put(limits, b"count=2,bytes=-1=;byteHardLimit=-1;countHardLimit=2", ANY)])
    await store.commit([Put("/zookeeper/quota/q/zookeeper_stats", b"count=1,bytes=0", ANY)])
    await store.commit([Put("/q/one", b"", MUST_NOT_EXIST)])
    with pytest.raises(MetadataFull):
        await store.commit([Put("/q/two", b"", MUST_NOT_EXIST)])
    assert await store.get("/q/two") is None
    assert await store.get("/q/one") == (b"", 0)
    await store.close()


async def test_a_change_costs_one_read_however_many_nodes_there_are(
    store: ZooKeeperStore, other: ZooKeeperStore
) -> None:
    await other.commit([Put(f"/topics/{number}", b"", MUST_NOT_EXIST) for number in range(300)])
    read: list[str] = []
    ask = store.session.ask

    def noted(request: Any) -> asyncio.Future[Any]:
        if isinstance(request, GetData | GetChildren):
            read.append(request.path.rpartition("/")[2])
        elif isinstance(request, GetMany):
            read.extend(path.rpartition("/")[2] for path in request.paths)
        return ask(request)

    store.session.ask = noted  # type: ignore[method-assign]
    follower, cache = Followed("/topics"), MetadataCache(store)
    await cache.follow(follower)
    assert len(read) == 301  # the list, and each node
    read.clear()
    for number in range(20):
        await other.commit([Put(f"/topics/{number}", b"changed", 0)])
        await follower.has(f"/topics/{number}", b"changed")
    await other.commit([Put("/topics/new", b"made", MUST_NOT_EXIST)])
    await follower.has("/topics/new", b"made")
    assert read == [*map(str, range(20)), "new"]
    await cache.close()


class Followed:
    """Keeps what lies beneath a path, and tells when something is there."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.values: dict[str, bytes] = {}
        self._changed = asyncio.Event()

    def apply(self, path: str, stored: Stored | None) -> None:
        if stored is not None:
            self.values[path] = stored.value
        self._changed.set()

    def known(self) -> Iterable[str]:
        return tuple(self.values)

    async def has(self, path: str, value: bytes) -> None:
        while self.values.get(path) != value:
            self._changed.clear()
            await self._changed.wait()


def test_kazoo_is_told_of_errors_that_it_does_not_know() -> None:
    """One that it did not know would end its thread, and with it the session."""
    from kazoo.exceptions import EXCEPTIONS

    assert issubclass(EXCEPTIONS[-127], Exception)
    assert EXCEPTIONS[-101] is NoNodeError


async def test_many_nodes_are_read_with_few_requests(
    store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [f"/n-{number}" for number in range(100)]
    for path in paths[::2]:
        await store.commit([Put(path, path.encode() * 3, MUST_NOT_EXIST)])
    await store.commit([Put(paths[2], b"", 0)])
    asked: list[object] = []
    ask = store.session.ask
    monkeypatch.setattr(store.session, "ask", lambda request: [asked.append(request), ask(request)][1])
    found = await store.get_many(paths)
    assert found[1::2] == [None] * 50
    assert found[::2] == [(b"", 1) if path == paths[2] else (path.encode() * 3, 0) for path in paths[::2]]
    assert len([each for each in asked if getattr(each, "path", "") != "/"]) == 7


async def test_a_node_that_may_not_be_read_is_an_error_though_others_may(
    store: ZooKeeperStore, root: str
) -> None:
    await store.commit([Put("/open", b"1", MUST_NOT_EXIST)])
    closed = [make_acl("digest", "somebody:else", all=True)]
    await store.session.ask(Create(f"{root}/closed", b"2", closed, 0))
    with pytest.raises(MetadataUnavailable, match="NoAuthError"):
        await store.get_many(["/open", "/closed"])
    assert await store.get_many(["/open", "/gone"]) == [(b"1", 0), None]


async def test_how_long_an_answer_takes_is_known_while_it_is_waited_for(
    store: ZooKeeperStore, server: Server
) -> None:
    await store.get("/n")
    assert 0 < store.session.answer_s < 60
    server.send(signal.SIGSTOP)
    try:
        asked = asyncio.ensure_future(store.get("/n"))
        await asyncio.sleep(0.3)
        assert store.session.answer_s >= 0.2
    finally:
        server.send(signal.SIGCONT)
    await asked
    assert not store.session._asked
