"""A metadata store that one process keeps for others: the end of it that has the store.

Each client has a session, which is its connection. It ends when the connection does, or when nothing is heard for
longer than the session lasts; in both cases whoever keeps the clients alive is asked first to see to it that this one
does nothing more (`Keeper.fence`), and only then its ephemeral nodes go and others may have what it owned. So a client
that stood still needs no clock to know that it is late.

Silence is counted in looks, not in seconds: where this process stood still itself, nobody was silent. It counts from a
client's first word on.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any

from magnetar.metadata.errors import MetadataError
from magnetar.metadata.keeper_frames import PART, frame, next_frame, told
from magnetar.metadata.local import LocalStore
from magnetar.metadata.port import Watch

LOOKS = 10
"""In the time of a session: a client that is not heard between so many is silent."""
_BUFFER_BYTES = 1 << 20
_log = logging.getLogger("magnetar.metadata")


class KeptClient:
    """One client's connection, at the keeper's end."""

    def __init__(self, keeper: Keeper, name: int, store: LocalStore) -> None:
        self.name = name
        self.store = store
        self.looks: int | None = None
        """How often was looked since something was heard; None before its first word: it owns nothing yet."""
        self._keeper = keeper
        self._watches: dict[int, Watch] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self.said_bye = False
        """Whether it ended its session itself, having done all that it had to."""

    async def serve(self, end: socket.socket) -> None:
        """Answer until the client has gone, or is sent away."""
        self._reader, self._writer = await asyncio.open_connection(sock=end, limit=_BUFFER_BYTES)
        self._say("welcome", self.store.session.id)
        while (said := await next_frame(self._reader)) is not None:
            self.looks = 0
            verb, number, *given = said
            if verb != "alive":
                # Begun in the order in which they were said: a read sees what was committed before it.
                self._soon(self._answer(verb, number, given))

    def send_away(self) -> None:
        """Hear nothing more of the client."""
        self._writer.close()

    async def end(self) -> None:
        """End the session: what lives by it goes."""
        self._writer.close()
        for watch in tuple(self._watches.values()):
            watch.close()
        for task in tuple(self._tasks):
            task.cancel()
        await self.store.close()

    def _say(self, *said: object) -> None:
        if not self._writer.is_closing():
            self._writer.write(frame(*said))

    def _soon(self, what: Awaitable[None]) -> None:
        task = asyncio.ensure_future(what)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a question of process %d was not answered", self.name, exc_info=task.exception())
            self.send_away()

    async def _answer(self, verb: str, number: int, given: list[Any]) -> None:
        try:
            answer = await _VERBS[verb](self, number, *given)
        except MetadataError as error:
            self._say("refused", number, told(error))
            return
        while isinstance(answer, list) and len(answer) > PART:
            self._say("part", number, answer[:PART])
            answer = answer[PART:]
            await self._writer.drain()
            await asyncio.sleep(0)
        self._say("answer", number, answer)

    async def _get_many(self, number: int, paths: list[str]) -> Any:
        return await self.store.get_many(paths)

    async def _children(self, number: int, path: str) -> Any:
        return await self.store.children(path)

    async def _tree(self, number: int, path: str) -> Any:
        return list((await self.store.get_tree(path)).items())

    async def _commit(self, number: int, ops: list[Any]) -> Any:
        return await self.store.commit(ops)

    async def _watch(self, number: int, path: str) -> Any:
        watch = self._watches[number] = await self.store.watch(path)
        self._soon(self._tell(number, watch))
        return None

    async def _unwatch(self, number: int, which: int) -> Any:
        watch = self._watches.pop(which, None)
        if watch is not None:
            watch.close()
        return None

    async def _tell(self, number: int, watch: Watch) -> None:
        with suppress(ConnectionError):
            async for changes in watch:
                self._say("changed", number, sorted(changes.paths))
                await self._writer.drain()

    async def _is_writable(self, number: int) -> Any:
        return await self.store.is_writable(), self.store.trouble

    async def _lose(self, number: int) -> Any:
        """Do what befalls a client that was not heard for long, for tests."""
        await self.store.lose_session()
        return self.store.session.id

    async def _bye(self, number: int) -> Any:
        """End the session in the client's own time."""
        self.said_bye = True
        await self.store.close()
        return None


_VERBS: dict[str, Callable[..., Awaitable[Any]]] = {
    "get-many": KeptClient._get_many,
    "children": KeptClient._children,
    "tree": KeptClient._tree,
    "commit": KeptClient._commit,
    "watch": KeptClient._watch,
    "unwatch": KeptClient._unwatch,
    "is-writable": KeptClient._is_writable,
    "lose": KeptClient._lose,
    "bye": KeptClient._bye,
}


async def _harmless(name: int) -> None:
    """Nobody has to be kept from anything."""


class Keeper:
    """Keeps a store for the processes at the other ends of some sockets."""

    def __init__(self, connect: Callable[[], LocalStore], session_s: float) -> None:
        """``connect`` returns one more client of the store; ``session_s`` is how long one may be silent."""
        self.session_s = session_s
        self.fence: Callable[[int], Awaitable[None]] = _harmless
        """Awaited with a client's name once it has gone or fell silent, before its session ends. It does nothing more
        when this returns, and what it had is as it should be for whoever takes it."""
        self._connect = connect
        self._clients: set[KeptClient] = set()
        self._names = count(1)
        self._looking: asyncio.Task[None] | None = None

    async def serve(self, end: socket.socket, name: int | None = None) -> None:
        """Answer one client until its session has ended; ``name`` is what `fence` knows it by."""
        client = KeptClient(self, next(self._names) if name is None else name, self._connect())
        self._clients.add(client)
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())
        try:
            await client.serve(end)
        finally:
            self._clients.discard(client)
            if not client.said_bye:
                await self.fence(client.name)
            await client.end()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self.session_s / LOOKS)
            for client in tuple(self._clients):
                if client.looks is None:
                    continue
                client.looks += 1
                if client.looks > LOOKS:
                    _log.warning(
                        "process %d has said nothing for %.1f s: it is ended", client.name, self.session_s
                    )
                    client.send_away()

    def close(self) -> None:
        """Look after nobody any more."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
