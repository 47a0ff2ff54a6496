"""The innocent client: asks a broker for its ApiVersions every 10 ms, in a process of its own, and notes each wait.

Run as a program it goes on until its input ends, then prints one line of JSON: pairs of when a question was asked
(of the system's monotonic clock, in seconds) and how long its answer took (in seconds), less what the system let the
broker's event loop wait for a processor meanwhile: of others' work on the machine the broker knows nothing. (Even a
process that is served before all others waits 50 ms in each second in which it wants all of a processor.)
"""

from __future__ import annotations

import json
import os
import select
import socket
import statistics
import subprocess
import sys
import time
from typing import NamedTuple, Self

from benchmarks.attacks.priority import INNOCENT, as_the

EVERY_S = 0.01
_QUESTION = bytes.fromhex("0000000c 0012 0000 00000001 0002 696e")


class Waits(NamedTuple):
    """How long answers took, in seconds, and how many there were."""

    longest: float
    median: float
    count: int


class Innocent:
    """The client beside an attack."""

    def __init__(self, address: str, pid: int) -> None:
        """``pid`` is the broker's."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.attacks.innocent", address, str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it has its first answer

    def end(self, since: float, until: float) -> Waits:
        """End it; give the waits of what was asked between two times of the monotonic clock."""
        said, _ = self._process.communicate("")
        waits = [took for asked, took in json.loads(said) if asked + took >= since and asked <= until]
        return Waits(max(waits), statistics.median(waits), len(waits))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def main() -> None:
    host, port = sys.argv[1].rsplit(":", 1)
    as_the(INNOCENT)  # what it waits for is the broker, not its own turn
    waits: list[tuple[float, float]] = []
    schedule = os.open(f"/proc/{sys.argv[2]}/schedstat", os.O_RDONLY)  # of the main thread
    with socket.create_connection((host, int(port)), 600) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            let_wait = _let_wait(schedule)
            asked = time.monotonic()
            connection.sendall(_QUESTION)
            left = 4
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            left = size
            while left:
                got = len(connection.recv(left))
                if not got:
                    raise SystemExit("the broker hung up on the innocent client")
                left -= got
            took = time.monotonic() - asked
            waits.append((asked, max(took - (_let_wait(schedule) - let_wait), 0.0)))
            if len(waits) == 1:
                print("ready", flush=True)
            if select.select([sys.stdin], [], [], max(EVERY_S - took, 0))[0]:
                break
    print(json.dumps(waits))


def _let_wait(schedule: int) -> float:
    """Return for how long a thread could have run and did not, in seconds, since it began."""
    return int(os.pread(schedule, 100, 0).split()[1]) / 1e9


if __name__ == "__main__":
    main()
