"""A whole cluster on loopback, each part a process of its own: ZooKeeper, bookies, brokers, a proxy.

ZooKeeper and the bookies run from the jars that `magnetar bookkeeper install` brings. Nothing waits for a
disk here, so that it runs on a laptop: what is acknowledged survives processes, not the machine.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from magnetar.ledger.bookkeeper import jars

CLUSTER = "demo"
SESSION_MS = 4000
"""How long ZooKeeper waits for a silent broker before others may take what it had."""
_SMALL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true", "-Xmx160m")
_OPENED = ("java.base/java.lang", "java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.misc")
_LOGGING = """status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %-5p [%t] %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


class Server:
    """One process, and the port by which it is known to be ready."""

    patience_s = 120
    """How long it may take to start before it is given up."""

    def __init__(self, name: str, command: Sequence[str | Path], port: int, log: Path) -> None:
        self.name = name
        self.port = port
        self.log = log
        self._command = [str(each) for each in command]
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start the process. Only the main thread may: it ends with the thread that began it, however that ends."""
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdout=out, stderr=subprocess.STDOUT, preexec_fn=_end_with_parent
            )

    def wait(self) -> None:
        """Return once it can be connected to."""
        end = time.monotonic() + self.patience_s
        while not self._is_ready():
            if self._process is None or self._process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{self.name} did not start; see {self.log}")
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """End it as a crash does."""
        self._end(signal.SIGKILL)

    def end(self) -> None:
        """Let it end in order."""
        self._end(signal.SIGTERM)

    def _end(self, sent: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(sent)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Broker(Server):
    """One broker of the cluster."""

    def __init__(self, cluster: Cluster, number: int, directory: Path) -> None:
        self.number = number
        self.data = directory / "data"
        self.kafka, self.pulsar, self.http = free_ports(3)
        config = directory / "broker.conf"
        config.write_text("".join(f"{name}={value}\n" for name, value in self.config(cluster).items()))
        command = [_magnetar(), "broker", "--config", config]
        for name, value in self.settings().items():
            command += ["--set", f"{name}={value}"]
        super().__init__(f"broker {number}", command, self.kafka, directory / "broker.log")

    def config(self, cluster: Cluster) -> dict[str, object]:
        """What all brokers have in common, in Pulsar's words."""
        return {
            "clusterName": CLUSTER,
            "metadataStoreUrl": cluster.metadata,
            "bookkeeperMetadataServiceUri": f"zk+hierarchical://{cluster.hosts}/ledgers",
            "managedLedgerDefaultEnsembleSize": 2,
            "managedLedgerDefaultWriteQuorum": 2,
            "managedLedgerDefaultAckQuorum": 2,
            "metadataStoreSessionTimeoutMillis": SESSION_MS,
            "defaultNumberOfNamespaceBundles": 12,
            "messagingProtocols": "kafka,pulsar",
        }

    def settings(self) -> dict[str, object]:
        """What is this one's own. Several JVMs share the machine."""
        return {
            "node.id": self.number,
            "data.dir": self.data,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.kafka}",
            "pulsar.listeners": f"pulsar://127.0.0.1:{self.pulsar}",
            "http.listeners": f"http://127.0.0.1:{self.http}",
            "offsets.topic.num.partitions": 8,
            "bookkeeper.cache.bytes": 16 << 20,
            "bookkeeper.heap.bytes": 128 << 20,
        }


