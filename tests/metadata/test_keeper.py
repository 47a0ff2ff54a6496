"""A store that another process keeps keeps the contract; who is gone or silent is fenced before its nodes go."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from magnetar.metadata import MUST_NOT_EXIST, MetadataStore, MetadataUncertain, Put, SqliteStore
from magnetar.metadata.errors import MetadataUnavailable
from magnetar.metadata.keeper import Keeper
from magnetar.metadata.keeper_client import KeeperStore
from tests.contracts.metadata_store import MetadataStoreContract


class Kept:
    """A keeper, and the store that it keeps."""

    def __init__(self, file: Path, session_s: float = 30.0) -> None:
        self.file = SqliteStore(file)
        self.keeper = Keeper(self.file.another, session_s)
        self.serving: list[asyncio.Task[None]] = []

    def end(self, name: int | None = None) -> socket.socket:
        """Return the end of a new client's socket."""
        mine, theirs = socket.socketpair()
        self.serving.append(asyncio.ensure_future(self.keeper.serve(mine, name)))
        return theirs

    async def client(self, name: int | None = None) -> KeeperStore:
        return await KeeperStore.open(self.end(name))

    async def close(self) -> None:
        await asyncio.gather(*self.serving)
        self.keeper.close()
        await self.file.close()


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    made = Kept(tmp_path / "metadata.sqlite")
    yield made
    await made.close()


class TestKeeperStore(MetadataStoreContract):
    @pytest.fixture
    async def store(self, kept: Kept) -> AsyncIterator[MetadataStore]:
        store = await kept.client()
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, kept: Kept) -> AsyncIterator[MetadataStore]:
        other = await kept.client()
        yield other
        await other.close()

    async def lose_session(self, store: MetadataStore) -> None:
        assert isinstance(store, KeeperStore)
        await store.lose_session()


async def test_a_long_answer_comes_in_parts_and_holds_nobody_up(kept: Kept) -> None:
    store, other = await kept.client(), await kept.client()
    names = [f"/n/{number:05d}" for number in range(7_000)]
    for at in range(0, len(names), 1000):
        await store.commit([Put(name, name.encode(), MUST_NOT_EXIST) for name in names[at : at + 1000]])
    tree, children, many = await asyncio.gather(
        other.get_tree("/n"), store.children("/n"), store.get_many(names)
    )
    assert list(tree) == names
    assert children == [name.removeprefix("/n/") for name in names]
    assert [each and each.value for each in many] == [name.encode() for name in names]
    await store.close()
    await other.close()


SILENT = """
import asyncio, os, socket, sys
from magnetar.metadata import MUST_NOT_EXIST, Put
from magnetar.metadata.keeper_client import KeeperStore

async def main():
    store = await KeeperStore.open(socket.socket(fileno=int(sys.argv[1])), alive_s=0.05)
    await store.commit([Put("/mine", b"", MUST_NOT_EXIST, ephemeral=True)])
    print("here", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_client_that_is_gone_or_stands_still_is_fenced_before_its_nodes_go(
    tmp_path: Path, sent: signal.Signals
) -> None:
    kept = Kept(tmp_path / "metadata.sqlite", session_s=1.0)
    other = await KeeperStore.open(kept.end(2), alive_s=0.05)
    end = kept.end(1)
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        SILENT,
        str(end.fileno()),
        pass_fds=[end.fileno()],
        stdout=asyncio.subprocess.PIPE,
    )
    end.close()
    assert child.stdout is not None
    assert await child.stdout.readline() == b"here\n"
    fenced: list[int] = []

    async def fence(name: int) -> None:
        assert await other.children("/") == ["mine"]
        if sent == signal.SIGSTOP:
            child.kill()
        await child.wait()
        await asyncio.sleep(0.2)
        assert await other.children("/") == ["mine"]
        fenced.append(name)

    kept.keeper.fence = fence
    watch = await other.watch("/mine")
    os.kill(child.pid, sent)
    assert (await anext(watch)).paths == {"/mine"}
    assert fenced == [1]
    assert await other.children("/") == []
    await other.close()
    await kept.close()
    assert fenced == [1]


async def test_of_a_commit_whose_keeper_went_it_is_not_known_whether_it_was_kept() -> None:
    mine, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=mine)
    from magnetar.metadata.keeper_frames import frame

    writer.write(frame("welcome", 7))
    store = await KeeperStore.open(theirs)
    lost: list[int] = []
    store.session.on_lost.append(lambda: lost.append(store.session.id))
    watching = asyncio.ensure_future(store.watch("/a"))
    commit = asyncio.ensure_future(store.commit([Put("/a", b"", MUST_NOT_EXIST)]))
    read = asyncio.ensure_future(store.get("/a"))
    await asyncio.sleep(0.05)
    writer.close()
    with pytest.raises(MetadataUncertain):
        await commit
    with pytest.raises(MetadataUnavailable):
        await read
    with pytest.raises(MetadataUnavailable):
        await watching
    with pytest.raises(MetadataUnavailable):
        await store.get("/a")
    assert lost == [7]
    await store.close()
    assert reader is not None
