"""Records as they come: a page with a script that listens, and the events that it listens to (``text/event-stream``).

What a client may have of it is bounded: the number of them, and the records of one look; of a topic that writes more,
records are skipped, which is shown. A reader that does not take its events is waited for, and nothing is read
meanwhile; its connection ends as that of any answer that is not taken (`magnetar.web.http.UNTAKEN_S`). Login and
grants are checked at each look.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import Any, NamedTuple

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from magnetar.auth import Right
from magnetar.base.printable import printable_lines
from magnetar.cluster.ownership import NotOwned
from magnetar.console import reading, records
from magnetar.console.page import Command, ConsolePage, Facts, kafka_tool, magnetar, pulsar_admin, topic_of
from magnetar.console.reading import Effort, FoundRecord, readings_of
from magnetar.console.rendering import as_time, url
from magnetar.console.written import WrittenSchemas, schemas_of
from magnetar.pulsar.rest.refusals import refusal_of
from magnetar.pulsar.rest.request import AdminRequest, RestError
from magnetar.topics.topic import Topic

NAME = "tail/events"
MOST_TAILS = 64
MOST_OF_CLIENT = 8
"""Of one role from one address."""
_LOOK_S = 0.5
_LASTS_S = 600.0
"""Then the browser asks again, and goes on where it was."""
_QUIET_S = 10.0
"""After that a comment is sent, so that a client that left is noticed."""
_MOST_ROWS, _MOST_BEHIND = 100, 10_000
_READ_BYTES, _READ_S = 1 << 20, 0.5
_MOST_LETTERS = 500
_SHOWN_AT_FIRST = "20"
_PLACES = ("at", "order", "offset", "time", "until", "download")

Ask = Callable[[], Awaitable[AdminRequest]]
"""Checks again who asks; raises ``AuthenticationFailed``."""


class Tails:
    """Those of a broker."""

    def __init__(self) -> None:
        self.by_client: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def one_more(self, client: tuple[str, str]) -> Iterator[None]:
        """Count one while it lasts; raise ``RestError`` (503) for one too many."""
        if self.by_client.total() >= MOST_TAILS or self.by_client[client] >= MOST_OF_CLIENT:
            raise RestError(503, "too many pages follow records at the moment")
        self.by_client[client] += 1
        try:
            yield
        finally:
            self.by_client[client] -= 1
            self.by_client += Counter()  # forgets those that have none any more


class EventStream(StreamingResponse):
    """Ends what makes its events when the client has left."""

    def __init__(self, events: AsyncGenerator[str]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self.stream_response(send))
        left = asyncio.create_task(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait((sending, left), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            left.cancel()
            await asyncio.gather(sending, left, return_exceptions=True)
            await self._events.aclose()


async def events(ask_again: Ask, host: str) -> Response:
    """Return the events of the records that come from now on, as the query of a page of records filters them.

    Where a client was when its connection ended it says by ``Last-Event-ID``. Raises what a page of records raises.
    """
    ask = await ask_again()
    topic = topic_of(ask, Right.consume)
    tails = _tails_of(ask)
    client = (ask.principal.role, host)
    with tails.one_more(client):
        pass  # refused before anything is sent
    return EventStream(_counted(tails, client, _Tail(ask_again, ask, topic, await schemas_of(ask, topic))))


def _tails_of(ask: AdminRequest) -> Tails:
    found = ask.services.broker.offers.find(Tails)
    if found is None:
        found = Tails()
        ask.services.broker.offers.add(found)
    return found


async def _counted(tails: Tails, client: tuple[str, str], tail: _Tail) -> AsyncGenerator[str]:
    try:
        with tails.one_more(client):
            async for each in tail.events():
                yield each
    except Exception as error:
        _, reason = refusal_of(error, f"GET /console/{NAME}")
        yield _event({"reason": printable_lines(reason)}, "end")


class _Look(NamedTuple):
    """The outcome of one look at all partitions."""

    rows: list[FoundRecord]
    skipped: int


class _Tail:
    """One client's."""

    def __init__(self, ask_again: Ask, ask: AdminRequest, topic: Topic, schemas: WrittenSchemas) -> None:
        self._ask_again = ask_again
        self._topic = topic
        self._asked = records.asked_of(_without_place(ask), topic, _MOST_ROWS, schemas)
        last = ask.headers.get("last-event-id", "")
        self._at = records.places_of(last) if last else {}

    async def events(self) -> AsyncGenerator[str]:
        """Yield what is to be sent, until the client's time is up."""
        until_s, heard_s = monotonic() + _LASTS_S, monotonic()
        yield f"retry: 1000\n: {self._topic.topic_id.hex()}\n\n"
        while monotonic() < until_s:
            ask = await self._ask_again()
            if topic_of(ask, Right.consume).topic_id != self._topic.topic_id:
                raise RestError(404, f"{self._topic.kafka_name} was deleted; another one has its name")
            look = await self._look(ask)
            if look.rows or look.skipped:
                yield await self._told(ask, look)
                heard_s = monotonic()
            elif monotonic() - heard_s > _QUIET_S:
                yield ": quiet\n\n"
                heard_s = monotonic()
            await asyncio.sleep(_LOOK_S)

    async def _look(self, ask: AdminRequest) -> _Look:
        rows: list[FoundRecord] = []
        skipped, elsewhere = 0, []
        for index in self._asked.partitions:
            try:
                log = (await ask.services.broker.logs.open_logs.open(self._topic, index)).log
            except NotOwned as error:
                elsewhere.append(error)
                continue
            at = self._at.setdefault(index, log.high_watermark)
            if log.high_watermark - at > _MOST_BEHIND:
                skipped += log.high_watermark - _MOST_ROWS - at
                at = log.high_watermark - _MOST_ROWS
            if at < log.high_watermark:
                async with readings_of(ask):
                    effort = Effort(_READ_BYTES, _READ_S)
                    found = await reading.newer(log, index, at, _MOST_ROWS, self._asked.sought, effort)
                rows += found.records
                at = found.at
            self._at[index] = at
        if elsewhere and len(elsewhere) == len(self._asked.partitions):
            raise elsewhere[0]
        return _Look(rows, skipped)

    async def _told(self, ask: AdminRequest, look: _Look) -> str:
        rows = sorted(look.rows, key=lambda row: (row.timestamp, row.partition, row.offset))
        left_out = max(len(rows) - _MOST_ROWS, 0)
        schemas = await schemas_of(ask, self._topic)
        told = await records.shown_rows(rows[left_out:], schemas, self._asked.wanted, _MOST_LETTERS)
        place = ".".join(f"{index}-{at}" for index, at in self._at.items())
        name = self._topic.kafka_name
        content = {"skipped": look.skipped + left_out, "records": [_brief(name, each) for each in told]}
        return _event(content, place=place)


