"""Each cell of the table of doors and bounds, attacked on loopback: it ends, others are answered, memory is bounded."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.hostile.doors import (
    BEGINNINGS,
    CELLS,
    FRAMES,
    HALVES,
    ITEMS,
    MEASURED,
    PAGE,
    QUESTIONS,
    Cell,
    Door,
    Side,
    Speech,
    page,
)
from tests.hostile.turns import LongestTurn
from tests.process import BrokerProcess
from tests.proxy.processes import ProxyProcess
from tests.security.signing import SECURED
from tests.waiting import PATIENCE_S, until

BUDGET = 8 << 20
MARGIN = 64 << 20
CROWD = 200
MOST = 400
_ASKED = 20_000
_BOUNDS = (
    f"memory.requests.bytes={BUDGET}",
    f"max.connections.per.ip={MOST}",
    "connections.max.idle.ms=2000",
    "keep.alive.interval.ms=2000",
)
pytestmark = pytest.mark.slow
_TIMED = ("silence", "time", "idleness")


class Innocent(threading.Thread):
    """Asks at a door again and again, from an address of its own."""

    def __init__(self, house: Doors, door: Door) -> None:
        super().__init__(daemon=True)
        self.answers = 0
        self._place, self._speech = house.place(door), door.speech
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(0.005):
            with (
                suppress(OSError),
                socket.create_connection(self._place, PATIENCE_S, ("127.0.0.2", 0)) as asking,
            ):
                asking.sendall(QUESTIONS[self._speech])
                self.answers += asking.recv(1 << 16) != b""

    def __enter__(self) -> Innocent:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()


class WatchedProxy(ProxyProcess):
    """A proxy that says for how long its loop was busy at a stretch."""

    def __init__(self, home: Path, *more: Any) -> None:
        self.turns = LongestTurn(home / "proxy.turns")
        self._program = ("-m", "tests.hostile.turns", str(self.turns.path))
        super().__init__(home, *more)


class Doors:
    """A broker and a proxy before it; whoever comes is known, or has to say who it is."""

    def __init__(self, home: Path, side: Side, stack: ExitStack, bounds: tuple[str, ...] = _BOUNDS) -> None:
        secured = side is Side.BEFORE
        kafka = "SASL_PLAINTEXT://127.0.0.1:0" if secured else "PLAINTEXT://127.0.0.1:0"
        settings = (*bounds, *(SECURED if secured else ()))
        home.mkdir()
        sets = [word for each in (*settings, f"listeners={kafka}") for word in ("--set", each)]
        more = ("--pulsar", "127.0.0.1:0", "--http", "127.0.0.1:0", "--schema-registry", "127.0.0.1:0")
        self.turns = LongestTurn(home / "broker.turns")
        watched = (sys.executable, "-m", "tests.hostile.turns", str(self.turns.path))
        self.broker = stack.enter_context(
            BrokerProcess(home / "data", *more, *sets, kafka=None, program=watched)
        )
        served = self.broker.served
        self.proxy = stack.enter_context(
            WatchedProxy(
                home,
                cast(Any, SimpleNamespace(served=served)),
                *bounds,
                f"listeners={kafka}",
                "pulsar.listeners=pulsar://127.0.0.1:0",
                "http.listeners=http://127.0.0.1:0",
                f"broker.service.url=pulsar://{served['pulsar'][0]}",
                f"broker.web.service.url=http://{served['http'][0]}",
            )
        )
        self.side = side
        self.waiting: dict[str, socket.socket] = {}
        for cell in (
            CELLS if bounds is _BOUNDS else ()
        ):  # all at once: each of these takes the seconds that the bound has
            if cell.side is side and cell.bound.name in _TIMED:
                self.waiting[str(cell)] = self.connected(cell.door)
                self.waiting[str(cell)].sendall(_said(cell))

    def process(self, door: Door) -> BrokerProcess | ProxyProcess:
        return self.proxy if door.of_proxy else self.broker

    def refused(self, door: Door) -> int:
        """Return how many connections the log says were too many.

        Behind a proxy each of Pulsar's connections is one of the broker's as well, which has the same bound.
        """
        lines = self.broker.log_lines() + self.proxy.log.read_text().splitlines() * door.of_proxy
        return sum("too many connections" in line for line in lines)

    def connected(self, door: Door) -> socket.socket:
        served = self.process(door).served[door.served][0]
        host, _, port = served.rpartition(":")
        made = socket.create_connection((host, int(port)), PATIENCE_S)
        if self.side is Side.AFTER and door.speech is Speech.PULSAR:
            made.sendall(QUESTIONS[Speech.PULSAR])
            assert made.recv(1 << 16)
        return made

    def answers(self, door: Door, address: str = "127.0.0.1") -> None:
        """Have another client, of this address, be answered."""

        def is_so() -> bool:
            with (
                suppress(ConnectionError),
                socket.create_connection(self.place(door), PATIENCE_S, (address, 0)) as asking,
            ):
                asking.sendall(QUESTIONS[door.speech])
                return asking.recv(1 << 16) != b""
            return False

        until(is_so)

    def longest(self, door: Door) -> LongestTurn:
        return self.proxy.turns if door.of_proxy else self.turns

    def place(self, door: Door) -> tuple[str, int]:
        host, _, port = (self.proxy if door.of_proxy else self.broker).served[door.served][0].rpartition(":")
        return host, int(port)

    def peak_bytes(self, door: Door) -> int:
        pid = (self.proxy if door.of_proxy else self.broker).pid
        return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) << 10

    def forget_peak(self, door: Door) -> int:
        pid = (self.proxy if door.of_proxy else self.broker).pid
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        return self.peak_bytes(door)


def _said(cell: Cell) -> bytes:
    if cell.bound.name == "silence":
        return b""
    return (BEGINNINGS if cell.bound.name == "time" else QUESTIONS)[cell.door.speech]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Side, Doors]]:
    with ExitStack() as stack:
        home = tmp_path_factory.mktemp("doors")
        yield {side: Doors(home / side.name.lower(), side, stack) for side in Side}


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Side, Doors]]:
    """Doors at which nobody is let go for being idle, as far as Kafka's and Pulsar's protocols have a say in it."""
    bounds = (*_BOUNDS[:2], "connections.max.idle.ms=600000", "keep.alive.interval.ms=600000")
    with ExitStack() as stack:
        home = tmp_path_factory.mktemp("patient")
        yield {side: Doors(home / side.name.lower(), side, stack, bounds) for side in Side}


@pytest.fixture(scope="module")
def measured(request: pytest.FixtureRequest) -> Iterator[dict[str, tuple[int, int]]]:
    """What was measured of each cell: ms and MB. ``--rewrite`` has it on the page from now on."""
    found: dict[str, tuple[int, int]] = {}
    yield found
    print("\n" + "\n".join(f"{ms} ms, {mb} MB: {cell}" for cell, (ms, mb) in found.items()))
    if request.config.getoption("--rewrite", default=False):
        known = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
        MEASURED.write_text(json.dumps(known | found, indent=1) + "\n")
        PAGE.write_text(page())


def ended(sock: socket.socket) -> bytes:
    """Return what is said until the connection ends; a broker's pings among it are not answered."""
    sock.settimeout(PATIENCE_S)
    heard = bytearray()
    with suppress(ConnectionError):
        while data := sock.recv(1 << 16):
            heard += data
    sock.close()
    return bytes(heard)


