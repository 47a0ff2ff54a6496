"""All doors of brokers and the proxy, and all bounds that clients meet there: one table, attacked cell by cell.

A cell is a door, a bound, and whether the client has said who it is. `test_doors` attacks each; ``docs/bounds.md`` is
written from this module by ``python -m tests.hostile.doors``.
"""

from __future__ import annotations

import json
import struct
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand

PAGE = Path(__file__).parents[2] / "docs" / "bounds.md"
MEASURED = Path(__file__).with_name("doors.json")
"""By cell: for how many ms the loop was busy at a stretch at most, and how many MB more there were."""
HALF_BYTES = 490_000
"""Of a request that never ends; strangers of Kafka's protocol may send frames of half a megabyte."""


class Speech(Enum):
    """What is spoken at a door."""

    KAFKA = "kafka"
    PULSAR = "pulsar"
    HTTP = "http"


class Door(NamedTuple):
    name: str
    speech: Speech
    of_proxy: bool
    served: str
    """The name that the line with ``ready`` gives it."""


class Bound(NamedTuple):
    """What clients may not have without an end; ``by`` says, for each way to speak, what ends it."""

    name: str
    what: str
    by: dict[Speech, str]


class Side(Enum):
    """Whether the client is known."""

    BEFORE = "before login"
    AFTER = "after login"


class Cell(NamedTuple):
    door: Door
    bound: Bound
    side: Side

    def __str__(self) -> str:
        return f"{self.door.name}, {self.bound.name}, {self.side.value}"


K, P, H = Speech.KAFKA, Speech.PULSAR, Speech.HTTP
DOORS = (
    Door("Kafka", K, False, "kafka"),
    Door("Pulsar", P, False, "pulsar"),
    Door("admin REST", H, False, "http"),
    Door("schema registry", H, False, "schema-registry"),
    Door("Kafka by the proxy", K, True, "kafka"),
    Door("Pulsar by the proxy", P, True, "pulsar"),
    Door("HTTP by the proxy", H, True, "http"),
)
BOUNDS = (
    Bound(
        "frames",
        "a request that says it is 2 GB large",
        {
            K: "`socket.request.max.bytes`, half a megabyte before login",
            P: "`maxMessageSize` and 10 KB, 32 KB before login",
            H: "8 MB of a body, 64 KB of a head",
        },
    ),
    Bound(
        "items",
        "more rows, ids or headers than there can be",
        {
            K: "rows that fit the frame, 250,000",
            P: "a command's own bounds",
            H: "64 KB of a head; chunks of 1 KB on the average",
        },
    ),
    Bound(
        "silence",
        "a connection on which nothing is said",
        {
            K: "`connections.max.idle.ms`",
            P: "`keep.alive.interval.ms`",
            H: "15 s, or `connections.max.idle.ms`",
        },
    ),
    Bound(
        "time",
        "a request that begins and does not end",
        {
            K: "`connections.max.idle.ms`",
            P: "`keep.alive.interval.ms`",
            H: "15 s for a head, 30 s and 4 KB/s for a body",
        },
    ),
    Bound(
        "idleness",
        "a connection on which nothing more is asked",
        {
            K: "`connections.max.idle.ms`",
            P: "`keep.alive.interval.ms`",
            H: "75 s, or `connections.max.idle.ms`",
        },
    ),
    Bound(
        "descriptors",
        "more connections than one address may have",
        dict.fromkeys(Speech, "`max.connections`, `max.connections.per.ip`"),
    ),
    Bound(
        "memory",
        "200 halves of requests of half a megabyte",
        dict.fromkeys(Speech, "`memory.requests.bytes`; an eighth of it for all strangers"),
    ),
    Bound(
        "answers",
        "questions of which no answer is read",
        {
            K: "`queued.max.requests`, `memory.requests.bytes`",
            P: "`memory.requests.bytes`",
            H: "one request at a time",
        },
    ),
)
CELLS = tuple(Cell(door, bound, side) for door in DOORS for bound in BOUNDS for side in Side)


def _kafka(key: int, version: int, body: bytes = b"") -> bytes:
    content = struct.pack(">hhih", key, version, 1, -1) + body
    return struct.pack(">i", len(content)) + content


def _pulsar(command: BaseCommand) -> bytes:
    body = command.SerializeToString()
    return struct.pack(">II", 4 + len(body), len(body)) + body


def _connect() -> bytes:
    command = BaseCommand(type=BaseCommand.CONNECT)
    command.connect.client_version = "stranger"
    command.connect.protocol_version = 21
    return _pulsar(command)