def _brief(topic: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return what the script writes into a row: made printable here, so that the script only writes text."""
    place = {"topic": topic, "partition": row["partition"], "offset": row["offset"]}
    return {
        "partition": row["partition"],
        "offset": row["offset"],
        "link": url("record", place),
        "time": as_time(row["timestamp"]),
        "state": row["state"],
        "key": printable_lines(row["key"]["text"]),
        "value": printable_lines(row["value"]["text"]),
        "format": row["value"]["format"],
    }


def _event(content: Any, name: str = "", place: str = "") -> str:
    lines = [f"event: {name}"] if name else []
    lines += [f"id: {place}"] if place else []
    return "\n".join((*lines, f"data: {json.dumps(content)}", "", ""))


def _without_place(ask: AdminRequest) -> AdminRequest:
    query = {name: value for name, value in ask.query.items() if name not in _PLACES}
    return replace(ask, query=query)


async def facts(ask: AdminRequest) -> Facts | Response:
    """Return the newest records, below which the page writes those that come. Query: as that of records."""
    plain = _without_place(ask)
    found = await records.facts(replace(plain, query={**plain.query, "limit": _SHOWN_AT_FIRST}))
    assert not isinstance(found, Response)
    query = {name: value for name, value in plain.query.items() if name != "refresh"}
    return found | {"events": url(NAME, query)}


def commands(ask: AdminRequest, told: Facts) -> list[Command]:
    """Return what says the same on a command line."""
    return [
        magnetar("consume", told["topic"], "-o", "end"),
        kafka_tool(ask, "kafka-console-consumer", "--topic", told["topic"]),
        pulsar_admin(ask, "topics", "last-message-id", told["full"]),
    ]


PAGE = ConsolePage("tail", "Live", facts, commands, in_menu=False, of_topic=True, has_script=True)
