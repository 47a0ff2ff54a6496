"""Where Magnetar is asked: on one broker of its own, in a cluster, or through a proxy in front of one.

A cluster is a ZooKeeper, three bookies and two brokers, of which clients are told one: they find the other themselves.
Through the proxy they know nothing else. ``PLACES`` names the columns under which results are kept.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from examples.cluster.servers import Broker, Cluster, Proxy

STANDALONE = "magnetar"
PLACES = {"standalone": STANDALONE, "cluster": "cluster", "proxy": "proxy"}
"""What a place is called on the command line, and in results."""
ELSEWHERE = ("cluster", "proxy")
BROKERS = 2
PATIENCE_S = 900
"""How long each server may take to start."""
PATIENT = "metadata.session.ms=10000"
"""For suites that kill nobody: a busy machine that lets a broker wait for its turn is no end of that broker."""

Settings = Mapping[str, object]


class OurCluster(Cluster):
    """Servers of a run, with what it wants of brokers and of the proxy; nothing is started yet."""

    def __init__(
        self,
        directory: Path,
        settings: Sequence[str] = (),
        *,
        own: Callable[[Broker | Proxy], Settings] = lambda _: {},
        conf: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """``settings`` are NAME=VALUE, the same for all brokers; what ``own`` gives is each one's own.

        ``conf`` is what a file in Pulsar's words says, unless the cluster itself needs something else.
        """
        self.given = dict(each.split("=", 1) for each in settings)
        self.conf = conf
        self.own = own
        super().__init__(directory, brokers=BROKERS)
        for each in (self.zookeeper, *self.bookies, *self.brokers, self.proxy):
            each.patience_s = PATIENCE_S  # what else the machine does is no fault of theirs

    def broker(self, number: int, directory: Path) -> Broker:
        conf, given, own = self.conf, self.given, self.own

        class Given(Broker):
            def config(self, cluster: Cluster) -> dict[str, object]:
                return {**conf, **super().config(cluster)}

            def settings(self) -> dict[str, object]:
                return {**super().settings(), **given, **own(self)}

        return Given(self, number, directory)

    def gateway(self, directory: Path) -> Proxy:
        own = self.own

        class Given(Proxy):
            def settings(self, cluster: Cluster) -> dict[str, object]:
                return {**super().settings(cluster), **own(self)}

        return Given(self, directory)

    def addresses(self, place: str) -> dict[str, str]:
        """Return where clients begin, by protocol."""
        first = self.proxy if place == "proxy" else self.brokers[0]
        ports = {"kafka": first.kafka, "pulsar": first.pulsar, "http": first.http}
        return {protocol: f"127.0.0.1:{port}" for protocol, port in ports.items()}

    def restart(self) -> None:
        """Kill all brokers, and the proxy, and start them again: nothing but storage remembers."""
        ended = [self.proxy, *self.brokers]
        for each in ended:
            each.kill()
        for each in reversed(ended):
            each.begin()
        for each in reversed(ended):
            each.wait()


@contextmanager
def cluster(
    place: str,
    *settings: str,
    own: Callable[[Broker | Proxy], Settings] = lambda _: {},
    conf: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[OurCluster, dict[str, str]]]:
    """A cluster that runs, and where clients of ``place`` begin, by protocol."""
    with (
        tempfile.TemporaryDirectory(prefix="magnetar-compat-") as directory,
        OurCluster(Path(directory), settings, own=own, conf=conf) as ours,
    ):
        yield ours, ours.addresses(place)
