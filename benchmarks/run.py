"""Run the benchmarks: ours and Kafka in turn, round after round, each on fresh data.

python -m benchmarks             everything, three rounds (more than an hour)
python -m benchmarks --quick     everything small, one round (about 10 minutes)
python -m benchmarks --only load --rounds 3
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from benchmarks import (
    committed_offsets,
    consume,
    entry_formats,
    groups,
    idle,
    latency,
    launch,
    logins,
    many_partitions,
    produce,
    pulsar,
    recovery,
    report,
    shapes,
    share_groups,
    spark,
    transactions,
)
from benchmarks.peers.kafka import Kafka, KafkaFlushing
from benchmarks.peers.magnetar import Magnetar, MagnetarForPulsar, MagnetarForPulsarOs, MagnetarOs
from benchmarks.peers.pulsar import Pulsar
from benchmarks.peers.server import Server
from benchmarks.samples import Samples, in_turn

_HERE = Path(__file__).parent.parent
_Server = TypeVar("_Server", bound=Server)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done."""

    rounds: int
    records_1k: int
    records_100: int
    records_read: int
    records_shaped: int
    properties: tuple[str, ...]
    round_trips: int
    idle_s: float
    restarts: int
    gigabytes: float
    slow_peers: bool
    spark: spark.Sizes
    pulsar_messages: int
    pulsar_latency_s: int
    transactions: int
    group_changes: int
    heartbeats_s: float
    records_shared: int
    records_enciphered: int
    small_produces: int


FULL = Plan(
    rounds=3, records_1k=1_200_000, records_100=4_000_000, records_read=2_000_000, records_shaped=1_500_000,
    properties=("defaults", "tuned"), round_trips=5000, idle_s=25, restarts=2, gigabytes=10, slow_peers=True,
    spark=spark.Sizes(2, 5_000_000, 1_000_000, 40_000_000), pulsar_messages=1_200_000, pulsar_latency_s=62,
    transactions=2000, group_changes=5, heartbeats_s=30, records_shared=1_000_000, records_enciphered=600_000,
    small_produces=10_000,
)  # fmt: skip
QUICK = Plan(
    rounds=1, records_1k=300_000, records_100=1_000_000, records_read=900_000, records_shaped=300_000,
    properties=("defaults",), round_trips=2000, idle_s=10, restarts=1, gigabytes=1, slow_peers=False,
    spark=spark.Sizes(1, 1_000_000, 200_000, 10_000_000), pulsar_messages=200_000, pulsar_latency_s=22,
    transactions=400, group_changes=2, heartbeats_s=10, records_shared=300_000, records_enciphered=200_000,
    small_produces=3000,
)  # fmt: skip