class Cluster:
    """All of them. Use it with ``with``: they end with the block."""

    def __init__(self, directory: Path, bookies: int = 3, brokers: int = 3) -> None:
        self._directory = directory
        self._class_path = f"{directory}:{jars.install()}/*"
        (directory / "log4j2.properties").write_text(_LOGGING)
        self.zookeeper = self._zookeeper()
        self.bookies = [self._bookie(number) for number in range(1, bookies + 1)]
        self.brokers = [
            self.broker(number, self._made(f"broker-{number}")) for number in range(1, brokers + 1)
        ]
        self.proxy = self.gateway(self._made("proxy"))

    def broker(self, number: int, directory: Path) -> Broker:
        """Return a broker that is not started yet."""
        return Broker(self, number, directory)

    @property
    def hosts(self) -> str:
        """Where ZooKeeper is."""
        return f"127.0.0.1:{self.zookeeper.port}"

    @property
    def metadata(self) -> str:
        """The brokers' ``metadataStoreUrl``."""
        return f"zk:{self.hosts}/{CLUSTER}"

    @property
    def bootstrap(self) -> str:
        """The brokers themselves, for Kafka's clients."""
        return ",".join(f"127.0.0.1:{each.kafka}" for each in self.brokers)

    def __enter__(self) -> Cluster:
        try:
            self.zookeeper.begin()
            self.zookeeper.wait()
            self._format()
            for some in (self.bookies, self.brokers, [self.proxy]):
                for each in some:
                    each.begin()
                for each in some:
                    each.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self.proxy, *self.brokers):
            each.end()
        for each in (*self.bookies, self.zookeeper):
            each.kill()

    def _made(self, name: str) -> Path:
        directory = self._directory / name
        directory.mkdir()
        return directory

    def _zookeeper(self) -> Server:
        directory, (port,) = self._made("zookeeper"), free_ports(1)
        config = directory / "zoo.cfg"
        config.write_text(
            f"tickTime=500\ndataDir={directory / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=srvr,ruok,mntr\n"
        )
        options = ["-Dzookeeper.forceSync=no"]
        command = self._java("org.apache.zookeeper.server.ZooKeeperServerMain", str(config), options=options)
        return Server("ZooKeeper", command, port, directory / "server.log")

    def _bookie(self, number: int) -> Server:
        directory, (port,) = self._made(f"bookie-{number}"), free_ports(1)
        config = directory / "bookie.conf"
        config.write_text(
            f"bookiePort={port}\nadvertisedAddress=127.0.0.1\nlisteningInterface=lo\nallowLoopback=true\n"
            f"metadataServiceUri=zk+hierarchical://{self.hosts}/ledgers\nzkTimeout={SESSION_MS}\n"
            f"journalDirectories={directory / 'journal'}\nledgerDirectories={directory / 'ledgers'}\n"
            "httpServerEnabled=false\njournalSyncData=false\njournalMaxGroupWaitMSec=0\njournalPreAllocSizeMB=4\n"
            "journalMaxSizeMB=64\nskipListSizeLimit=8388608\nnettyMaxFrameSizeBytes=6291456\n"
            "numAddWorkerThreads=1\nnumReadWorkerThreads=1\nserverNumIOThreads=1\nnumHighPriorityWorkerThreads=1\n"
            "diskUsageThreshold=0.99\ndiskUsageWarnThreshold=0.98\n"
        )
        command = self._java("org.apache.bookkeeper.server.Main", "--conf", str(config))
        return Server(f"bookie {number}", command, port, directory / "server.log")

    def _format(self) -> None:
        """Have BookKeeper's own tool make what bookies look for in ZooKeeper."""
        config = self._directory / "bookie-1" / "bookie.conf"
        tool = "org.apache.bookkeeper.bookie.BookieShell"
        command = self._java(tool, "-conf", str(config), "initnewcluster")
        with (self._directory / "initnewcluster.log").open("wb") as out:
            subprocess.run(command, check=True, stdout=out, stderr=out)

    def gateway(self, directory: Path) -> Proxy:
        """Return the proxy, not started yet."""
        return Proxy(self, directory)

    def _java(self, main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        opened = [f"--add-opens={each}=ALL-UNNAMED" for each in _OPENED]
        netty = ["-XX:MaxDirectMemorySize=128m", "-Dio.netty.tryReflectionSetAccessible=true"]
        return [_java(), *_SMALL, *netty, *opened, *options, "-cp", self._class_path, main, *arguments]


class Proxy(Server):
    """The one address of the cluster, for both kinds of clients."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.kafka, self.pulsar, self.http = free_ports(3)
        command: list[str | Path] = [_magnetar(), "proxy"]
        for name, value in self.settings(cluster).items():
            command += ["--set", f"{name}={value}"]
        super().__init__("the proxy", command, self.kafka, directory / "proxy.log")

    def settings(self, cluster: Cluster) -> dict[str, object]:
        """Where it listens, and where brokers are."""
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.kafka}",
            "pulsar.listeners": f"pulsar://127.0.0.1:{self.pulsar}",
            "http.listeners": f"http://127.0.0.1:{self.http}",
            "proxy.bootstrap.servers": cluster.bootstrap,
            "broker.service.url": _urls("pulsar", (each.pulsar for each in cluster.brokers)),
            "broker.web.service.url": _urls("http", (each.http for each in cluster.brokers)),
        }


def _urls(scheme: str, ports: Iterable[int]) -> str:
    return f"{scheme}://" + ",".join(f"127.0.0.1:{each}" for each in ports)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listened on a moment ago."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for each in probes:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in probes]
    finally:
        for each in probes:
            each.close()


def doctor(cluster: Cluster) -> str:
    """Return what ``magnetar cluster doctor`` says of the cluster."""
    bookies = f"zk+hierarchical://{cluster.hosts}/ledgers"
    command = [_magnetar(), "cluster", "doctor", "--metadata", cluster.metadata, "--bookkeeper", bookies]
    return subprocess.run(command, capture_output=True, text=True).stdout.rstrip()


def _magnetar() -> Path:
    return Path(sys.executable).with_name("magnetar")


def _java() -> str:
    home = Path(os.environ.get("JAVA_HOME", "/nowhere"), "bin", "java")
    found = str(home) if home.exists() else shutil.which("java")
    if found is None:
        raise SystemExit(
            "ZooKeeper and BookKeeper need Java 17 (Debian: apt-get install openjdk-17-jre-headless)"
        )
    return found


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a demo that was killed leaves no servers
