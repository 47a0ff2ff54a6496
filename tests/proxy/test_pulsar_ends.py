"""A side of the proxy that takes nothing more does not stay open for what was written to it."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

import pytest

from magnetar.proxy.pulsar import broker_side
from magnetar.proxy.pulsar.broker_side import BrokerSide


@pytest.mark.parametrize("reads", [False, True])
async def test_a_broker_that_does_not_read_is_let_go_of(reads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client had sent half a message, and left: the rest of the broker's budget was held by such for minutes."""
    monkeypatch.setattr(broker_side, "_LAST_WORDS_S", 0.2 if not reads else 3600.0)
    loop, came, ended = asyncio.get_running_loop(), bytearray(), asyncio.Event()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)

    class Client:
        def read(self, wanted: bool) -> None: ...
        def count(self) -> None: ...
        def end(self) -> None:
            ended.set()

    _, side = await loop.create_connection(
        lambda: BrokerSide(cast(Any, Client()), None), *listening.getsockname()
    )
    accepted, _ = await loop.sock_accept(listening)
    accepted.setblocking(False)
    assert side.transport is not None
    sent = bytes(20 << 20)
    side.transport.write(sent)
    side.end()
    if reads:
        while data := await loop.sock_recv(accepted, 1 << 20):
            came += data
        assert len(came) == len(sent), "what was written goes out"
    await ended.wait()
    accepted.close()
    listening.close()
