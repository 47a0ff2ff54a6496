"""Real servers for tests, each a JVM on loopback: ZooKeeper. Their jars are those of the engine's pinned list.

Where there is no Java, or no Maven to bring the jars, tests that want one are skipped, and say so.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

_LITTLE = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")


def java() -> str:
    """Return the command, or skip the test."""
    home = Path(os.environ.get("JAVA_HOME", "/nowhere"), "bin", "java")
    found = str(home) if home.exists() else shutil.which("java")
    if found is None:
        pytest.skip("there is no Java here to run ZooKeeper and BookKeeper on")
    return found


def class_path() -> str:
    """Return where the jars are, brought if need be, or skip the test."""
    pytest.importorskip("kazoo", reason="kazoo and JPype1 are not installed: make install")
    from magnetar.ledger.bookkeeper import jars

    try:
        directory = jars.install()
    except jars.JarsError as error:
        if shutil.which("mvn"):
            raise
        pytest.skip(str(error))
    return f"{Path(__file__).parent}:{directory}/*"


def free_port() -> int:
    """Return a port that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A process that listens on a port."""

    def __init__(self, name: str, command: list[str], port: int, log: Path, question: bytes = b"") -> None:
        self.name = name
        self.port = port
        self.log = log
        self._command = command
        self._question = question
        """What it answers once it is ready; without one it is as soon as it listens."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it listens."""
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=subprocess.STDOUT)
        while True:
            if self._answers():
                return
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.name} ended:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                if self._question:
                    probe.sendall(self._question)
                    return bool(probe.recv(1))
                return True
        except OSError:
            return False

    def send(self, sent: signal.Signals) -> None:
        """Send it a signal: SIGSTOP for a server that hangs, SIGCONT for its end."""
        assert self._process is not None
        self._process.send_signal(sent)

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def zookeeper(directory: Path, tick_ms: int = 200, extra: str = "") -> Server:
    """Return a ZooKeeper that is not started yet; sessions last between 2 and 200 of its ticks."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    config = directory / "zoo.cfg"
    config.write_text(
        f"tickTime={tick_ms}\ndataDir={directory / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        f"maxSessionTimeout={200 * tick_ms}\nadmin.enableServer=false\nmaxClientCnxns=0\n"
        f"4lw.commands.whitelist=*\n{extra}"
    )
    options = [*_LITTLE, "-Xmx128m", "-Dzookeeper.forceSync=no", "-Dlog4j2.level=WARN"]
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    command = [java(), *options, "-cp", class_path(), main, str(config)]
    return Server("ZooKeeper", command, port, directory / "server.log", b"srvr")
