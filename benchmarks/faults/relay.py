"""A relay of TCP between clients and a server: what passes through it can be cut, held back, or made late."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

_CHUNK = 1 << 16


class Relays:
    """An event loop of their own, in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="relays").start()

    def add(self, target: int, host: str = "127.0.0.1", port: int = 0) -> Relay:
        """Return a relay to a port of 127.0.0.1, from a port (a free one, if it is 0) of an address of loopback."""
        made = Relay(self, target)
        made.port = self.do(made.listen(host, port))
        return made

    def do(self, what: Coroutine[Any, Any, Any]) -> Any:
        """Have the loop do something, and wait for it."""
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)


class Relay:
    """One port that leads to another."""

    def __init__(self, relays: Relays, target: int) -> None:
        self.port = 0
        self._relays = relays
        self._target = target
        self._flows = asyncio.Event()
        self._flows.set()
        self._refuses = False
        self._late_s = 0.0
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> int:
        self._server = await asyncio.start_server(self._serve, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    def break_all(self) -> None:
        """Break what is connected; whoever connects anew may."""
        self._relays.do(self._break_all())

    def cut(self) -> None:
        """Break what is connected, and let nobody in until `mend`."""
        self._refuses = True
        self.break_all()

    def hold(self) -> None:
        """Let no byte pass until `mend`, as a network does that drops all packets."""
        self._relays.do(self._hold())

    def slow(self, seconds: float) -> None:
        """Let each read's worth of bytes, either way, pass so much later than the one before, until `mend`."""
        self._late_s = seconds

    def mend(self) -> None:
        """Let all pass again."""
        self._refuses = False
        self._late_s = 0.0
        self._relays.do(self._mend())

    async def _break_all(self) -> None:
        for each in list(self._open):
            each.transport.abort()

    async def _hold(self) -> None:
        self._flows.clear()

    async def _mend(self) -> None:
        self._flows.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        there: asyncio.StreamWriter | None = None
        try:
            if self._refuses:
                return
            await self._flows.wait()
            back, there = await asyncio.open_connection("127.0.0.1", self._target)
            self._open.add(there)
            both = [
                asyncio.ensure_future(self._pass(reader, there)),
                asyncio.ensure_future(self._pass(back, writer)),
            ]
            _, rest = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for each in rest:
                each.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        except OSError:
            pass
        finally:
            for each in (writer, there):
                if each is not None:
                    self._open.discard(each)
                    each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            await self._flows.wait()
            if self._late_s:
                await asyncio.sleep(self._late_s)
            writer.write(data)
            await writer.drain()
