"""The cluster that is hurt: ZooKeeper, bookies and brokers on loopback, and relays between any two of them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from benchmarks.faults.relay import Relay, Relays
from tests.cluster.brokers import BrokerProcess
from tests.cluster.servers import Cluster, Server, bookie, die_with_parent

SESSION_MS = 2000
"""Of ZooKeeper's: a broker that is silent for longer loses what it owns."""
HEAP = 96 << 20
DISK_BYTES = 1 << 30
"""Of each of a bookie's two disks; one takes as much memory as is on it."""
_CLOCK = Path(__file__).with_name("clock.c")
_CLOCK_BYTES = 16
_STARTS = 5
SHARES_LOCK_MS = 5000
_ALL_FLOWS = {
    "transactionCoordinatorEnabled": "true",
    "share.auto.offset.reset": "earliest",
    "group.share.record.lock.duration.ms": SHARES_LOCK_MS,
    "group.share.session.timeout.ms": 6000,
    "group.share.heartbeat.interval.ms": 1000,
    "group.share.delivery.count.limit": 10,
}


class Killable(Protocol):
    """A client that is a process of its own, and that somebody starts again when it was killed."""

    name: str

    def kill(self) -> None: ...


def movable_clock(directory: Path) -> Path | None:
    """Return the library that moves a process's clock, made there, if there is a compiler on this machine."""
    made = directory / "clock.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(made), str(_CLOCK), "-ldl"]
    if shutil.which("cc") is None or subprocess.run(command, capture_output=True).returncode:
        return None
    return made


class Disk:
    """A directory with a size of its own, which can be filled up: a tmpfs. It needs root."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.is_there = os.geteuid() == 0 and shutil.which("mount") is not None and self._mounts()

    def _mounts(self) -> bool:
        """Mount it; where even root may not, as in most containers, there is none."""
        self._directory.mkdir(parents=True, exist_ok=True)
        options = f"size={DISK_BYTES}"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self._directory)]
        return subprocess.run(command, capture_output=True).returncode == 0

    def fill(self) -> None:
        """Let it have no room but for what is on it."""
        found = os.statvfs(self._directory)
        self._resize((found.f_blocks - found.f_bfree) * found.f_frsize)

    def empty(self) -> None:
        """Give it the room again that it had."""
        self._resize(DISK_BYTES)

    def _resize(self, size: int) -> None:
        # What is written meanwhile makes the least size larger than the one that was just asked for.
        command = ["mount", "-o", f"remount,size={max(size, 4096)}", str(self._directory)]
        while subprocess.run(command, capture_output=True).returncode:
            self.fill()
            return

    def unmount(self, *, keeps: bool) -> None:
        """Give the memory back; who ``keeps`` what is on it finds that beside it."""
        if self.is_there:
            if keeps:
                shutil.copytree(self._directory, self._directory.with_suffix(".kept"), dirs_exist_ok=True)
            subprocess.run(["umount", "-l", str(self._directory)], check=True)
            self.is_there = False


class HurtBroker(BrokerProcess):
    """A broker that reaches ZooKeeper and each bookie through relays, and is reached through two."""

    def __init__(self, house: House, number: int, session_ms: int) -> None:
        cluster, self._directory = house.cluster, house.directory
        self._lives = 0
        super().__init__(cluster, self._directory, number)
        self.data = self._directory / f"data-{number}"
        relays = house.relays
        self.relay = relays.add(self.kafka)
        self.pulsar_relay = relays.add(self.pulsar)
        self.zookeeper_relay = relays.add(cluster.zookeeper.port)
        self.bookie_relays: list[Relay] = []
        """By bookie. Where there are none, bookies are reached as they are."""
        hosts = f"127.0.0.1:{self.zookeeper_relay.port}"
        more = {
            "metadata.url": f"zk:{hosts}/house",
            "bookkeeper.metadata.url": f"zk://{hosts}/ledgers",
            "metadata.session.ms": session_ms,
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.relay.port}",
            "pulsar.advertised.listeners": f"pulsar://127.0.0.1:{self.pulsar_relay.port}",
            "bookkeeper.heap.bytes": HEAP,
            "broker.deduplication.enabled": "true",
            "load.shedding.enabled": "false",
        }
        self._set(more)
        self._environment = dict(os.environ)
        self._clock: Path | None = None

    def _set(self, settings: dict[str, Any]) -> None:
        for name, value in settings.items():
            self._command += ["--set", f"{name}={value}"]

    def start(self) -> None:
        """Start it, and again if it ends: on a busy machine ZooKeeper may not answer in a session's time."""
        for _ in range(_STARTS):
            self.begin()
            assert self._process is not None
            while (ended := self._process.poll()) is None and "ready " not in self.log.read_text():
                time.sleep(0.05)
            if ended is None:
                return
        raise AssertionError(self.log.read_text()[-3000:])

    def is_parted_from_bookies(self, house: House) -> None:
        """Have it reach bookies through relays, and serve all flows, from its next life on."""
        self._set(_ALL_FLOWS)
        names = []
        for index, each in enumerate(house.cluster.bookies, 1):
            address = f"127.1.{self.number}.{index}"
            self.bookie_relays.append(house.relays.add(each.port, address, each.port))
            names.append(f"{address} bookie-{index}")
        hosts = _hosts(self._directory / f"broker-{self.number}.hosts", names)
        self._environment["JAVA_TOOL_OPTIONS"] = hosts

    def can_jump(self, library: Path) -> None:
        """Have its clock be one that `jump` moves, from its next life on. What measures time that passes is left."""
        self._clock = self._directory / f"broker-{self.number}.clock"
        self._clock.write_bytes(bytes(_CLOCK_BYTES))
        # Its Java's and its Python's both.
        self._environment |= {"LD_PRELOAD": str(library), "MOVED_CLOCK": str(self._clock)}

    def jump(self, seconds: int) -> None:
        """Have its clock be so far off."""
        assert self._clock is not None
        with self._clock.open("r+b") as file:  # it is mapped
            file.write(b"%d" % seconds + bytes(_CLOCK_BYTES - len(b"%d" % seconds)))

    def begin(self) -> subprocess.Popen[bytes]:
        self._lives += 1
        self.log = self._directory / f"broker-{self.number}.life-{self._lives}.log"
        with self.log.open("wb") as out:
            self._process = subprocess.Popen(
                self._command,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,  # as a daemon has one; Linux shares processors out by sessions
                preexec_fn=die_with_parent,
            )
        return self._process

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def lose_disk(self) -> None:
        """Kill it, and let nothing be left of what it had on its disk."""
        self.kill()
        shutil.rmtree(self.data)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


