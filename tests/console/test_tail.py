"""Records as they come: events of a real broker, and what ends them."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from magnetar.console.tail import EventStream
from tests.console.conftest import browser
from tests.console.test_login import bearer, furnished, grant, log_in  # noqa: F401
from tests.console.test_pages import BIDI, SCRIPT, Tags, facts, make
from tests.console.test_records import _Sends
from tests.process import BrokerProcess
from tests.security.signing import expiring, token
from tests.waiting import until

EVENTS = "/console/tail/events"


@pytest.fixture
def send(house: BrokerProcess) -> _Sends:
    return _Sends(house)


class Events:
    """What a browser hears."""

    def __init__(self, answer: httpx.Response) -> None:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        self._lines = answer.iter_lines()
        self.id = ""
        while next(self._lines):  # the first event: a comment, once it listens
            pass

    def next(self) -> tuple[str, Any]:
        """Return the next event's name, and what it says."""
        name, data = "", ""
        for line in self._lines:
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data = value
            elif field == "id":
                self.id = value
            elif not line and data:
                return name, json.loads(data)
        raise EOFError

    def records(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count:
            name, told = self.next()
            assert name == "", told
            found += told["records"]
        return found


@contextmanager
def listening(http: httpx.Client, headers: dict[str, str] | None = None, **query: str) -> Iterator[Events]:
    with http.stream("GET", EVENTS, params=query, headers=headers or {}) as answer:
        yield Events(answer)


def test_records_are_written_as_they_come(house: BrokerProcess, http: httpx.Client, send: _Sends) -> None:
    make(house, "tail", partitions=2)
    send("tail", (b"k", b"before"))
    with listening(http, topic="tail") as events, listening(http, topic="tail", text="2") as filtered:
        for number in range(3):
            send("tail", (b"k", f"after {number}"), partition=number % 2)
        assert sorted(each["value"] for each in events.records(3)) == ["after 0", "after 1", "after 2"]
        assert [each["value"] for each in filtered.records(1)] == ["after 2"]
        place = events.id
    send("tail", (SCRIPT, BIDI))
    with listening(http, {"Last-Event-ID": place}, topic="tail") as events:  # connected again
        (told,) = events.records(1)
        assert (told["key"], told["value"]) == (SCRIPT, "abc\\u202etxt.exe")
        assert told["link"].startswith("/console/record?topic=tail&partition=")


def test_the_page_has_one_script_of_its_own(house: BrokerProcess, http: httpx.Client, send: _Sends) -> None:
    make(house, "tail-page")
    send("tail-page", (SCRIPT, SCRIPT))
    answer = http.get("/console/tail", params={"topic": "tail-page", "key": SCRIPT, "refresh": "5"})
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    scripts = [found for tag, found in Tags(answer.text).tags if tag == "script"]
    assert scripts == [{"src": "/console/tail.js", "defer": None}]
    assert SCRIPT not in answer.text
    script = http.get("/console/tail.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert "innerHTML" not in script.text
    assert (
        "script-src"
        not in http.get("/console/topic", params={"topic": "tail-page"}).headers["content-security-policy"]
    )
    told = facts(http, "/console/tail", topic="tail-page", key=SCRIPT, order="newer", at="x")
    assert [each["key"]["text"] for each in told["records"]] == [SCRIPT]
    assert told["events"].startswith("/console/tail/events?topic=tail-page&key=")


def test_a_topic_that_is_deleted_ends_them(house: BrokerProcess, http: httpx.Client) -> None:
    make(house, "tail-gone")
    with listening(http, topic="tail-gone") as events:
        admin = AdminClient({"bootstrap.servers": house.address})
        admin.delete_topics(["tail-gone"])["tail-gone"].result(60)
        name, told = events.next()
        assert name == "end"
        assert "not found" in told["reason"]
        with pytest.raises(EOFError):
            events.next()
    for path in ("/console/tail", "/console/topic", "/console/records", EVENTS):
        assert http.get(path, params={"topic": "tail-gone"}).status_code == 404


def test_more_than_can_be_read_is_skipped(house: BrokerProcess, http: httpx.Client, send: _Sends) -> None:
    make(house, "tail-much")
    with listening(http, topic="tail-much") as events:
        send("tail-much", *((None, b"%d" % number) for number in range(40_000)))
        seen = skipped = 0
        last = ""
        while last != "39999":
            name, told = events.next()
            assert name == ""
            assert len(told["records"]) <= 100
            seen, skipped = seen + len(told["records"]), skipped + told["skipped"]
            last = told["records"][-1]["value"] if told["records"] else last
        assert (seen + skipped, skipped > 0) == (40_000, True)


def test_there_are_only_so_many(house: BrokerProcess, http: httpx.Client) -> None:
    make(house, "tail-crowd")
    host, _, port = house.served["http"][0].rpartition(":")
    ask = f"GET {EVENTS}?topic=tail-crowd HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    listeners = []
    for _ in range(8):
        listener = socket.create_connection((host, int(port)), 60)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.sendall(ask)
        assert b" 200 " in listener.recv(4096)
        listeners.append(listener)
    until(lambda: http.get(EVENTS, params={"topic": "tail-crowd"}).status_code == 503)
    for each in listeners:
        each.close()

    def has_room() -> bool:
        with http.stream("GET", EVENTS, params={"topic": "tail-crowd"}) as answer:
            return answer.status_code == 200

    until(has_room)


def test_a_grant_that_is_taken_away_ends_them(secured: BrokerProcess) -> None:
    with browser(secured) as http, browser(secured) as alice:
        assert log_in(alice, token=token("alice")).status_code == 303
        with listening(alice, topic="hers") as events:
            grant(http, "alice")
            try:
                name, told = events.next()
            finally:
                grant(http, "alice", "consume")
            assert (name, told["reason"]) == ("end", "alice may not consume on the topic")
        assert http.get(EVENTS, params={"topic": "hers"}).status_code in (303, 401)
        assert http.get(EVENTS, params={"topic": "others"}, headers=bearer("alice")).status_code == 403


def test_a_login_that_ends_ends_them(secured: BrokerProcess) -> None:
    with browser(secured) as short:
        until(lambda: _listens(short))


def _listens(short: httpx.Client) -> bool:
    """True once it was heard that a login ended; on a slow machine it may end before anything was heard."""
    assert log_in(short, token=expiring(3, "root")).status_code == 303
    try:
        with listening(short, topic="hers") as events:
            name, told = events.next()
    except AssertionError:
        return False
    assert name == "end"
    assert told["reason"]
    return True


async def test_a_reader_that_never_reads_is_waited_for() -> None:
    """Nothing is read for it meanwhile, and what it had is free again when it has left."""
    made, closed, left = 0, False, asyncio.Event()

    async def forever() -> AsyncGenerator[str]:
        nonlocal made, closed
        try:
            while True:
                made += 1
                yield "data: x\n\n"
        finally:
            closed = True

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def receive() -> Any:
        await left.wait()
        return {"type": "http.disconnect"}

    answering = asyncio.create_task(EventStream(forever())({"type": "http"}, receive, send))
    for _ in range(100):
        await asyncio.sleep(0)
    assert (made, closed) == (1, False)
    left.set()
    await answering
    assert (made, closed) == (1, True)


@pytest.mark.slow
def test_a_broker_ends_though_pages_listen(tmp_path: Any) -> None:
    with BrokerProcess(tmp_path / "data", "--http", "127.0.0.1:0") as process, browser(process) as http:
        make(process, "listened-to")
        with listening(http, topic="listened-to"):
            began = time.monotonic()
            process.end()
        assert time.monotonic() - began < 60
