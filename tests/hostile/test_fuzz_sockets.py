"""Damaged conversations over real sockets, with clients that leave, do not listen, or say it bit by bit.

``MAGNETAR_SOCKET_CONVERSATIONS`` says how many, ``MAGNETAR_SEED`` which. An innocent client works beside them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path
from random import Random

import pytest

from tests.hostile.conftest import Bystander
from tests.hostile.test_fuzz import a_saying
from tests.process import BrokerProcess

COUNT = int(os.environ.get("MAGNETAR_SOCKET_CONVERSATIONS", "300"))
SEED = int(os.environ.get("MAGNETAR_SEED", "1"))
MAX_GROWTH_BYTES = 64 << 20
HEARD_S = 0.05
"""How long a client listens to what may never come."""


@pytest.mark.slow
@pytest.mark.timeout(0)  # it takes as long as it is told to
def test_damaged_conversations_over_sockets(tmp_path: Path) -> None:
    random = Random(SEED)
    sizes: list[int] = []
    settings = ("--set", "flush=os", "--set", "group.initial.rebalance.delay.ms=0")
    with BrokerProcess(tmp_path / "data", *settings) as process:
        bystander = Bystander(process.host_and_port)
        bystander.start()
        lingering: list[socket.socket] = []
        for number in range(COUNT):
            lingering.append(converse(process.host_and_port, random))
            if len(lingering) > 20:  # that many are silent beside the one that speaks
                leave(lingering.pop(random.randrange(len(lingering))), random)
            if number % max(COUNT // 20, 1) == 0:
                sizes.append(process.resident_bytes >> 20)
        for each in lingering:
            leave(each, random)
        bystander.leave()
        sizes.append(process.resident_bytes >> 20)
        print(f"{COUNT} conversations: resident MB {sizes}; the innocent client's rounds: {bystander.rounds}")
        assert bystander.complaints == []
        assert bystander.rounds > 0
        assert process.end() == 0
        assert not [line for line in process.log_lines() if "Traceback" in line or "ERROR" in line], SEED
    assert sizes[-1] < sizes[len(sizes) // 4] + (MAX_GROWTH_BYTES >> 20), sizes


def converse(address: tuple[str, int], random: Random) -> socket.socket:
    """Have a client say what it says; the broker may end it at any time."""
    client = socket.create_connection(address, 10)
    client.settimeout(HEARD_S)
    said = b"".join(a_saying(random) for _ in range(random.choice((1, 1, 2, 3, 6))))
    with contextlib.suppress(OSError):
        while said:
            cut = random.choice((len(said), len(said), random.randrange(len(said)) + 1))
            client.sendall(said[:cut])
            said = said[cut:]
            if random.randrange(3) == 0:
                client.recv(random.choice((1, 100, 65536)))
    return client


def leave(client: socket.socket, random: Random) -> None:
    """End a connection in order, half, or at once."""
    with contextlib.suppress(OSError):
        match random.randrange(3):
            case 0:
                client.shutdown(socket.SHUT_WR)
            case 1:  # a reset instead of an end
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
