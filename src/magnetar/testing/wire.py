"""The way between clients and a broker under test, which can be slow, silent or cut."""

from __future__ import annotations

import asyncio
from contextlib import suppress

_PIECE = 64 << 10
Place = tuple[str, int]


class Wire:
    """Forwards connections to a broker; clients know its ports and not the broker's own."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        """How long each piece of data, in either direction, is held back."""
        self.leads_to: dict[str, Place] = {}
        """By protocol, where the broker listens; a protocol that is missing is refused."""
        self._flows = asyncio.Event()
        self._flows.set()
        self._servers: list[asyncio.Server] = []
        self._transports: set[asyncio.WriteTransport] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    async def open(self, protocol: str, host: str) -> int:
        """Listen for clients of a protocol on a free port, and return it."""

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._connected(protocol, reader, writer)

        server = await asyncio.start_server(connected, host, 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def pause(self) -> None:
        """Have nothing pass in either direction; connections stay open, as with a network that drops packets."""
        self._flows.clear()

    def resume(self) -> None:
        """Have everything that waits pass."""
        self._flows.set()

    def cut(self) -> None:
        """Break all connections that there are, with what is on its way; new ones are accepted."""
        for transport in list(self._transports):
            transport.abort()

    async def close(self) -> None:
        """Break all connections and accept no more."""
        for server in self._servers:
            server.close()
        self.cut()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _connected(
        self, protocol: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            there = await asyncio.open_connection(*self.leads_to[protocol])
        except (OSError, KeyError):
            writer.transport.abort()
            return
        ends = {writer.transport, there[1].transport}
        self._transports |= ends
        pumps = [
            asyncio.ensure_future(self._pump(reader, there[1])),
            asyncio.ensure_future(self._pump(there[0], writer)),
        ]
        self._pumps.update(pumps)
        try:
            await asyncio.gather(*pumps)
        finally:
            self._pumps.difference_update(pumps)
            self._transports -= ends
            for transport in ends:
                transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_PIECE):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
