"""A metadata store that another process keeps (`magnetar.metadata.keeper`): the end of it that asks.

The session is the connection. When that is lost nothing more can be asked, and nothing of what was owned by it is: the
process is meant to end. What is said on the connection is in `magnetar.metadata.keeper_frames`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

from magnetar.metadata.errors import MetadataUnavailable, MetadataUncertain
from magnetar.metadata.keeper_frames import Told, frame, next_frame
from magnetar.metadata.local import LocalWatch
from magnetar.metadata.ops import Op, Stored, below, check_ops, check_path
from magnetar.metadata.port import MetadataStore, Session, Watch

_AT_ONCE = 200  # nodes that are asked for together
_ALIVE_S = 0.5
_BUFFER_BYTES = 1 << 20


class KeeperStore(MetadataStore):
    """One client. Made by `open`."""

    def __init__(self) -> None:
        self.trouble = ""
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._numbers = count(1)
        self._asked: dict[int, tuple[asyncio.Future[Any], list[Any]]] = {}
        """By number, who waits, and the parts of the answer that have come."""
        self._watches: dict[int, LocalWatch] = {}
        self._closed = self._lost = False
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(cls, end: socket.socket, alive_s: float = _ALIVE_S) -> KeeperStore:
        """Return a store at this end of a socket; raise `MetadataUnavailable`.

        ``alive_s`` is how often the keeper is told that this process goes on.
        """
        store = cls()
        store._reader, store._writer = await asyncio.open_connection(sock=end, limit=_BUFFER_BYTES)
        said = await next_frame(store._reader)
        if said is None:
            raise MetadataUnavailable("the process that keeps the metadata has gone")
        store.session = Session(said[1])
        store._tasks = [
            asyncio.ensure_future(store._listen()),
            asyncio.ensure_future(store._be_alive(alive_s)),
        ]
        return store

    async def _be_alive(self, every_s: float) -> None:
        while True:
            self._say("alive", 0)
            await asyncio.sleep(every_s)

    async def _listen(self) -> None:
        while (said := await next_frame(self._reader)) is not None:
            verb, number, what = said
            if verb == "changed":
                watch = self._watches.get(number)
                if watch is not None:
                    watch.tell(what)
                continue
            asked = self._asked.get(number)
            if asked is None:
                continue  # whoever asked has gone
            waits, parts = asked
            if verb == "part":
                parts += what
                continue
            del self._asked[number]
            if waits.done():
                continue
            if verb == "refused":
                assert isinstance(what, Told)
                waits.set_exception(what.error())
            else:
                waits.set_result([*parts, *what] if parts else what)
        self._end()

    def _end(self) -> None:
        """The keeper has gone, or has sent this process away."""
        self._lost = True
        for waits, _ in self._asked.values():
            if not waits.done():
                waits.set_exception(_Gone())
        self._asked.clear()
        if self._closed:
            return
        self.trouble = "the process that keeps the metadata has gone"
        for told in tuple(self.session.on_lost):
            told()
        for watch in self._watches.values():
            watch.lose()

    def _say(self, *said: object) -> None:
        if not self._writer.is_closing():
            self._writer.write(frame(*said))

    def _ask(self, verb: str, *given: object, number: int = 0) -> asyncio.Future[Any]:
        if self._lost or self._closed:
            raise MetadataUnavailable(self.trouble or "the metadata store is closed")
        number = number or next(self._numbers)
        waits: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = waits, []
        self._say(verb, number, *given)
        return waits

    async def _read(self, verb: str, *given: object) -> Any:
        try:
            return await self._ask(verb, *given)
        except _Gone:
            raise MetadataUnavailable(self.trouble or "the metadata store is closed") from None

    async def get(self, path: str) -> Stored | None:
        (found,) = await self.get_many([path])
        return found

    async def get_many(self, paths: Iterable[str]) -> list[Stored | None]:
        asked = [check_path(path) for path in paths]
        found: list[Stored | None] = []
        for at in range(0, len(asked), _AT_ONCE):
            found += await self._read("get-many", asked[at : at + _AT_ONCE])
        return found

    async def children(self, path: str) -> list[str]:
        below(path)
        found: list[str] = await self._read("children", path)
        return found

    async def get_tree(self, path: str) -> dict[str, Stored]:
        below(path)
        return dict(await self._read("tree", path))

    async def commit(self, ops: Sequence[Op]) -> list[int]:
        check_ops(ops)
        try:
            versions: list[int] = await self._ask("commit", list(ops))
        except _Gone:
            raise MetadataUncertain("the process that keeps the metadata has gone meanwhile") from None
        self.trouble = ""
        return versions

    async def watch(self, path: str) -> Watch:
        below(path)
        number = next(self._numbers)
        watch = self._watches[number] = LocalWatch(path, lambda ended: self._unwatched(number))
        try:
            await self._ask("watch", path, number=number)
        except BaseException as error:
            self._watches.pop(number, None)
            watch.close()
            if isinstance(error, _Gone):
                raise MetadataUnavailable(self.trouble) from None
            raise
        return watch

    def _unwatched(self, number: int) -> None:
        if self._watches.pop(number, None) is not None and not (self._closed or self._lost):
            self._ask("unwatch", number).add_done_callback(
                lambda asked: asked.cancelled() or asked.exception()
            )

    async def is_writable(self) -> bool:
        writable, trouble = await self._read("is-writable")
        self.trouble = trouble
        return bool(writable)

    async def lose_session(self) -> None:
        """Do what befalls a client that was not heard for long: its ephemeral nodes go, watches miss."""
        session_id = await self._read("lose")
        lost, self.session = self.session, Session(session_id)
        for told in tuple(lost.on_lost):
            told()
        for watch in self._watches.values():
            watch.lose()

    async def close(self) -> None:
        if self._closed:
            return
        bye = None if self._lost else self._ask("bye")
        self._closed = True
        for watch in tuple(self._watches.values()):
            watch.close()
        if bye is not None:
            await asyncio.wait([bye])
            bye.exception()
        self._writer.close()
        for task in self._tasks:
            task.cancel()


class _Gone(Exception):
    """The connection ended before the answer came."""
