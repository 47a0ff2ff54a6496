"""A way to a broker on which answers are lost: of every fifth Produce request the broker's answer is swallowed and the
connection cut, when the broker has already done what it was asked. A client then sends the same records again."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import deque

_PRODUCE = 0
_EVERY = 5
_SIZE = struct.Struct(">i")
_API_KEY = struct.Struct(">h")


class LossyWay:
    """Listens on ``port`` of loopback and passes all on to ``target``, a port too. ``lost`` counts answers."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.lost = 0
        self._asked = 0
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self._run, args=(ready,), daemon=True).start()
        ready.wait()

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Pass one client's requests on, and the answers back, until one is to be lost or somebody leaves."""
        try:
            broker, to_broker = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            to_client.close()
            return
        waiting: deque[int] = deque()  # API keys of what is not answered yet: answers keep the order
        ways = [
            asyncio.ensure_future(self._requests(client, to_broker, waiting)),
            asyncio.ensure_future(self._answers(broker, to_client, waiting)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for done in await asyncio.gather(*ways, return_exceptions=True):
            if isinstance(done, Exception) and not isinstance(done, (OSError, asyncio.IncompleteReadError)):
                raise done
        for end in (to_client, to_broker):
            end.transport.abort()

    async def _requests(
        self, client: asyncio.StreamReader, to_broker: asyncio.StreamWriter, waiting: deque[int]
    ) -> None:
        while True:
            frame = await _frame(client)
            waiting.append(_API_KEY.unpack_from(frame, 4)[0])
            to_broker.write(frame)
            await to_broker.drain()

    async def _answers(
        self, broker: asyncio.StreamReader, to_client: asyncio.StreamWriter, waiting: deque[int]
    ) -> None:
        while True:
            frame = await _frame(broker)
            if waiting.popleft() == _PRODUCE:
                self._asked += 1
                if self._asked % _EVERY == 0:
                    self.lost += 1
                    return
            to_client.write(frame)
            await to_client.drain()


async def _frame(source: asyncio.StreamReader) -> bytes:
    head = await source.readexactly(4)
    return head + await source.readexactly(_SIZE.unpack(head)[0])
