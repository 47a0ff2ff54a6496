"""Which broker the proxy passes a request of the admin REST to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from magnetar.proxy.settings import ProxySettings
from magnetar.proxy.web import WebProxy, _Request

_ASKED = _Request(b"GET", b"/admin/v2/clusters", [], b"")
_HOSTS = [f"127.0.0.{number}" for number in range(1, 40)]


class Brokers:
    """Each answers every request with its number."""

    def __init__(self, servers: list[asyncio.Server]) -> None:
        self.servers = servers
        urls = [f"http://127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in servers]
        settings = ProxySettings(broker_web_service_url=",".join(urls))
        nobody = cast(Any, None)
        self.proxy = WebProxy(settings, nobody, nobody, nobody)

    async def of(self, host: str) -> int:
        """Return which broker answers a client at this address."""
        _, body = await self.proxy.answered(_ASKED, host)
        return int(b"".join([part async for part in body]))


@pytest.fixture
async def brokers() -> AsyncIterator[Brokers]:
    servers = []
    for number in range(3):

        async def serve(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int = number
        ) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number)
            await writer.drain()
            writer.close()

        servers.append(await asyncio.start_server(serve, "127.0.0.1", 0))
    yield Brokers(servers)
    for each in servers:
        each.close()


async def test_a_client_stays_with_one_broker_and_many_are_shared_out(brokers: Brokers) -> None:
    """Another broker would hear a moment later of what the client has just made."""
    first = {host: await brokers.of(host) for host in _HOSTS}
    assert set(first.values()) == {0, 1, 2}
    for host in _HOSTS:
        assert {await brokers.of(host) for _ in range(5)} == {first[host]}


async def test_whose_broker_is_gone_has_another(brokers: Brokers) -> None:
    before = {host: await brokers.of(host) for host in _HOSTS}
    brokers.servers[1].close()
    after = {host: await brokers.of(host) for host in _HOSTS}
    for host, number in before.items():
        assert after[host] == number if number != 1 else after[host] in (0, 2)
