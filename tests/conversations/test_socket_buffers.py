"""``socket.send.buffer.bytes`` and ``socket.receive.buffer.bytes`` reach the sockets of Kafka's connections."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from magnetar.node.service import BrokerService
from magnetar.settings.settings import Settings
from tests.hostile.test_fuzz import kafka


@pytest.mark.parametrize(
    ("send", "receive"), [("-1", "-1"), ("24000", "-1"), ("-1", "36000"), ("20000", "40000")]
)
async def test_sockets_have_the_buffers_that_are_asked_for(tmp_path: Path, send: str, receive: str) -> None:
    texts = {
        "data.dir": str(tmp_path / "data"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "socket.send.buffer.bytes": send,
        "socket.receive.buffer.bytes": receive,
    }
    service = BrokerService(Settings().with_values(texts))
    await service.start()
    bind = service.listeners["kafka"][0].bind
    with socket.create_connection((bind.host, bind.port)):
        while not kafka(service)._server.connections:  # noqa: ASYNC110 - a connection tells nobody
            await asyncio.sleep(0)
        (connection,) = kafka(service)._server.connections
        found = connection._transport.get_extra_info("socket")
        for option, wanted in ((socket.SO_SNDBUF, send), (socket.SO_RCVBUF, receive)):
            size = found.getsockopt(socket.SOL_SOCKET, option)
            if wanted == "-1":
                assert size > 80_000
            else:
                assert size == 2 * int(wanted), "Linux doubles it, for what it keeps beside the bytes"
    await service.close()
