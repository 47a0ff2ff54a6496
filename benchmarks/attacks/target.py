"""The broker that is attacked, with all its listeners, and its largest resident size."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from benchmarks.attacks.priority import ATTACKER, BROKER, as_the
from benchmarks.peers.magnetar import MagnetarOs
from benchmarks.peers.server import free_port
from benchmarks.thin import ThinClient

BUDGET_MB = 64
"""`memory.requests.bytes` as it comes."""

_USERS = "admin:$2b$12$yel0H5haB6Y8/B/kY8IlOOML/nn6cqjpPvou0irrG9kMn.MR8U0Bm\n"
"""The password is "secret"; the hash costs what bcrypt costs by default."""


class Target(MagnetarOs):
    """A broker on fresh data, with its four listeners on loopback."""

    name = "target"

    def __init__(self, data: Path, *settings: str, executable: Path | None = None) -> None:
        """``executable`` is the ``magnetar`` of another environment, if it is not to be this one's."""
        self._executable = executable
        self.settings = (*MagnetarOs.settings, *(each.format(data=data) for each in settings))
        self.pulsar_port, self.http_port, self.registry_port = free_port(), free_port(), free_port()
        super().__init__(data)

    def prepare(self) -> None:
        """Leave a file of users, for those who want it."""
        super().prepare()
        (self.data / "users").write_text(_USERS)

    def command(self) -> list[str]:
        executable, *arguments = super().command()
        return [
            str(self._executable or executable),
            *arguments,
            *("--pulsar", f"127.0.0.1:{self.pulsar_port}"),
            *("--http", f"127.0.0.1:{self.http_port}"),
            *("--schema-registry", f"127.0.0.1:{self.registry_port}"),
        ]

    def launch(self) -> None:
        as_the(BROKER)
        super().launch()
        as_the(ATTACKER)

    def start(self) -> None:
        super().start()
        for port in (self.pulsar_port, self.http_port, self.registry_port):
            while not _listens(port):
                time.sleep(0.01)

    def kafka(self) -> ThinClient:
        """Return a Kafka client of its own."""
        return ThinClient.to(self.address)

    def have_topic(self, name: str, partitions: int = 1) -> str:
        """Make a topic; give its name."""
        with self.kafka() as client:
            client.create_topics([name], partitions)
        return name

    @property
    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    def forget_peak(self) -> None:
        """Have `peak_mb` count from now on."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    @property
    def peak_mb(self) -> float:
        """The most that the process has held in memory, in MB (of 1,048,576 bytes)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    @property
    def descriptors(self) -> int:
        """How many files and sockets the process has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True
