"""Real servers for tests, each a JVM on loopback: ZooKeeper and bookies. Their jars are the engine's.

Where there is no Java, or no Maven to bring the jars, tests that want one are skipped, and say so.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.class_archives import archives, java_command

_LITTLE = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
)
_ZOOKEEPER = "org.apache.zookeeper.server.ZooKeeperServerMain"
_BOOKIE = "org.apache.bookkeeper.server.Main"
_SHELL = "org.apache.bookkeeper.bookie.BookieShell"


def java() -> str:
    """Return the command, or skip the test, or the module that asks for it."""
    found = java_command()
    if found is None:
        pytest.skip("there is no Java here to run ZooKeeper and BookKeeper on", allow_module_level=True)
    return found


def class_path() -> str:
    """Return where the jars are, brought if need be, or skip the test, or the module that asks for them."""
    pytest.importorskip("kazoo", reason="kazoo and JPype1 are not installed: make install")
    from magnetar.ledger.bookkeeper import jars

    try:
        directory = jars.install()
    except jars.JarsError as error:
        if shutil.which("mvn"):
            raise
        pytest.skip(str(error), allow_module_level=True)
    return f"{directory}/*"


def free_port() -> int:
    """Return a port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a test that was killed leaves no servers


class Server:
    """A process that listens on a port."""

    def __init__(
        self,
        name: str,
        command: list[str],
        port: int,
        log: Path,
        question: bytes = b"",
        host: str = "127.0.0.1",
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.log = log
        self._command = command
        self._question = question
        """What it answers once it is ready; without one it is as soon as it listens."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it listens."""
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdout=out, stderr=subprocess.STDOUT, preexec_fn=die_with_parent
            )
        while True:
            if self._answers():
                return
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.name} ended:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as probe:
                if self._question:
                    probe.sendall(self._question)
                    return bool(probe.recv(1))
                return True
        except OSError:
            return False

    @property
    def tells(self) -> bool:
        """Tell whether it answers whoever asks, as a ZooKeeper that listens without TLS does."""
        return bool(self._question)

    def ask(self, word: bytes) -> bytes:
        """Return what it answers to one of ZooKeeper's four-letter words; nothing if it does not."""
        answer = b""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), timeout=5) as asked,
        ):
            asked.sendall(word)
            while got := asked.recv(1 << 16):
                answer += got
        return answer

    def send(self, sent: signal.Signals) -> None:
        """Send it a signal: SIGSTOP for a server that hangs, SIGCONT for its end."""
        assert self._process is not None
        self._process.send_signal(sent)
        if sent == signal.SIGSTOP:  # its threads go on until each has seen it, and may answer meanwhile
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Tell whether it ended, by itself or otherwise."""
        return self._process is None or self._process.poll() is not None

    def end(self) -> None:
        """End it in order."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait()

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def zookeeper(
    directory: Path, tick_ms: int = 200, extra: str = "", *, secure: bool = False, options: Sequence[str] = ()
) -> Server:
    """Return a ZooKeeper that is not started yet; sessions last between 2 and 200 of its ticks.

    ``secure`` has it listen for TLS alone, with what ``extra`` says of it; ``options`` are Java's.
    """
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    config = directory / "zoo.cfg"
    name = "secureClientPort" if secure else "clientPort"
    config.write_text(
        f"tickTime={tick_ms}\ndataDir={directory / 'data'}\n{name}={port}\n{name}Address=127.0.0.1\n"
        f"maxSessionTimeout={200 * tick_ms}\nadmin.enableServer=false\nmaxClientCnxns=0\n"
        f"4lw.commands.whitelist=*\n{extra}"
    )
    own = [*_LITTLE, "-Xmx128m", "-Dzookeeper.forceSync=no", "-Dlog4j2.level=WARN", *options]
    command = [java(), *own, *begins_with(_ZOOKEEPER), "-cp", class_path(), _ZOOKEEPER, str(config)]
    return Server("ZooKeeper", command, port, directory / "server.log", b"" if secure else b"srvr")


def bookie(
    directory: Path,
    metadata: Server,
    extra: str = "",
    options: Sequence[str] = (),
    *,
    session_ms: int = 4000,
    address: str = "127.0.0.1",
) -> Server:
    """Return a bookie that is not started yet. What it acknowledges is in the page cache only.

    ``address`` is what it is known by; it may be a name that Java's ``options`` make one of loopback.
    """
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    config = directory / "bookie.conf"
    config.write_text(
        f"bookiePort={port}\nadvertisedAddress={address}\nlisteningInterface=lo\nallowLoopback=true\n"
        f"metadataServiceUri=zk+hierarchical://127.0.0.1:{metadata.port}/ledgers\nzkTimeout={session_ms}\n"
        f"journalDirectories={directory / 'journal'}\nledgerDirectories={directory / 'ledgers'}\n"
        "httpServerEnabled=false\njournalSyncData=false\njournalMaxGroupWaitMSec=0\nflushEntrylogBytes=0\n"
        "journalPreAllocSizeMB=4\njournalMaxSizeMB=64\nskipListSizeLimit=8388608\nnettyMaxFrameSizeBytes=33554432\n"
        "numAddWorkerThreads=1\nnumReadWorkerThreads=1\nserverNumIOThreads=1\nnumHighPriorityWorkerThreads=1\n"
        f"gcWaitTime=600000\ndiskUsageThreshold=0.99\ndiskUsageWarnThreshold=0.98\n{extra}"
    )
    command = _bookkeeper(_BOOKIE, "--conf", str(config), options=options)
    host = address if address.startswith("127.") else "127.0.0.1"
    return Server("a bookie", command, port, directory / "server.log", host=host)


