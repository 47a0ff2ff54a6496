"""What the stores of one process have in common: sessions and watches, and asking a `BlockingStore`."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import count, islice
from typing import TypeVar

from magnetar.metadata.blocking import BlockingStore
from magnetar.metadata.errors import MetadataError
from magnetar.metadata.ops import (
    Op,
    Stored,
    below,
    check_ops,
    check_path,
)
from magnetar.metadata.port import Changes, MetadataStore, Session, Watch
from magnetar.metadata.staging import Outcome, StagedCommit

T = TypeVar("T")
_READ_AT_ONCE = 200  # nodes; behind these others have their turn
_session_ids = count(1)


class LocalWatch(Watch):
    """A watch fed by whichever thread commits."""

    def __init__(self, path: str, ended: Callable[[LocalWatch], None]) -> None:
        self._path = path
        self._start = below(path)
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._paths: set[str] = set()
        self._lost = False
        self._closed = False
        self._wake = asyncio.Event()

    def tell(self, paths: Collection[str]) -> None:
        """Take note of what changed; from any thread."""
        mine = [path for path in paths if path.startswith(self._start) or path == self._path]
        if mine:
            self._soon(mine, lost=False)

    def lose(self) -> None:
        """Say that changes may have gone unnoticed, as a store does whose connection was broken."""
        self._soon((), lost=True)

    def _soon(self, paths: Collection[str], *, lost: bool) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it who would listen
            self._loop.call_soon_threadsafe(self._note, paths, lost)

    def _note(self, paths: Collection[str], lost: bool) -> None:
        self._paths.update(paths)
        self._lost |= lost
        self._wake.set()

    async def __anext__(self) -> Changes:
        while not (self._paths or self._lost or self._closed):
            self._wake.clear()
            await self._wake.wait()
        if self._closed:
            raise StopAsyncIteration
        changes = Changes(frozenset(self._paths), self._lost)
        self._paths, self._lost = set(), False
        return changes

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        self._ended(self)


class LocalStore(MetadataStore):
    """One client, with a session and watches of its own, of a store within this process."""

    def __init__(self, blocking: BlockingStore) -> None:
        self.blocking = blocking
        """The same store for callers that wait for it where they stand."""
        self.session = Session(next(_session_ids))
        self._watches: list[LocalWatch] = []

    @property
    def trouble(self) -> str:  # type: ignore[override]
        return self.blocking.trouble

    @abstractmethod
    async def _read(self, read: Callable[[], T]) -> T:
        """Return what ``read`` returns, called where it holds nobody up."""

    @abstractmethod
    async def _commit(self, commit: StagedCommit) -> Outcome:
        """Return the outcome of one commit."""

    async def get(self, path: str) -> Stored | None:
        check_path(path)
        return await self._read(lambda: self.blocking.get(path))

    async def get_many(self, paths: Iterable[str]) -> list[Stored | None]:
        get, left = self.blocking.get, iter(paths)
        found: list[Stored | None] = []
        while some := list(islice(left, _READ_AT_ONCE)):
            found += await self._read(lambda some=some: [get(path) for path in some])  # type: ignore[misc]
        return found

    async def children(self, path: str) -> list[str]:
        below(path)
        return await self._read(lambda: self.blocking.children(path))

    async def get_tree(self, path: str) -> dict[str, Stored]:
        return dict(await self._read(lambda: self.blocking.scan(below(path))))

    async def commit(self, ops: Sequence[Op]) -> list[int]:
        check_ops(ops)
        outcome = await self._commit(StagedCommit(tuple(ops), self.session.id))
        if isinstance(outcome, MetadataError):
            raise outcome
        return outcome

    async def watch(self, path: str) -> Watch:
        watch = LocalWatch(path, self._unwatched)
        self._watches.append(watch)
        self.blocking.on_changed.append(watch.tell)
        await asyncio.sleep(0)
        return watch

    def _unwatched(self, watch: LocalWatch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)
            self.blocking.on_changed.remove(watch.tell)

    async def is_writable(self) -> bool:
        return await self._read(self.blocking.is_writable)

    async def lose_session(self) -> None:
        """Do what befalls a client whose store did not hear of it for long: its ephemeral nodes go, watches miss."""
        lost, self.session = self.session, Session(next(_session_ids))
        await self._read(lambda: self.blocking.end_session(lost.id))
        for told in tuple(lost.on_lost):
            told()
        for watch in self._watches:
            watch.lose()

    async def close(self) -> None:
        for watch in tuple(self._watches):
            watch.close()
        await self._read(lambda: self.blocking.end_session(self.session.id))
