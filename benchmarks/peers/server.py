"""One broker process: start it, look at it, end it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from benchmarks.peers.processes import rss_mb

PATIENCE_S = 600
"""How long a server may take until it serves: on a busy machine a JVM may need minutes."""


class Server(ABC):
    """A broker on loopback. Its data outlives ``stop`` and ``kill``, until ``wipe``."""

    name: str

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = free_port()
        self.launched = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir(parents=True)
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Make what the first start needs; not counted as start-up."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def launch(self) -> None:
        """Start the process and note when; it may not serve yet."""
        assert self._process is None
        # A user's shell does not forbid Python to keep compiled modules, and so start-up is measured with them.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        with open(self.data / "server.log", "ab") as log:
            self.launched = time.perf_counter()
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )

    def start(self) -> None:
        """Start the process and wait until its port takes connections."""
        self.launch()
        self.connect(PATIENCE_S).close()

    def connect(self, seconds: float) -> socket.socket:
        """Try to connect until it works; raise ``RuntimeError`` if the process ends or the time is up."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            with contextlib.suppress(ConnectionRefusedError):
                return socket.create_connection(("127.0.0.1", self.port))
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.002)
        raise RuntimeError(f"{self.name} does not serve; see {self.data / 'server.log'}")

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(number)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def wipe(self) -> None:
        """End the process and remove its data."""
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)

    def pids(self) -> list[int]:
        """Return the processes whose memory and processor time are the broker's."""
        return [self.pid]

    def rss_mb(self) -> float:
        """Return the resident memory (MB of a million bytes) now."""
        return rss_mb(self.pids())

    def cpu_seconds(self) -> float:
        """Return the processor time used so far, to a nanosecond where the system counts so finely."""
        tasks = [task for pid in self.pids() for task in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()  # what began and never serves would go on for ever; its log stays
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.wipe()


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
