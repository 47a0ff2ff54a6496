"""Each API's oldest and newest version, cut at every byte and with a lie in every length, at a broker and a proxy.

Of long requests some bytes and lengths are drawn; ``MAGNETAR_CUTS=0`` takes all of them. Each client leaves
amid what it says. Nothing of it is an error in the log, nothing stays in memory, and an innocent client is
answered meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, cast

import pytest

from magnetar.kafka.handlers import ROUTES, Route
from magnetar.node.service import BrokerService
from magnetar.wire.kafka.messages import request_class
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.hostile.client import Wire, frame
from tests.hostile.conftest import Bystander
from tests.hostile.lengths import Lengths, lies, with_lie
from tests.hostile.test_fuzz import SPARED, Peer, ask_for_prey, broker, kafka, module_of, valid_request
from tests.process import BrokerProcess
from tests.proxy.processes import ProxyProcess
from tests.pulsar.inside import settled
from tests.waiting import PATIENCE_S, until_so

MOST = int(os.environ.get("MAGNETAR_CUTS", "24"))
"""Bytes and lengths of one request that are tried; 0 for all."""
SEED = int(os.environ.get("MAGNETAR_SEED", "37"))
BUDGET = 8 << 20
MARGIN = 64 << 20
OLD_AND_NEW = [
    (route, version)
    for route in ROUTES
    if route.name not in SPARED
    for version in sorted({max(route.first, request_class(route.api_key).MIN_VERSION), route.last})
]
T = TypeVar("T")


def some(of: Sequence[T], random: Random, most: int = MOST) -> Sequence[T]:
    """Return them all, or the first and the last two and some between, in order."""
    if not most or len(of) <= most:
        return of
    between = sorted(random.sample(range(2, len(of) - 2), most - 4))
    return [of[at] for at in (0, 1, *between, len(of) - 2, len(of) - 1)]


class Said(NamedTuple):
    """What a client says, and whether it lacks something, so that there can be no answer."""

    data: bytes
    is_cut: bool = False


def said(route: Route, version: int, most: int = MOST) -> Iterator[Said]:
    """Yield what hostile clients say: frames of which the end does not come, frames that are cut, and lies."""
    random = Random(f"{SEED}/{route.name}/{version}")
    whole = valid_request(route, version, random)
    for at in some(range(len(whole)), random, most):
        yield Said(struct.pack(">i", len(whole)) + whole[:at])
        yield Said(frame(whole[:at]), is_cut=True)
    for size in (-1, 0, 2**31 - 1, -(2**31), len(whole) + 1, len(whole) - 1):
        yield Said(
            struct.pack(">i", size) + whole, is_cut=size in (-1, 0, 2**31 - 1, -(2**31), len(whole) - 1)
        )
    for length in some(Lengths(module_of(route), whole).found, random, most):
        for lie in lies(length):
            yield Said(frame(with_lie(whole, length, lie)))


@pytest.mark.slow
@pytest.mark.parametrize(("route", "version"), OLD_AND_NEW, ids=lambda each: getattr(each, "name", each))
async def test_a_broker_is_not_surprised(
    house: BrokerService, caplog: pytest.LogCaptureFixture, route: Route, version: int
) -> None:
    caplog.set_level(logging.ERROR)
    handler = kafka(house)
    for number, (data, is_cut) in enumerate(said(route, version)):
        peer = Peer(handler, house)
        peer.say(data)
        await settled(3)
        assert not is_cut or (peer.ended and not peer.answers), (data.hex(), peer.answers)
        peer.conversation.leave()
        peer.conversation.hang_up()
        await settled(2)
        assert not caplog.records, (data.hex(), caplog.records[0].getMessage(), caplog.records[0].exc_text)
        if number % 100 == 0:
            await ask_for_prey(handler, house)
    await until_so(lambda: house.broker.serving.memory.held_bytes == 0)
    assert not caplog.records


@pytest.fixture
async def house(tmp_path: Path) -> Any:
    async with broker(tmp_path / "data") as service:
        await ask_for_prey(kafka(service), service)
        yield service


@pytest.mark.slow
def test_every_length_is_found() -> None:
    """The reader comes to the end of each request, of each version: otherwise it would lie at other places."""
    for route in ROUTES:
        for version in range(max(route.first, request_class(route.api_key).MIN_VERSION), route.last + 1):
            for seed in range(20):
                request = valid_request(route, version, Random(seed))
                assert Lengths(module_of(route), request).found


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_proxy_and_the_broker_behind_it_are_not_surprised(tmp_path: Path) -> None:
    bounds = (f"memory.requests.bytes={BUDGET}", "group.initial.rebalance.delay.ms=0")
    sets = [word for each in bounds for word in ("--set", each)]
    with (
        BrokerProcess(tmp_path / "data", *sets) as process,
        ProxyProcess(
            tmp_path, cast(Any, SimpleNamespace(served=process.served)), f"memory.requests.bytes={BUDGET}"
        ) as proxy,
    ):
        host, _, port = proxy.kafka.rpartition(":")
        address = (host, int(port))
        for each in (process.host_and_port, address):
            with Wire(each) as wire:
                assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 34
                assert wire.ask(SaslAuthenticateRequest(auth_bytes=b"x"), 2).error_code == 34
        bystander = Bystander(address)
        bystander.start()
        peaks = None
        for number, (route, version) in enumerate(OLD_AND_NEW * 2):
            if number == len(OLD_AND_NEW):  # all that is loaded when it is first asked for is there
                peaks = {each.pid: forgotten_peak(each.pid) for each in (process, proxy)}
            for each in said(route, version, min(MOST or 8, 8)):
                hear(address, each.data)
        bystander.leave()
        assert bystander.complaints == []
        assert bystander.rounds > 0
        assert peaks is not None
        for pid, before in peaks.items():
            assert peak(pid) - before < BUDGET + MARGIN
        lines = process.log_lines() + proxy.log.read_text().splitlines()
        assert not [line for line in lines if "Traceback" in line or "ERROR" in line]


def peak(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) << 10


def forgotten_peak(pid: int) -> int:
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak(pid)


def hear(address: tuple[str, int], data: bytes) -> None:
    """Say it, say that nothing more comes, and leave once the other side has, or with what it said first."""
    with socket.create_connection(address, PATIENCE_S) as client, contextlib.suppress(ConnectionError):
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        client.recv(1 << 16)
