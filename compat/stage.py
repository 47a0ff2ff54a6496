"""A broker for the checks, ours or Kafka's, with the same settings: clients' programs may have it killed and started
again, and reach it by a second address on whose way answers are lost. Ours may be a cluster, too, of which all brokers
are killed."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lossy import LossyWay
from places import OurCluster

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.peers.kafka import Kafka
from benchmarks.peers.magnetar import Magnetar
from benchmarks.peers.server import free_port
from examples.cluster.servers import Broker, Proxy

_SETTINGS = (
    "num.partitions=12",
    "log.retention.check.interval.ms=1000",  # the check of retention is not to wait five minutes
)


class _OurBroker(Magnetar):
    def __init__(self, data: Path, way: LossyWay) -> None:
        self._way = way
        super().__init__(data)

    def command(self) -> list[str]:
        settings = (*_SETTINGS, *_listeners(self.port, self._way))
        executable = Path(sys.executable).with_name("magnetar")
        command = [str(executable), "standalone", "--data", str(self.data / "data")]
        for setting in settings:
            command += ["--set", setting]
        return command


class _KafkasBroker(Kafka):
    def __init__(self, data: Path, way: LossyWay) -> None:
        controller = f"CONTROLLER://127.0.0.1:{free_port()}"
        self._way, self._controller = way, controller
        super().__init__(data)

    def prepare(self) -> None:
        listeners, advertised, protocols = _listeners(self.port, self._way)
        quorum = self._controller.removeprefix("CONTROLLER://")
        self.extra = (  # a name that stands twice counts where it stands last
            *_SETTINGS,
            "log.initial.task.delay.ms=1000",
            f"{listeners},{self._controller}",
            f"{advertised},{self._controller}",
            f"{protocols},CONTROLLER:PLAINTEXT",
            f"controller.quorum.bootstrap.servers={quorum}",
        )
        super().prepare()


def _listeners(port: int, way: LossyWay) -> tuple[str, str, str]:
    return (
        f"listeners=PLAINTEXT://127.0.0.1:{port},LOSSY://127.0.0.1:{way.target}",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port},LOSSY://127.0.0.1:{way.port}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LOSSY:PLAINTEXT",
    )


class _Control:
    """Does what programs ask: ``restart`` kills the broker and starts it again, ``lost`` counts lost answers."""

    def __init__(self, restart: Callable[[], None], ways: Iterable[LossyWay]) -> None:
        self._restart, self._ways = restart, ways
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection, connection.makefile("rw") as lines:
                for line in lines:
                    print(self._do(line.strip()), file=lines, flush=True)

    def _do(self, asked: str) -> str:
        if asked == "restart":
            self._restart()
            return "done"
        return str(sum(each.lost for each in self._ways))


@contextmanager
def stage(name: str, place: str = "standalone") -> Iterator[str]:
    """The address of a fresh broker, ``magnetar`` or ``kafka``; ours may be one of a cluster, or a proxy before it.

    The environment's COMPAT_CONTROL tells programs where to ask for a restart, and COMPAT_LOSSY where answers are lost.
    """
    with tempfile.TemporaryDirectory(prefix="magnetar-compat-") as folder:
        if place != "standalone":
            with _cluster(Path(folder), place) as address:
                yield address
            return
        way = LossyWay(free_port())
        broker = {"magnetar": _OurBroker, "kafka": _KafkasBroker}[name](Path(folder) / name, way)

        def restart() -> None:
            broker.kill()
            broker.launch()
            broker.connect(240).close()

        _tell(_Control(restart, [way]), way)
        broker.start()
        try:
            yield broker.address
        finally:
            broker.kill()


@contextmanager
def _cluster(folder: Path, place: str) -> Iterator[str]:
    ways: dict[Broker | Proxy, LossyWay] = {}

    def listeners(server: Broker | Proxy) -> dict[str, object]:
        way = ways[server] = LossyWay(free_port())
        return dict(each.split("=", 1) for each in _listeners(server.kafka, way))

    with OurCluster(folder, _SETTINGS, own=listeners) as cluster:
        first = cluster.proxy if place == "proxy" else cluster.brokers[0]
        _tell(_Control(cluster.restart, ways.values()), ways[first])
        yield cluster.addresses(place)["kafka"]


def _tell(control: _Control, way: LossyWay) -> None:
    os.environ["COMPAT_CONTROL"] = f"127.0.0.1:{control.port}"
    os.environ["COMPAT_LOSSY"] = f"127.0.0.1:{way.port}"