class Stages:
    """The stages by name. Each goes through the servers in turn."""

    def __init__(self, plan: Plan, samples: Samples, scratch: Path) -> None:
        self._plan = plan
        self._samples = samples
        self._scratch = scratch

    def by_name(self) -> dict[str, Callable[[], None]]:
        return {
            "launch": self.launch,
            "load": self.load,
            "shapes": self.shapes,
            "consume": self.consume,
            "latency": self.latency,
            "idle": self.idle,
            "partitions": self.partitions,
            "recovery": self.recovery,
            "spark-none": lambda: self.spark("none"),
            "spark-lz4": lambda: self.spark("lz4"),
            "spark-parts": self.spark_parts,
            "transactions": self.transactions,
            "groups": self.groups,
            "offsets": self.offsets,
            "share": self.share,
            "tls": self.tls,
            "acls": self.acls,
            "pulsar": self.pulsar,
            "formats": self.formats,
        }

    def launch(self) -> None:
        for number in range(self._plan.rounds + 2):
            for kind in in_turn((Magnetar, Kafka), number):
                server = self._fresh(kind)
                try:
                    launch.measure(server, self._samples)
                finally:
                    server.wipe()

    def load(self) -> None:
        """Produce, consume and look at the memory, on one broker after the other."""
        plan = self._plan
        for number in range(plan.rounds):
            for kind in in_turn((MagnetarOs, Kafka, Magnetar, KafkaFlushing), number):
                print(f"round {number + 1}: {kind.name}, load average {os.getloadavg()[0]:.1f}", flush=True)
                with self._fresh(kind) as server:
                    self._load_one(server)

    def _load_one(self, server: Server) -> None:
        plan = self._plan
        for properties in plan.properties:
            for size, records in ((1000, plan.records_1k), (100, plan.records_100)):
                os.sync()
                produce.measure(server, self._samples, size, properties, records)
        self._samples.add("memory after the load, MB", server.name, server.rss_mb())

    def shapes(self) -> None:
        """Produce records that are not all alike."""
        for number in range(self._plan.rounds):
            for kind in in_turn((MagnetarOs, Kafka, Magnetar), number):
                print(f"round {number + 1}: {kind.name}, load average {os.getloadavg()[0]:.1f}", flush=True)
                with self._fresh(kind) as server:
                    shapes.measure(server, self._samples, 100, self._plan.records_shaped)

    def consume(self) -> None:
        """Read from both in turn, again and again: what lies in the page cache can be read often."""
        with self._fresh(MagnetarOs) as ours, self._fresh(Kafka) as theirs:
            for server in (ours, theirs):
                topic = consume.fill(server, 1000, self._plan.records_read)
            os.sync()
            for number in range(self._plan.rounds + 1):
                for server in in_turn((ours, theirs), number):
                    consume.measure(server, self._samples, topic, 1000)
            for server in (ours, theirs):
                self._samples.add("memory after reading, MB", server.name, server.rss_mb())

    def latency(self) -> None:
        for number in range(self._plan.rounds):
            for kind in in_turn((MagnetarOs, Kafka, Magnetar), number):
                os.sync()
                with self._fresh(kind) as server:
                    latency.measure(server, self._samples, self._plan.round_trips)

    def idle(self) -> None:
        for kind in (Magnetar, Kafka):
            with self._fresh(kind) as server:
                idle.measure(server, self._samples, self._plan.idle_s)

    def partitions(self) -> None:
        for kind in (Magnetar, Kafka) if self._plan.slow_peers else (Magnetar,):
            server = self._fresh(kind)
            try:
                many_partitions.measure(server, self._samples, self._plan.restarts)
            finally:
                server.wipe()

    def recovery(self) -> None:
        kinds = (MagnetarOs, Magnetar, Kafka) if self._plan.slow_peers else (MagnetarOs, Magnetar)
        for kind in kinds:
            server = self._fresh(kind)
            try:
                recovery.measure(server, self._samples, self._plan.gigabytes)
            finally:
                server.wipe()

    def spark(self, codec: str) -> None:
        """Read both from one Spark session in turn; the brokers only serve."""
        with self._fresh(MagnetarOs) as ours, self._fresh(Kafka) as theirs:
            spark.measure(codec, ours, theirs, self._samples, self._scratch / "spark", self._plan.spark)

    def spark_parts(self) -> None:
        with self._fresh(MagnetarOs) as ours, self._fresh(Kafka) as theirs:
            spark.measure_parts(ours, theirs, self._samples, self._scratch / "spark", self._plan.spark)

    def transactions(self) -> None:
        for number in range(self._plan.rounds):
            for kind in in_turn((MagnetarOs, Kafka, Magnetar, KafkaFlushing), number):
                os.sync()
                with self._fresh(kind) as server:
                    transactions.measure(server, self._samples, self._plan.transactions)

    def groups(self) -> None:
        for number in range(self._plan.rounds):
            for kind in in_turn((Magnetar, Kafka), number):
                with self._fresh(kind) as server:
                    groups.measure(server, self._samples, self._plan.group_changes)
                    groups.measure_heartbeats(server, self._samples, self._plan.heartbeats_s)

    def offsets(self) -> None:
        for kind in (Magnetar, Kafka) if self._plan.slow_peers else (Magnetar,):
            server = self._fresh(kind)
            try:
                committed_offsets.measure(server, self._samples, self._plan.restarts)
            finally:
                server.wipe()

    def share(self) -> None:
        with self._fresh(MagnetarOs) as ours, self._fresh(Kafka) as theirs:
            for server in (ours, theirs):
                share_groups.fill(server, self._plan.records_shared)
            for turn in range(self._plan.rounds + 1):
                for server in in_turn((ours, theirs), turn):
                    share_groups.measure(server, self._samples, turn, self._plan.records_shared)

    def tls(self) -> None:
        with self._fresh(logins.MagnetarTls) as ours, self._fresh(logins.KafkaTls) as theirs:
            for server in (ours, theirs):
                logins.fill(server)
            for turn in range(self._plan.rounds + 1):
                for server in in_turn((ours, theirs), turn):
                    os.sync()
                    logins.measure_tls(server, self._samples, turn, self._plan.records_enciphered)

    def acls(self) -> None:
        """Fresh brokers each round: two processes of the same code differ by some per cent as long as they run."""
        for number in range(self._plan.rounds):
            with self._fresh(MagnetarOs) as free, self._fresh(logins.MagnetarGuarded) as guarded:
                for server in (free, guarded):
                    logins.prepare_small(server)
                for turn in range(6):
                    for server in in_turn((free, guarded), number + turn):
                        logins.measure_small(server, self._samples, turn, self._plan.small_produces)

    def pulsar(self) -> None:
        """Pulsar's clients on both brokers."""
        plan = self._plan
        for number in range(plan.rounds):
            for kind in in_turn((MagnetarForPulsarOs, Pulsar, MagnetarForPulsar), number):
                print(f"round {number + 1}: {kind.name}, load average {os.getloadavg()[0]:.1f}", flush=True)
                os.sync()
                with kind(self._scratch / kind.__name__.lower()) as server:
                    pulsar.measure(server, self._samples, plan.pulsar_messages, plan.pulsar_latency_s)

    def formats(self) -> None:
        """Kafka's clients, and Spark, on both entry formats of ours."""
        plan = self._plan
        with self._fresh(MagnetarOs) as ours:
            entry_formats.measure(ours, self._samples, plan.rounds, plan.records_1k)
            # Below some seconds a job's own cost is all that one sees, and it is the same for both.
            records = {
                100: max(plan.spark.records_100, 3_000_000),
                1000: max(plan.spark.records_1k, 1_000_000),
            }
            entry_formats.measure_spark(ours, self._samples, self._scratch / "spark", plan.rounds, records)

    def _fresh(self, kind: type[_Server]) -> _Server:
        return kind(self._scratch / kind.__name__.lower())


