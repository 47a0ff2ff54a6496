"""Requests of the admin REST and of the schema registry, damaged: no answer blames the broker, and nothing piles up.

``MAGNETAR_DAMAGED_REQUESTS`` says how many, ``MAGNETAR_SEED`` which.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from magnetar.admin.handler import AdminHandler
from magnetar.pulsar.rest.routes import ROUTES
from magnetar.schema_registry.endpoints import ROUTES as SUBJECTS
from tests.security.matrix.house import ASKERS, House, Transport

COUNT = int(os.environ.get("MAGNETAR_DAMAGED_REQUESTS", "600"))
SEED = int(os.environ.get("MAGNETAR_SEED", "20261123"))
MOST_CUTS = int(os.environ.get("MAGNETAR_CUTS", "24"))
_PER_HOUSE = 500
_MAX_GROWTH_BYTES = 48 << 20
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_VALUE = re.compile(r"\{\w+(?::\w+)?\}")
_WORDS = (
    b"red",
    b"default",
    b"ruby",
    b"readers",
    b"ruby-value",
    b"1",
    b"0",
    b"-1",
    b"latest",
    b"9" * 40,
    b"1e400",
    b"..",
    b"%2f",
    b"%00",
    b"%c3%28",
    b"a" * 300,
    b"0x0_0x1",
    b"log.retention.ms",
    b"standalone",
    b"garnet-of-red",
    b"%f0%9f%92%a9",
)
_BODIES = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b"1",
    b"-1",
    b"true",
    b'"x"',
    b"[" * 3000,
    b'{"a":' * 500,
    b"1" * 5000,
    b"NaN",
    b"1e999",
    b'{"schema":"{\\"type\\":\\"string\\"}"}',
    b'{"schema":"\\"string\\"","references":[{"name":".","subject":"a"}]}',
    b'{"type":"AVRO","schema":"{}"}',
    b'{"retentionTimeInMinutes":1e30,"retentionSizeInMB":-5}',
    b"\xff\xfe",
    b'{"a":"\\ud800"}',
    b'{"ledgerId":99999999999999999999,"entryId":-7}',
    b'{"adminRoles":[1],"allowedClusters":{}}',
    b'["produce","nonsense"]',
)

_QUERIES = (b"version", b"offset", b"limit", b"force", b"deleted")
_METHODS = (b"PATCH", b"HEAD", b"OPTIONS", b"get", b"X" * 100)
_HEADERS = (b"expect: 100-continue", b"connection: close", b"content-length: 7", b"x: " + b"y" * 9000)


def admin_of(house: House) -> AdminHandler:
    """Return the admin REST of a house, without the socket in a data directory, which is not there."""
    admin = AdminHandler()
    admin._broker, admin._settings = house.broker, house.broker.settings
    return admin


def request(rng: random.Random, routes: Any, proof: bytes) -> bytes:
    """Return a request that a path's client might send, or one quite like it."""
    route = rng.choice(routes)
    path = _VALUE.sub(lambda _: rng.choice(_WORDS).decode(), getattr(route, "full_path", route.path)).encode()
    if rng.random() < 0.2:
        path += (
            b"?"
            + rng.choice((b"version", b"offset", b"limit", b"force", b"deleted"))
            + b"="
            + rng.choice(_WORDS)
        )
    method = (
        route.method.encode()
        if rng.random() < 0.9
        else rng.choice((b"PATCH", b"HEAD", b"OPTIONS", b"get", b"X" * 100))
    )
    body = rng.choice(_BODIES)
    head = [method + b" " + path + b" HTTP/1.1", b"host: here", b"authorization: Bearer " + proof]
    if rng.random() < 0.1:
        head.append(b"transfer-encoding: chunked")
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    else:
        head.append(b"content-length: %d" % len(body))
    if rng.random() < 0.1:
        head.append(
            rng.choice(
                (b"expect: 100-continue", b"connection: close", b"content-length: 7", b"x: " + b"y" * 9000)
            )
        )
    return b"\r\n".join([*head, b"", body])


