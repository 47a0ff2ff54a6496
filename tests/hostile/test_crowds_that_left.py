"""A crowd leaves with half of what it began to send: its memory is free at once, and others' large requests go on.

It is more than the budget has, so all of it waited for room, unread, when it left. Nothing ends by the 30 s that
clients may hold others up: no line in a log says so. On a busy machine the crowd alone takes longer than that to come
and go, and some of it is ended for it, as was promised to others; then no line may be about who is innocent.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.serving.unread import STUCK_S
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.hostile.client import Wire, produce
from tests.hostile.doors import DOORS, QUESTIONS, Door, Speech, half_of
from tests.process import BrokerProcess
from tests.proxy.processes import ProxyProcess
from tests.waiting import PATIENCE_S, until

BUDGET = 16 << 20
CROWD = 250
HALF_BYTES = 2_500_000
LARGE_BYTES = 900_000
WAITED = ("others wait for the memory", "clients hold more memory", "no room for what it sends")
MARGIN = 64 << 20
INNOCENT = re.compile(r"\(client id '[^']")
"""Of lines about clients that have asked something: none of the crowd has, and the proxy's own have names, too."""
pytestmark = pytest.mark.slow


class Place:
    """A broker, and a proxy before it."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        bounds = (f"memory.requests.bytes={BUDGET}", "listeners=PLAINTEXT://127.0.0.1:0")
        sets = [word for each in bounds for word in ("--set", each)]
        more = ("--pulsar", "127.0.0.1:0", "--http", "127.0.0.1:0", "--schema-registry", "127.0.0.1:0")
        self.broker = stack.enter_context(BrokerProcess(home / "data", *more, *sets, kafka=None))
        served = self.broker.served
        self.proxy = stack.enter_context(
            ProxyProcess(
                home,
                cast(Any, SimpleNamespace(served=served)),
                *bounds,
                "pulsar.listeners=pulsar://127.0.0.1:0",
                "http.listeners=http://127.0.0.1:0",
                f"broker.service.url=pulsar://{served['pulsar'][0]}",
                f"broker.web.service.url=http://{served['http'][0]}",
            )
        )

    def address(self, of_proxy: bool, served: str) -> tuple[str, int]:
        host, _, port = (self.proxy if of_proxy else self.broker).served[served][0].rpartition(":")
        return host, int(port)

    def waits(self) -> list[str]:
        """Return the lines of the logs that say that a client had to wait for memory, or was ended for it."""
        lines = [*self.proxy.log.read_text().splitlines(), *self.broker.log_lines()]
        return sorted(line for line in lines if any(words in line for words in WAITED))

    def descriptors(self) -> int:
        """Return how many files and sockets both have open."""
        return sum(len(os.listdir(f"/proc/{each.pid}/fd")) for each in (self.broker, self.proxy))

    def peak_bytes(self, of_proxy: bool, *, forget: bool = False) -> int:
        pid = (self.proxy if of_proxy else self.broker).pid
        if forget:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) << 10


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(tmp_path_factory.mktemp("crowd"), stack)


@pytest.fixture(autouse=True)
def all_gone(place: Place) -> Iterator[None]:
    """Wait until none of a crowd is left: what is ended of it later would count among the next one's."""
    before = place.descriptors()
    yield
    until(lambda: place.descriptors() < before + CROWD // 10)


def half_sent(address: tuple[str, int], door: Door) -> socket.socket:
    """Send half of a large request, as far as it is taken."""
    made = socket.create_connection(address, PATIENCE_S)
    if door.speech is Speech.PULSAR:
        made.sendall(QUESTIONS[Speech.PULSAR])
        assert made.recv(1 << 16)
    made.settimeout(0.03)
    with suppress(OSError):
        made.sendall(half_of(door.speech, HALF_BYTES))
    return made


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_an_innocent_clients_large_request_goes_on_when_a_crowd_has_left(place: Place, door: Door) -> None:
    before = {each: place.peak_bytes(each, forget=True) for each in (False, True)}
    began = time.monotonic()
    crowd = [half_sent(place.address(door.of_proxy, door.served), door) for _ in range(CROWD)]
    told = place.waits()
    for each in crowd:
        each.close()
    large = encode_batch([PlainRecord(None, bytes(LARGE_BYTES), [], 0, 0)])
    for of_proxy in (door.of_proxy, not door.of_proxy):
        with Wire(place.address(of_proxy, "kafka")) as innocent:
            topics = [MetadataRequestTopic(name="t")]
            innocent.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 12)
            for _ in range(3):
                assert produce(innocent, "t", large).error_code == 0
    waits = place.waits()
    assert not [line for line in waits if INNOCENT.search(line)]
    if time.monotonic() - began < STUCK_S:
        assert waits == told
    for of_proxy, peak in before.items():
        assert place.peak_bytes(of_proxy) - peak < BUDGET + MARGIN
