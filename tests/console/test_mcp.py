"""MCP, asked of a real broker: by the official SDK's client where it is installed, and by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.console.conftest import OPEN, browser
from tests.console.forms import unique
from tests.console.test_pages import make, produce
from tests.process import BrokerProcess
from tests.security.signing import SECURED, token

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def assisted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("mcp") / "data"
    with BrokerProcess(data, *OPEN, "--set", "mcp.enabled=true") as process:
        yield process


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("mcp-guarded") / "data"
    settings = (*SECURED, "listeners=SASL_PLAINTEXT://127.0.0.1:0", "mcp.enabled=true")
    sets = [word for each in settings for word in ("--set", each)]
    with BrokerProcess(data, "--http", "127.0.0.1:0", *sets, kafka=None) as process:
        yield process


def post(http: httpx.Client, message: object, **headers: str) -> httpx.Response:
    return http.post("/mcp", json=message, headers=headers)


def call(http: httpx.Client, name: str, headers: dict[str, str] | None = None, **arguments: object) -> Any:
    params = {"name": name, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = post(http, message, **(headers or {}))
    assert answer.status_code == 200, answer.text
    assert answer.content.isascii()
    return answer.json()


def test_the_official_client_reads_a_broker(assisted: BrokerProcess) -> None:
    sdk = pytest.importorskip("mcp")
    from mcp.client.streamable_http import streamable_http_client

    name = unique("asked")
    make(assisted, name)
    produce(assisted, name, b'{"n": 1}')

    async def ask() -> None:
        url = f"http://{assisted.served['http'][0]}/mcp"
        async with (
            streamable_http_client(url) as streams,
            sdk.ClientSession(streams[0], streams[1]) as session,
        ):
            told = await session.initialize()
            assert told.server_info.name == "magnetar"
            tools = {each.name for each in (await session.list_tools()).tools}
            assert {"topics", "records", "explain", "why_group", "lag", "schemas", "audit"} <= tools
            found = await session.call_tool("records", {"topic": name})
            assert not found.is_error
            (row,) = found.structured_content["records"]
            assert json.loads(row["value"]["text"]) == {"n": 1}
            record = await session.call_tool("explain", {"topic": name, "partition": 0, "offset": 0})
            assert record.structured_content["explained"]["offset"] == 0
            acts = (await session.call_tool("audit", {})).structured_content["acts"]
            assert any(each["name"] == name for each in acts)
            wrong = await session.call_tool("topic", {"topic": "there-is-none"})
            assert wrong.is_error

    asyncio.run(ask())


def test_each_tool_answers_as_its_page_does(assisted: BrokerProcess) -> None:
    name = unique("paged")
    make(assisted, name)
    produce(assisted, name, b"x")
    with browser(assisted) as http:
        for tool, page, query in (
            ("configuration", "configuration", {"topic": name}),
            ("records", "records", {"topic": name}),
            ("explain", "record", {"topic": name, "partition": "0", "offset": "0"}),
            ("schemas", "schemas", {}),
        ):
            by_page = http.get(f"/console/{page}.json", params=query).json()
            told = call(http, tool, **query)["result"]
            assert told["structuredContent"] == by_page, tool
            assert json.loads(told["content"][0]["text"]) == by_page


def test_each_client_is_told_what_its_grants_let_it_see(guarded: BrokerProcess) -> None:
    with browser(guarded) as http:
        root = {"Authorization": f"Bearer {token('root')}"}
        path = "/admin/v2/persistent/public/default/secret"
        assert http.put(path, headers=root).status_code == 204
        alice = {"Authorization": f"Bearer {token('alice')}"}
        assert "secret" in json.dumps(call(http, "topics", root))
        assert "secret" not in json.dumps(call(http, "topics", alice))
        refused = call(http, "records", alice, topic="secret")["result"]
        assert refused["isError"]
        assert call(http, "transactions", alice)["result"]["isError"]
        assert call(http, "audit", alice)["result"]["structuredContent"] == {"acts": None}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert post(http, ping).status_code == 401
        assert post(http, ping, Authorization="Bearer wrong").status_code == 401
        assert post(http, ping, **alice).json()["result"] == {}


def test_pages_of_other_sites_ask_nothing(assisted: BrokerProcess) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    with browser(assisted) as http:
        for headers in (
            {"Origin": "http://evil.example"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Host": "evil.example"},
        ):
            assert post(http, ping, **headers).status_code == 403, headers
        text = http.post("/mcp", content=json.dumps(ping), headers={"Content-Type": "text/plain"})
        assert text.status_code == 415


def test_what_is_no_message_is_refused(assisted: BrokerProcess) -> None:
    headers = {"Content-Type": "application/json"}
    with browser(assisted) as http:
        for body, status in (
            (b"", 400),
            (b"[]", 400),
            (b"{}", 400),
            (b"[" * 50_000, 400),
            (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', 400),
            (b'{"jsonrpc":"2.0","method":"notifications/initialized"}', 202),
            (b'{"jsonrpc":"2.0","id":1,"result":{}}', 202),
            (b" " * (65 << 10), 413),
        ):
            assert http.post("/mcp", content=body, headers=headers).status_code == status, body[:40]
        for version, status in (("1999-01-01", 400), ("2025-03-26", 202)):
            content = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
            versioned = {**headers, "MCP-Protocol-Version": version}
            assert http.post("/mcp", content=content, headers=versioned).status_code == status
        for method in ("GET", "DELETE", "PUT"):
            assert http.request(method, "/mcp", headers=headers).status_code == 405
        assert call(http, "no-such")["error"]["code"] == -32602
        assert call(http, "topic")["error"]["code"] == -32602
        assert call(http, "topic", topic="x", download="jsonl")["error"]["code"] == -32602
        assert call(http, "topic", topic="x" * 2000)["error"]["code"] == -32602
        assert call(http, "topics", sort="nothing")["result"]["isError"]


def test_large_answers_say_so_and_hostile_text_stays_text(assisted: BrokerProcess) -> None:
    name = unique("hostile")
    make(assisted, name)
    produce(assisted, name, "\u202e<script>\x1b[2J".encode())
    produce(assisted, name, *(b"%05d" % each + b"y" * 3900 for each in range(120)))
    with browser(assisted) as http:
        told = call(http, "records", topic=name, limit=500)["result"]
        assert told["isError"]
        assert "ask for less" in told["content"][0]["text"]
        first = call(http, "records", topic=name, offset=0, limit=1)["result"]
        assert "\u202e<script>" in json.dumps(first, ensure_ascii=False)


def test_it_is_off_unless_it_is_asked_for(house: BrokerProcess) -> None:
    with browser(house) as http:
        assert post(http, {"jsonrpc": "2.0", "id": 1, "method": "ping"}).status_code == 404