def _hosts(file: Path, names: Sequence[str]) -> str:
    """Return what has a JVM know hosts from a file alone: each broker finds a relay of its own where a bookie is."""
    own = f"127.0.0.1 localhost {socket.gethostname()}"  # the latter is what Java asks itself for
    file.write_text("\n".join([own, *names, ""]))
    return f"-Djdk.net.hosts.file={file}"


class HurtCluster(Cluster):
    """Bookies that have names, disks of their own, and a relay each to ZooKeeper."""

    def __init__(self, directory: Path, bookies: int, relays: Relays, session_ms: int) -> None:
        super().__init__(directory, 0)
        bookies_ms = max(4000, session_ms)
        self.bookies_session_s = bookies_ms / 1000
        self.journals: list[Disk] = []
        self.ledgers: list[Disk] = []
        self.zookeeper_relays: list[Relay] = []
        names = [f"127.0.0.1 bookie-{number}" for number in range(1, bookies + 1)]
        options = [_hosts(directory / "bookies.hosts", names)]
        self._options = options
        for number in range(1, bookies + 1):
            place = directory / f"bookie-{number - 1}"
            self.journals.append(Disk(place / "journal"))
            self.ledgers.append(Disk(place / "ledgers"))
            relay = relays.add(self.zookeeper.port)
            self.zookeeper_relays.append(relay)
            metadata = Server("ZooKeeper, through a relay", [], relay.port, place / "none")
            self.bookies.append(
                bookie(
                    place,
                    metadata,
                    "diskCheckInterval=1000\n",
                    options,
                    session_ms=bookies_ms,
                    address=f"bookie-{number}",
                )
            )

    def unmount(self, *, keeps: bool) -> None:
        for each in (*self.journals, *self.ledgers):
            each.unmount(keeps=keeps)


class House:
    """All of them. Use it with ``with``."""

    def __init__(
        self,
        directory: Path,
        bookies: int = 3,
        brokers: int = 3,
        session_ms: int = SESSION_MS,
        *,
        every_link: bool = False,
    ) -> None:
        """``every_link`` puts relays before bookies as well, which cost some time, and gives those disks."""
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.relays = Relays()
        self.hurt = HurtCluster(directory, bookies, self.relays, session_ms) if every_link else None
        self.cluster: Cluster = self.hurt or Cluster(directory, bookies)
        self.keeps = False
        """Whether what is on bookies' disks is kept in the end."""
        self.brokers: list[HurtBroker] = []
        self.clients: list[Killable] = []
        self.jumper: HurtBroker | None = None
        """The broker whose clock can jump, if there is what moves it."""
        self._count = brokers
        self._session_ms = session_ms
        self.session_s = session_ms / 1000
        """Of a broker with ZooKeeper."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{each.relay.port}" for each in self.brokers)

    @property
    def pulsar(self) -> str:
        return "pulsar://" + ",".join(f"127.0.0.1:{each.pulsar_relay.port}" for each in self.brokers)

    def __enter__(self) -> House:
        try:
            self.cluster.start()
            self.brokers = [
                HurtBroker(self, number, self._session_ms) for number in range(1, self._count + 1)
            ]
            if self.hurt is not None:
                for each in self.brokers:
                    each.is_parted_from_bookies(self)
                if (library := movable_clock(self.directory)) is not None:
                    self.jumper = self.brokers[-1]
                    self.jumper.can_jump(library)
            for each in self.brokers:
                each.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.brokers:
            each.kill()
        self.cluster.kill()
        self.relays.close()
        if self.hurt is not None:
            self.hurt.unmount(keeps=self.keeps)