def _bookkeeper(main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    opens = [
        "java.base/java.lang",
        "java.base/java.nio",
        "java.base/sun.nio.ch",
        "java.base/jdk.internal.misc",
    ]
    own = [
        *_LITTLE,
        *options,
        "-Xmx128m",
        "-XX:MaxDirectMemorySize=128m",
        "-Dio.netty.leakDetectionLevel=disabled",
        "-Dio.netty.tryReflectionSetAccessible=true",
        *(f"--add-opens={each}=ALL-UNNAMED" for each in opens),
    ]
    return [java(), *own, *begins_with(main), "-cp", class_path(), main, *arguments]


_archives: dict[str, tuple[str, ...]] = {}


def begins_with(main: str) -> tuple[str, ...]:
    """Return the options by which a JVM of ``main`` begins with an archive of its classes, made first if need be."""
    if not _archives:
        jars = Path(class_path()).parent.glob("*.jar")
        names = [each.rpartition(".")[2] for each in (_ZOOKEEPER, _BOOKIE, _SHELL)]
        _archives.update(archives("cluster", names, jars, _make_archives))
    return _archives[main.rpartition(".")[2]]


def _make_archives(paths: dict[str, Path], log: Path) -> None:
    """Start a cluster, and end it in order: its JVMs write what they have loaded."""
    _archives.update({name: (f"-XX:ArchiveClassesAtExit={path}",) for name, path in paths.items()})
    with tempfile.TemporaryDirectory(prefix="magnetar-classes-") as folder:
        cluster = Cluster(Path(folder), bookies=1)
        servers = (*cluster.bookies, cluster.zookeeper)
        try:
            cluster.start()
            for each in servers:
                each.end()
        finally:
            cluster.kill()
            _archives.clear()
            log.write_text("".join(each.log.read_text() for each in servers if each.log.exists()))


class Cluster:
    """A ZooKeeper and some bookies."""

    def __init__(
        self,
        directory: Path,
        bookies: int = 3,
        *,
        metadata: Server | None = None,
        extra: str = "",
        options: Sequence[str] = (),
        session_ms: int = 4000,
    ) -> None:
        """``extra`` is further configuration of bookies, ``options`` are Java's for them and for their tools."""
        self.zookeeper = metadata or zookeeper(directory / "zookeeper")
        self.bookies = [
            bookie(directory / f"bookie-{number}", self.zookeeper, extra, options, session_ms=session_ms)
            for number in range(bookies)
        ]
        self._directory = directory
        self._options = options
        self._session_ms = session_ms

    @property
    def hosts(self) -> str:
        """Return where the ZooKeeper is."""
        return f"127.0.0.1:{self.zookeeper.port}"

    def start(self) -> None:
        """Start all of them, their metadata made first."""
        self.zookeeper.start()
        config = str(self._directory / "bookie-0" / "bookie.conf")
        command = _bookkeeper(_SHELL, "-conf", config, "initnewcluster", options=self._options)
        with (self._directory / "format.log").open("ab") as out:
            # Its first handshake may take longer than it waits, where many processes start.
            while subprocess.run(command, stdout=out, stderr=out).returncode:
                assert out.tell() < 1_000_000, (self._directory / "format.log").read_text()[-3000:]
        for each in self.bookies:
            each.start()
        self.await_bookies()

    def mend(self) -> None:
        """Have all bookies, whatever became of them: a test that failed amid a fault may have left some killed."""
        for each in self.bookies:
            if each.has_ended:
                each.start()
        self.await_bookies()

    def await_bookies(self) -> None:
        """Wait until all bookies that run are there for clients, which is later than that they listen.

        ZooKeeper forgets bookies that stood still for longer than their sessions last. They find it out themselves and
        come back some seconds later, but for one that was just waiting for the session it had before it was killed to
        end: that one gives up and stays, a process that serves nobody, so it is started anew.
        """
        patience = time.monotonic() + 5 * self._session_ms / 1000
        while self.zookeeper.tells and not self.zookeeper.has_ended:
            there = self._listed()
            missing = [each for each in self.bookies if not each.has_ended and each.port not in there]
            if not missing:
                return
            time.sleep(0.05)
            if time.monotonic() > patience:
                patience += 5 * self._session_ms / 1000
                for each in missing:
                    print(f"{each.name} is started anew: {self.zookeeper.ask(b'dump').decode()}")
                    each.kill()
                    each.start()

    def _listed(self) -> set[int]:
        """Return the ports of the bookies that are there to be written to.

        What a session has left that nobody is connected by any more does not count: that of a bookie that was killed
        stays for as long as sessions last, while the one begun after it waits for its end. Nor do those that only read.
        """
        connected = set(re.findall(rb"sid=(0x[0-9a-f]+)", self.zookeeper.ask(b"cons")))
        found: set[int] = set()
        session = b""
        for line in self.zookeeper.ask(b"dump").splitlines():
            if (begun := re.fullmatch(rb"(0x[0-9a-f]+):", line.strip())) is not None:
                session = begun[1]
            elif session in connected and (node := re.search(rb"/available/[^/\s]+:(\d+)$", line.strip())):
                found.add(int(node[1]))
        return found

    def kill(self) -> None:
        """End all of them."""
        for each in (*self.bookies, self.zookeeper):
            each.kill()
