"""The cluster that is hurt: ZooKeeper, bookies and brokers on loopback, and relays before ZooKeeper and the brokers."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from benchmarks.faults.relay import Relays
from tests.cluster.brokers import BrokerProcess
from tests.cluster.servers import Cluster

SESSION_MS = 2000
"""Of ZooKeeper's: a broker that is silent for longer loses what it owns."""
HEAP = 96 << 20


class HurtBroker(BrokerProcess):
    """A broker that clients and other brokers reach through relays, and that reaches ZooKeeper through one."""

    def __init__(
        self, cluster: Cluster, directory: Path, number: int, relays: Relays, session_ms: int
    ) -> None:
        self._directory = directory
        self._lives = 0
        super().__init__(cluster, directory, number)
        self.relay = relays.add(self.kafka)
        self.pulsar_relay = relays.add(self.pulsar)
        self.zookeeper_relay = relays.add(cluster.zookeeper.port)
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
        for name, value in more.items():
            self._command += ["--set", f"{name}={value}"]

    def begin(self) -> subprocess.Popen[bytes]:
        self._lives += 1
        self.log = self._directory / f"broker-{self.number}.life-{self._lives}.log"
        return super().begin()

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


class House:
    """All of them. Use it with ``with``."""

    def __init__(
        self, directory: Path, bookies: int = 3, brokers: int = 3, session_ms: int = SESSION_MS
    ) -> None:
        self.directory = directory
        self.cluster = Cluster(directory, bookies)
        self.relays = Relays()
        self.brokers: list[HurtBroker] = []
        self._count = brokers
        self._session_ms = session_ms

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
                HurtBroker(self.cluster, self.directory, number, self.relays, self._session_ms)
                for number in range(1, self._count + 1)
            ]
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