def main() -> None:
    """Run what the arguments ask for; print the table, write JSON, and the page if asked to."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="everything small, in about 10 minutes")
    parser.add_argument(
        "--only",
        action="append",
        help="a stage: launch load shapes consume latency idle partitions recovery transactions groups offsets share "
        "tls acls pulsar formats "
        "spark (or a part of it: spark-none spark-lz4 spark-parts)",
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--scratch", type=Path, default=_HERE / "target" / "benchmarks")
    parser.add_argument("--json", type=Path, default=_HERE / "target" / "benchmarks.json")
    parser.add_argument(
        "--page", action="store_true", help="put the figures into docs/benchmarks.json and .md"
    )
    parser.add_argument(
        "--earlier", type=Path, help="JSON of an earlier run, for what this one does not measure"
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # brokers end, figures are written
    plan = QUICK if given.quick else FULL
    if given.rounds:
        plan = replace(plan, rounds=given.rounds, spark=plan.spark._replace(rounds=given.rounds))
    samples = Samples()
    about = report.circumstances("quick" if given.quick else "full")
    stages = Stages(plan, samples, given.scratch / str(os.getpid())).by_name()
    wanted = [name for name in stages if not given.only or any(_is_in(name, each) for each in given.only)]
    if not wanted:
        parser.error(f"there are no such stages; there are: {' '.join(stages)}")
    try:
        for name in wanted:
            print(f"-- {name}", flush=True)
            stages[name]()
    finally:
        shutil.rmtree(given.scratch / str(os.getpid()), ignore_errors=True)
        if given.earlier:
            samples.fill_in(json.loads(given.earlier.read_text())["samples"])
        report.write(samples, about, given.json)
    print("\n" + report.table(samples))
    if given.page:
        report.write_page(samples, about)


def _is_in(stage: str, asked: str) -> bool:
    return stage == asked or stage.startswith(f"{asked}-")


if __name__ == "__main__":
    main()
