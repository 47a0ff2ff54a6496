"""The frame reader as the memory behind real sockets, in both event loops, with one scratch buffer for all."""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import Callable
from random import Random
from typing import cast

import pytest
import uvloop

from magnetar.wire.kafka.frames import KafkaFrameReader, scratch_buffer


class Digesting(asyncio.BufferedProtocol):
    """Answers every frame with its SHA-256."""

    def __init__(self, scratch: bytearray) -> None:
        self._reader = KafkaFrameReader(scratch=scratch)
        self.get_buffer = self._reader.get_buffer  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.buffer_updated(nbytes)
        while (frame := self._reader.next_frame()) is not None:
            self._transport.write(hashlib.sha256(frame).digest())


async def converse(seed: int) -> None:
    loop, scratch, random = asyncio.get_running_loop(), scratch_buffer(), Random(seed)
    server = await loop.create_server(lambda: Digesting(scratch), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]

    async def client(bodies: list[bytes]) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
        for start in range(0, len(stream), 50_001):
            writer.write(stream[start : start + 50_001])
            await writer.drain()
        for body in bodies:
            assert await reader.readexactly(32) == hashlib.sha256(body).digest()
        writer.close()
        await writer.wait_closed()

    sizes = (8, 100, 5000, 16_384, 70_000, 3_000_000)
    conversations = [[random.randbytes(random.choice(sizes)) for _ in range(10)] for _ in range(4)]
    await asyncio.gather(*map(client, conversations))
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_frames_of_several_connections(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(converse(5), 20))