def damaged(rng: random.Random, content: bytes) -> bytes:
    """Return it with a few bytes changed, lost, doubled or put in; or as it is."""
    data = bytearray(content)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 8))):
        at = rng.randrange(len(data) or 1)
        kind = rng.randrange(4)
        if kind == 0 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at : at + rng.randrange(1, 20)]
        elif kind == 2:
            data[at:at] = data[at : at + rng.randrange(1, 40)]
        else:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
    return bytes(data)


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.timeout(0)
async def test_no_answer_blames_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(SEED)
    proof = next(asker.proof for asker in ASKERS if asker.role == "root" and asker.shows == "token").encode()
    statuses: dict[int, int] = {}
    resident = 0
    caplog.set_level(logging.ERROR)
    for start in range(0, COUNT, _PER_HOUSE):
        house = await House(tenants=False).start()
        web = replace(house.listener, name="HTTP")
        admin = admin_of(house)
        for number in range(start, min(start + _PER_HOUSE, COUNT)):
            handler, routes = ((admin, ROUTES), (house.registry, SUBJECTS))[rng.random() < 0.25]
            sent = damaged(rng, request(rng, routes, proof))
            for status in await _answered(handler, web, sent, rng):
                assert status < 500 or status == 501, (number, status, sent)
                statuses[status] = statuses.get(status, 0) + 1
            told = [record for record in caplog.records if record.levelno >= logging.ERROR]
            assert not told, (number, sent, told[0].getMessage(), told[0].exc_text)
        assert house.broker.serving.memory.held_bytes == 0
        assert house.broker.serving.connections.count == 0
        if admin._web is not None:
            admin._web.close()  # its timer would keep this house's broker
        await house.close()
        if start == 10 * _PER_HOUSE:
            resident = resident_bytes()
    print(f"\n{COUNT} requests, answers by status: {dict(sorted(statuses.items()))}")
    if resident:
        growth = resident_bytes() - resident
        print(f"resident size grew by {growth >> 10} KB over all but the first of them")
        assert growth < _MAX_GROWTH_BYTES
    assert len(statuses) > 5


_LENGTHS = (
    b"-1",
    b"0",
    b"+5",
    b"5, 5",
    b"5 5",
    b"0x5",
    b"",
    b"9" * 30,
    b"2147483648",
    b"18446744073709551616",
)
_BODY = b'{"schema":"{\\"type\\":\\"string\\"}","retentionTimeInMinutes":5,"retentionSizeInMB":-1}'


def cut_and_lied(rng: random.Random, route: Any, proof: bytes) -> Iterator[bytes]:
    """Yield a route's request cut at some bytes or all of them, and with lengths that are not its body's."""
    path = _VALUE.sub(lambda _: rng.choice(_WORDS).decode(), getattr(route, "full_path", route.path)).encode()
    head = b"\r\n".join(
        (
            route.method.encode() + b" " + path + b" HTTP/1.1",
            b"host: here",
            b"authorization: Bearer " + proof,
            b"content-type: application/json",
        )
    )
    whole = head + b"\r\ncontent-length: %d\r\n\r\n" % len(_BODY) + _BODY
    for at in range(len(whole)):
        if not MOST_CUTS or at < 2 or at > len(whole) - 2 or rng.random() < MOST_CUTS / len(whole):
            yield whole[:at]
    for length in (*_LENGTHS, b"%d" % (len(_BODY) + 1), b"%d" % (len(_BODY) - 1)):
        yield head + b"\r\ncontent-length: " + length + b"\r\n\r\n" + _BODY
    for size in (
        b"-1",
        b"0",
        b"",
        b"7fffffff",
        b"f" * 30,
        b"%x" % (len(_BODY) + 1),
        b"%x" % (len(_BODY) - 1),
    ):
        chunk = size + b"\r\n" + _BODY + b"\r\n0\r\n\r\n"
        yield head + b"\r\ntransfer-encoding: chunked\r\n\r\n" + chunk


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", ["admin REST", "schema registry"])
async def test_requests_that_are_cut_and_lengths_that_lie(
    caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.ERROR)
    rng = random.Random(SEED)
    proof = next(asker.proof for asker in ASKERS if asker.role == "root" and asker.shows == "token").encode()
    house = await House(tenants=False).start()
    web = replace(house.listener, name="HTTP")
    admin = admin_of(house)
    handler, routes = {"admin REST": (admin, ROUTES), "schema registry": (house.registry, SUBJECTS)}[name]
    statuses: set[int] = set()
    for route in routes:
        for sent in cut_and_lied(rng, route, proof):
            found = await _answered(handler, web, sent, rng)
            statuses.update(found)
            assert all(status < 500 or status == 501 for status in found), (found, sent)
            told = [record for record in caplog.records if record.levelno >= logging.ERROR]
            assert not told, (sent, told[0].getMessage(), told[0].exc_text)
    assert house.broker.serving.memory.held_bytes == 0
    assert house.broker.serving.connections.count == 0
    assert {200, 400, 404} <= statuses or {204, 400, 404} <= statuses, statuses
    if admin._web is not None:
        admin._web.close()
    await house.close()


async def _answered(handler: Any, listener: Any, sent: bytes, rng: random.Random) -> list[int]:
    """Return the statuses of what came back; then hang up."""
    protocol = handler.new_connection(listener)
    transport = Transport(protocol)
    protocol.connection_made(transport)
    protocol = protocol.connection
    cut = rng.randrange(len(sent) + 1)
    for part in (sent[:cut], sent[cut:]):
        if part and not transport.closed:
            protocol.data_received(part)
            await asyncio.sleep(0)
    for turn in range(3000):
        if transport.closed or protocol.cycle is None or protocol.cycle.response_complete:
            break
        if turn > 50 and protocol.cycle.more_body:
            break  # it waits for the rest of a body that does not come
        await asyncio.sleep(0 if turn < 60 else 0.001)
    found = [int(status) for status in _STATUS.findall(bytes(transport.said))]
    transport.close()
    for _ in range(6):
        await asyncio.sleep(0)
    return found