def told_off(sock: socket.socket, data: bytes, door: Door) -> None:
    """Send what is too much: it is refused in words, or by an end."""
    with suppress(ConnectionError):
        sock.sendall(data)
    if door.speech is not Speech.HTTP:
        ended(sock)
        return
    sock.settimeout(PATIENCE_S)
    with suppress(ConnectionError):
        assert sock.recv(1 << 16)[:12] not in (b"HTTP/1.1 200", b"HTTP/1.1 500")
    sock.close()


def crowd(house: Doors, door: Door, count: int) -> list[socket.socket]:
    made = []
    for _ in range(count):
        with suppress(ConnectionError, AssertionError):
            made.append(house.connected(door))
    return made


def is_open(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1 << 16) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def unread(sock: socket.socket, data: bytes) -> None:
    """Ask as often as is taken, and read nothing."""
    sock.settimeout(0.5)
    with suppress(ConnectionError, TimeoutError):
        for _ in range(_ASKED // 100):
            sock.sendall(data * 100)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_bound_holds(
    doors: dict[Side, Doors],
    patient: dict[Side, Doors],
    cell: Cell,
    measured: dict[str, tuple[int, int]],
) -> None:
    house = (patient if cell.bound.name == "descriptors" else doors)[cell.side]
    before = house.forget_peak(cell.door)
    house.longest(cell.door).forget()
    with Innocent(house, cell.door) as innocent:
        for each in attacked(house, cell):
            each.close()
        until(lambda: innocent.answers > 0)
    house.answers(cell.door)
    growth = house.peak_bytes(cell.door) - before
    measured[str(cell)] = (round(house.longest(cell.door).seconds * 1000), round(growth / 1e6))
    assert growth < BUDGET + MARGIN


def attacked(house: Doors, cell: Cell) -> list[socket.socket]:
    """Attack one cell; return the connections that are left of it."""
    door, speech = cell.door, cell.door.speech
    left: list[socket.socket] = []
    match cell.bound.name:
        case "frames":
            told_off(house.connected(door), FRAMES[speech], door)
        case "items":
            told_off(house.connected(door), ITEMS[speech], door)
        case "silence" | "time" | "idleness":
            ended(house.waiting[str(cell)])
        case "descriptors":
            refused = house.refused(door)
            left = crowd(house, door, MOST + 20)
            until(lambda: house.refused(door) >= refused + 20)
            until(lambda: sum(map(is_open, left)) <= MOST)
            if not (door.of_proxy and speech is Speech.PULSAR and cell.side is Side.AFTER):
                house.answers(door, "127.0.0.2")  # whoever comes from elsewhere is let in
            # Of those the broker counts each as of the proxy's address, and the test's has the proxy's bound.
        case "memory":
            left = crowd(house, door, CROWD)
            for each in left:
                each.settimeout(0.05)
                with suppress(ConnectionError, TimeoutError):
                    each.sendall(HALVES[speech])
            house.answers(door)
        case "answers":
            left = crowd(house, door, 5)
            for each in left:
                unread(each, QUESTIONS[speech])
            house.answers(door)
    return left


def test_the_page_is_of_this_table() -> None:
    assert PAGE.read_text() == page(), "python -m tests.hostile.doors"
