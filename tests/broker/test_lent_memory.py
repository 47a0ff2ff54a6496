"""HTTP's connections receive into memory that is lent, on the loop that brokers run on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

from magnetar.ledger.memory import MemoryEngine
from magnetar.metadata import MemoryStore
from magnetar.node.broker import Broker
from magnetar.settings.settings import Settings
from magnetar.web import connection, http
from magnetar.web.server import WebServer

BODY = bytes(4 << 20)


async def app(scope: Any, receive: Any, send: Any) -> None:
    from starlette.requests import Request
    from starlette.responses import Response

    await Response(str(len(await http.body_of(Request(scope, receive)))))(scope, receive, send)


def test_no_more_is_received_at_a_stretch_than_is_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop does not ask for memory what is an ``asyncio.Protocol`` as well, and receives 256 KB at a stretch."""
    sizes: list[int] = []
    taken = connection.WebConnection.data_received

    def noted(self: connection.WebConnection, data: bytes) -> None:
        sizes.append(len(data))
        taken(self, data)

    monkeypatch.setattr(connection.WebConnection, "data_received", noted)

    async def asked() -> bytes:
        store = MemoryStore()
        web = WebServer(app, Broker(Settings(), store, MemoryEngine(store)))
        server = await asyncio.get_running_loop().create_server(web.connection, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        writer.write(
            b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n" % len(BODY) + BODY
        )
        answer = await reader.read()
        writer.close()
        server.close()
        web.close()
        return answer

    assert uvloop.run(asked()).endswith(str(len(BODY)).encode())
    assert sum(sizes) > len(BODY)
    assert max(sizes) <= len(connection._SCRATCH)
