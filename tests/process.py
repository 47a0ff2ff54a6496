"""``magnetar standalone`` as a user starts it: a process on a data directory, with an address and a log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

READY = "ready "
READY_SECONDS = 300
END_SECONDS = 20


class BrokerProcess:
    """One broker. It is serving once the constructor returns; its log is in ``data``'s parent."""

    def __init__(
        self,
        data: Path,
        *arguments: str,
        kafka: str | None = "127.0.0.1:0",
        program: Sequence[str | Path] | None = None,
    ) -> None:
        """``program`` is what is run in place of ``magnetar``."""
        self.data = data
        self.log = data.parent / f"{data.name}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command(data, *arguments, kafka=kafka, program=program),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment(),
            )
        self.served = self._wait_until_ready()
        self.addresses = self.served.get("kafka", [])

    @property
    def address(self) -> str:
        """HOST:PORT for clients, of the first listener."""
        return self.addresses[0]

    @property
    def pulsar_url(self) -> str:
        """What Pulsar's clients connect to."""
        return f"pulsar://{self.served['pulsar'][0]}"

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def resident_bytes(self) -> int:
        """What the process holds in memory now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def forget_peak(self) -> None:
        """Have `peak_bytes` count from now on."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    @property
    def peak_bytes(self) -> int:
        """The most that the process has held in memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10

    def log_lines(self) -> list[str]:
        return self.log.read_text(errors="replace").splitlines()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask the broker to end; give its exit status."""
        self._process.send_signal(number)
        return self._process.wait(END_SECONDS)

    def wait(self) -> int:
        """Wait until it ends by itself; give its exit status."""
        return self._process.wait(END_SECONDS)

    def kill(self) -> None:
        """End the broker as a crash would."""
        if self.is_running:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_running:
            self.end()
        self.kill()

    def _wait_until_ready(self) -> dict[str, list[str]]:
        assert self._process.stdout is not None
        watchdog = threading.Timer(READY_SECONDS, self._process.kill)
        watchdog.start()
        try:
            for line in self._process.stdout:
                if line.startswith(READY):
                    pairs = (word.partition("=") for word in line.split()[1:])
                    return {protocol: where.split(",") for protocol, _, where in pairs}
        finally:
            watchdog.cancel()
        self.kill()
        raise BrokerDidNotStart(self._process.returncode, "\n".join(self.log_lines()[-20:]))


class BrokerDidNotStart(Exception):
    """The process ended before it was ready; ``status`` is its exit status, ``complaint`` its last words."""

    def __init__(self, status: int, complaint: str) -> None:
        super().__init__(f"exit status {status}: {complaint}")
        self.status = status
        self.complaint = complaint


OURS = frozenset(
    {
        "MAGNETAR_AXE",
        "MAGNETAR_SEED",
        "MAGNETAR_SEEDS",
        "MAGNETAR_FLIPS",
        "MAGNETAR_KILLS",
        "MAGNETAR_BACKUPS",
        "MAGNETAR_EXAMPLES",
        "MAGNETAR_PROFILE",
        "MAGNETAR_CROSSINGS",
        "MAGNETAR_FAULT_LIVES",
        "MAGNETAR_MOVES",
        "MAGNETAR_MOVED_RECORDS",
        "MAGNETAR_ALLOWED_MORE",
        "MAGNETAR_FAULT_STEP",
        "MAGNETAR_DAMAGED_REQUESTS",
        "MAGNETAR_CONVERSATIONS",
        "MAGNETAR_CUTS",
        "MAGNETAR_CROWD",
        "MAGNETAR_SOCKET_CONVERSATIONS",
        "MAGNETAR_REGISTRY_REQUESTS",
        "MAGNETAR_FUZZED_RECORDS",
    }
)
"""What speaks to tests."""


def environment() -> dict[str, str]:
    """Return the environment without what speaks to tests: a broker takes all of ``MAGNETAR_`` for settings."""
    return {name: value for name, value in os.environ.items() if name not in OURS}


def command(
    data: Path,
    *arguments: str,
    kafka: str | None = "127.0.0.1:0",
    program: Sequence[str | Path] | None = None,
) -> Sequence[str | Path]:
    """Return the command line; ``kafka=None`` leaves the listener to a configuration file."""
    magnetar = program or (Path(sys.executable).with_name("magnetar"),)
    listener = () if kafka is None else ("--kafka", kafka)
    return [*magnetar, "standalone", "--data", data, *listener, *arguments]
