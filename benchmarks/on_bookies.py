"""One broker of ours and one of Pulsar's on the same ZooKeeper and bookies, in turn, round by round.

    python -m benchmarks.on_bookies [--rounds 3] [--messages 600000] [--json FILE]

pulsar-perf loads both; Kafka's own perf tools load ours besides, and are held against what pulsar-perf gets from
Pulsar's, with batches as large. Both are told the same of the cluster in the same words, run alone while they are
measured, and keep each entry on two bookies, which acknowledge it when it is in the page cache. Values are of 1000 B.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import pulsar, tools
from benchmarks.peers.magnetar import MagnetarForPulsar
from benchmarks.peers.pulsar import Pulsar, pulsar_home
from benchmarks.peers.server import free_port
from benchmarks.samples import Bar, Samples, in_turn
from benchmarks.thin import ThinClient
from tests.cluster.servers import Cluster

_SIZE = 1000
_BATCHES = ("batch.size=131072", "linger.ms=1")
"""As Pulsar's producers have them."""
_OURS, _THEIRS = "magnetar broker", "pulsar broker"
_PRODUCED, _CONSUMED = "Pulsar, produce 1000 B, messages/s", "Pulsar, consume 1000 B, messages/s"
_BY_KAFKA = {
    "Kafka's tools, produce 1000 B, records/s": _PRODUCED,
    "Kafka's tools, consume 1000 B, records/s": _CONSUMED,
}
"""What Kafka's tools measure, and what it is held against: Pulsar's broker has no such clients."""
BARS = (
    *(Bar(name, _OURS, _THEIRS, 0.8, higher_is_better=True) for name in (_PRODUCED, _CONSUMED, *_BY_KAFKA)),
    Bar("Pulsar, memory idle, MB", _OURS, _THEIRS, 0.5),
    Bar("Pulsar, memory after the load, MB", _OURS, _THEIRS, 0.5),
)


class _House:
    """ZooKeeper and two bookies, whose processor time is nobody's."""

    def __init__(self, directory: Path) -> None:
        self.cluster = Cluster(directory, bookies=2, options=("-XX:TieredStopAtLevel=4",))
        self.metadata = f"zk:{self.cluster.hosts}/house"
        self.bookies = f"zk+hierarchical://{self.cluster.hosts}/ledgers"

    def words(self) -> dict[str, str]:
        """Return the settings of a broker of either kind."""
        return {
            "metadataStoreUrl": self.metadata,
            "configurationMetadataStoreUrl": self.metadata,
            "bookkeeperMetadataServiceUri": self.bookies,
            "clusterName": "house",
            **{f"managedLedgerDefault{each}": "2" for each in ("EnsembleSize", "WriteQuorum", "AckQuorum")},
        }

    def start(self) -> None:
        """Start all, and make the cluster's metadata with Pulsar's own tool."""
        self.cluster.start()
        command = [
            *(str(pulsar_home() / "bin" / "pulsar"), "initialize-cluster-metadata", "--cluster", "house"),
            *("--metadata-store", self.metadata, "--configuration-metadata-store", self.metadata),
            *("--existing-bk-metadata-service-uri", self.bookies),
            *("--web-service-url", "http://127.0.0.1:1", "--broker-service-url", "pulsar://127.0.0.1:1"),
        ]
        subprocess.run(command, check=True, capture_output=True)


class _Ours(MagnetarForPulsar):
    name = _OURS
    house: _House

    def command(self) -> list[str]:
        conf = self.data / "broker.conf"
        conf.write_text("".join(f"{name}={value}\n" for name, value in self.house.words().items()))
        executable = Path(sys.executable).with_name("magnetar")
        given = {
            "data.dir": self.data / "data",
            "listeners": f"PLAINTEXT://{self.address}",
            "pulsar.listeners": self.service_url,
            "http.listeners": f"http://127.0.0.1:{free_port()}",
            "messaging.protocols": "kafka,pulsar",
        }
        settings = [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
        return [str(executable), "broker", "--config", str(conf), *settings]


class _Theirs(Pulsar):
    """As released, but for addresses and the cluster's words."""

    name = _THEIRS
    house: _House

    def prepare(self) -> None:
        self.settings = self.house.words()
        super().prepare()

    def released_conf(self) -> Path:
        return pulsar_home() / "conf" / "broker.conf"

    def command(self) -> list[str]:
        return [
            "env",
            f"PULSAR_BROKER_CONF={self._conf.absolute()}",
            f"PULSAR_LOG_DIR={self.data.absolute() / 'logs'}",
            str(pulsar_home() / "bin" / "pulsar"),
            "broker",
        ]


def _by_kafka(server: _Ours, samples: Samples, topic: str, records: int) -> None:
    """Load it with Kafka's own tools: one producer, one partition, as pulsar-perf has."""
    with ThinClient.to(server.address) as client:
        client.create_topics([topic], 1)
    produced, consumed = _BY_KAFKA
    warm_up = records // 3
    told = tools.producer_perf(
        server.address, topic, records=records + warm_up, size=_SIZE, warm_up=warm_up, properties=_BATCHES
    )
    samples.add(produced, server.name, told.records_per_s)
    rate = tools.consumer_perf(server.address, topic, records=records + warm_up)
    samples.add(consumed, server.name, rate * (1 << 20) / _SIZE)


def measure(samples: Samples, scratch: Path, rounds: int, messages: int) -> None:
    """Measure both, each in its turn, each time on new topics."""
    house = _House(scratch / "house")
    _Ours.house = _Theirs.house = house
    try:
        house.start()
        for number in range(rounds):
            for kind in in_turn((_Ours, _Theirs), number):
                print(f"round {number + 1}: {kind.name}", flush=True)
                with kind(scratch / kind.name.replace(" ", "-")) as server:
                    pulsar.measure(
                        server, samples, messages, latency_s=32, begins=f"round-{number}-{kind.name[0]}-"
                    )
                    if isinstance(server, _Ours):
                        _by_kafka(server, samples, f"round-{number}-kafka", messages)
                    server.stop()
        for by_kafka, by_pulsar in _BY_KAFKA.items():
            samples.values[by_kafka][_THEIRS] = samples.values[by_pulsar][_THEIRS]
    finally:
        house.cluster.kill()


def main() -> int:
    """Print a table; the status is 1 if an aim is missed."""
    parser = argparse.ArgumentParser(prog="on_bookies", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=600_000)
    parser.add_argument(
        "--scratch", type=Path, help="where the bookies' data lie; a temporary directory if not given"
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    samples = Samples()
    with tempfile.TemporaryDirectory(dir=given.scratch) as scratch:
        measure(samples, Path(scratch), given.rounds, given.messages)
    if given.json:
        given.json.write_text(json.dumps(samples.values, indent=1))
    bars = {bar.measure: bar for bar in BARS}
    print("\n| | ours | Pulsar's | ratio | aim |\n|---|---:|---:|---:|---:|")
    met = True
    for name in samples.values:
        ours, theirs = samples.median(name, _OURS), samples.median(name, _THEIRS)
        if not ours or not theirs:
            continue
        bar = bars.get(name)
        met = met and (bar is None or bar.is_met(ours / theirs))
        aim = f"{'≥' if bar.higher_is_better else '≤'} {bar.limit:g} x" if bar else ""
        print(f"| {name} | {ours:,.2f} | {theirs:,.2f} | {ours / theirs:.2f} x | {aim} |")
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