def _many_ids() -> bytes:
    command = BaseCommand(type=BaseCommand.ACK)
    command.ack.consumer_id, command.ack.ack_type = 1, 0
    for number in range(200_000):
        command.ack.message_id.add(ledgerId=number, entryId=1)
    return _pulsar(command)


_HOST = b"host: localhost\r\n"
QUESTIONS = {
    K: _kafka(18, 0),
    P: _connect(),
    H: b"GET /health HTTP/1.1\r\n" + _HOST + b"\r\n",
}
"""What each door answers to anybody."""
ENDS = {K: None, P: None, H: b"\r\n\r\n"}
FRAMES = {
    K: struct.pack(">i", 2**31 - 1) + bytes(100),
    P: struct.pack(">II", 2**31 - 1, 2**31 - 5) + bytes(100),
    H: b"POST /subjects/s/versions HTTP/1.1\r\n" + _HOST + b"content-length: 2147483647\r\n\r\n" + bytes(100),
}
ITEMS = {
    K: _kafka(3, 1, struct.pack(">i", 2**31 - 1) + bytes(10)),  # of Metadata: so many names, it says
    P: _many_ids(),
    H: b"GET /health HTTP/1.1\r\n" + _HOST + b"a: b\r\n" * 100_000 + b"\r\n",
}
BEGINNINGS = {
    K: struct.pack(">i", 1000) + bytes(10),
    P: struct.pack(">II", 1000, 990) + bytes(10),
    H: b"GET /health HTTP/1.1\r\n" + _HOST,
}


def half_of(speech: Speech, nbytes: int) -> bytes:
    """Return so much of a request that never ends."""
    whole = nbytes + 1000
    match speech:
        case Speech.KAFKA:
            return struct.pack(">i", whole) + bytes(nbytes)
        case Speech.PULSAR:
            return struct.pack(">II", whole, nbytes) + bytes(nbytes)
    head = b"POST /subjects/s/versions HTTP/1.1\r\n" + _HOST + b"content-length: 8000000\r\n\r\n"
    return head + bytes(nbytes)


HALVES = {each: half_of(each, HALF_BYTES) for each in Speech}


def _measured(door: Door, bound: Bound) -> str:
    known = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    found = [known[name] for side in Side if (name := str(Cell(door, bound, side))) in known]
    return f"{max(ms for ms, _ in found)} ms, {max(mb for _, mb in found)} MB" if found else ""


def page() -> str:
    """Return the page."""
    rows = [
        "# Bounds",
        "",
        "What one client may have of a broker or a proxy, whatever it sends: each door has each bound, before a client",
        "has said who it is and after. This page is made by `python -m tests.hostile.doors` from the table that the",
        f"tests attack cell by cell: {len(DOORS)} doors, {len(BOUNDS)} bounds, before and after login: "
        f"**{len(CELLS)} cells**.",
        "In each the attacker's connection ends or is answered, another client beside it is answered, and the process",
        "takes no more than its budget (`memory.requests.bytes`) and 64 MB beside it. How long others wait while",
        "single requests are attacked is on the page of [attacks](attacks.md) as well.",
        "",
        "The tests' brokers have small bounds (8 MB for requests, 2 s of idleness) and ask for no credentials: after",
        "login means after the greeting of a protocol that has one. In the cells of descriptors nobody is idle for too",
        "long: the log says of each connection beyond the bound that it is too many, and another address is served. A",
        "broker counts Pulsar's clients behind a proxy as of the proxy's address: its `max.connections.per.ip` must",
        "have room for all of them.",
        "",
        "| door | " + " | ".join(each.name for each in BOUNDS) + " |",
        "|---|" + "---|" * len(BOUNDS),
        *(
            f"| {door.name} | " + " | ".join(bound.by[door.speech] for bound in BOUNDS) + " |"
            for door in DOORS
        ),
        "",
        "| bound | attacked by |",
        "|---|---|",
        *(f"| {each.name} | {each.what} |" for each in BOUNDS),
        "",
        "The worse of before and after login: for how many ms the loop was busy at a stretch at most, of the",
        "processor's time (the bar is 50), and by how many MB the process grew (8 and 64 may be). The loop is looked",
        "at from inside, each millisecond (`tests/hostile/turns.py`). Renewed by",
        "`pytest tests/hostile/test_doors.py --rewrite`.",
        "",
        "| door | " + " | ".join(each.name for each in BOUNDS) + " |",
        "|---|" + "---|" * len(BOUNDS),
        *(
            f"| {door.name} | " + " | ".join(_measured(door, bound) for bound in BOUNDS) + " |"
            for door in DOORS
        ),
    ]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
