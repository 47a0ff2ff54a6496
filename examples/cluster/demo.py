"""A cluster that loses a broker and a bookie while 336,776 flights pass: none is lost, none comes twice.

    python examples/cluster/demo.py [--data DIR] [--rate RECORDS_A_SECOND] [--flights COUNT]

ZooKeeper, three bookies, three brokers and a proxy on loopback. Flights come in by a stock Kafka producer and go out by
a stock Pulsar consumer, both of which know the proxy alone, and by Spark into a table.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).parent.parent / "flights"))

from chart import Event, Sample, draw
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from flights import COUNT, Record, flights, records
from flows import PARTITIONS, TOPIC, Flow, Received, Sent, Tabled, canonical, leaders, make_topic
from rich.console import Console
from rich.live import Live
from rich.table import Table
from servers import Cluster, doctor

if TYPE_CHECKING:
    from magnetar.pipeline.audit import Audit

MARKER = ".cluster-demo"
LOOK_S = 0.5
console = Console(highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("cluster-demo-data"), help="made anew by each run")
    parser.add_argument("--rate", type=int, default=6000, help="records a second that are sent")
    parser.add_argument("--flights", type=int, default=COUNT, help="how many of the flights")
    given = parser.parse_args()
    data = anew(given.data.resolve())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that the servers end as well
    began = time.monotonic()
    sent = list(records(flights().head(given.flights)))
    starting = console.status("ZooKeeper, three bookies, three brokers and a proxy are starting ...")
    starting.start()
    with Cluster(data) as cluster:
        starting.stop()
        console.print(
            f"[bold]1[/]  A cluster: ZooKeeper at [cyan]{cluster.hosts}[/], {len(cluster.bookies)} bookies, "
            f"{len(cluster.brokers)} brokers, and a proxy at [cyan]127.0.0.1:{cluster.proxy.kafka}[/] (Kafka) and "
            f"[cyan]127.0.0.1:{cluster.proxy.pulsar}[/] (Pulsar)"
        )
        run = Run(cluster, data, sent, given.rate)
        run.go()
        same = run.prove()
    console.print(f"\nDone in {time.monotonic() - began:.0f} s; logs of all servers are in {data}.")
    if not same:
        raise SystemExit("what came out is not what went in")


def anew(data: Path) -> Path:
    """Return an empty directory; what is deleted for it was made by an earlier run."""
    if data.exists() and any(data.iterdir()):
        if not (data / MARKER).exists():
            raise SystemExit(f"{data} was not made by this demo: name another with --data")
        shutil.rmtree(data)
    data.mkdir(parents=True, exist_ok=True)
    (data / MARKER).touch()
    return data


class Looked(Flow):
    """Asks the brokers themselves, again and again, who leads what: the proxy would say that it leads everything."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.leaders = [-1] * PARTITIONS
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": 2000})
        self.is_over = False

    def flow(self) -> None:
        while not self.is_over:
            try:
                self.leaders = leaders(self._admin)
            except KafkaException:  # who was asked has just died
                self.errors += 1
            time.sleep(LOOK_S / 2)


class Run:
    """One run: what flows, what is done to the cluster meanwhile, and what was seen."""

    def __init__(self, cluster: Cluster, data: Path, sent: Sequence[Record], rate: int) -> None:
        self._cluster, self._data = cluster, data
        kafka, pulsar = f"127.0.0.1:{cluster.proxy.kafka}", f"127.0.0.1:{cluster.proxy.pulsar}"
        self._wanted = len(sent)
        self._kafka = kafka
        self._sent = Sent(kafka, f"http://127.0.0.1:{cluster.proxy.http}/metrics", sent, rate)
        self._received = Received(pulsar, self._wanted, data)
        self._tabled = Tabled(kafka, self._wanted, data)
        self._looked = Looked(cluster.bootstrap)
        self._flows: dict[str, Flow] = {
            "Kafka's producer": self._sent,
            "Pulsar's consumer": self._received,
            "Spark's table": self._tabled,
        }
        self._samples: list[Sample] = []
        self._events: list[Event] = []
        self._killed = cluster.brokers[0]
        self._began = 0.0

    def go(self) -> None:
        """Let it flow, break things on the way, and return once all has arrived everywhere."""
        make_topic(self._kafka)
        console.print(
            f"[bold]2[/]  {self._wanted:,} flights go to topic [cyan]{TOPIC}[/] by a Kafka producer, and out by "
            "a Pulsar consumer and by Spark, which fetches over Kafka's protocol"
        )
        self._began = time.monotonic()
        for each in (*self._flows.values(), self._looked):
            each.start()
        due: list[tuple[float, Callable[[], str]]] = [
            (0.20, self._kill_broker),
            (0.45, self._kill_bookie),
            (0.65, self._start_broker),
        ]
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            while any(each.is_alive() for each in self._flows.values()):
                time.sleep(LOOK_S)
                self._look()
                live.update(self._shown())
                while due and self._sent.count >= due[0][0] * self._wanted:
                    what = due.pop(0)[1]()
                    self._events.append(Event(time.monotonic() - self._began, what))
                    live.console.print(f"   {self._events[-1].second:5.1f} s  [red]{what}")
                for name, flow in self._flows.items():
                    if flow.failed is not None:
                        raise SystemExit(f"{name} failed: {flow.failed!r}") from flow.failed
        self._look()
        self._looked.is_over = True
        console.print(self._shown())

    def _look(self) -> None:
        self._samples.append(
            Sample(
                time.monotonic() - self._began,
                {name: each.count for name, each in self._flows.items()},
                {name: each.seen_errors() for name, each in self._flows.items()},
                list(self._looked.leaders),
            )
        )

    def _shown(self) -> Table:
        errors = self._samples[-1].errors
        shown = Table("", box=None, pad_edge=False)
        for name in ("records", "tried again"):
            shown.add_column(name, justify="right")
        for name, flow in self._flows.items():
            shown.add_row(f"   {name}", f"{flow.count:,}", str(errors[name]))
        owned = [
            f"{each.number}: {self._looked.leaders.count(each.number)}" for each in self._cluster.brokers
        ]
        shown.add_row("   partitions of brokers", "  ".join(owned), "")
        return shown

    def _kill_broker(self) -> str:
        """Kill the broker that leads most."""
        self._killed = max(self._cluster.brokers, key=lambda each: self._looked.leaders.count(each.number))
        self._killed.kill()
        return f"kill -9 of broker {self._killed.number}"

    def _kill_bookie(self) -> str:
        """Kill a bookie; it does not come back. Ledgers that were being written to it go on with another."""
        self._cluster.bookies[0].kill()
        return "kill -9 of a bookie"

    def _start_broker(self) -> str:
        self._killed.begin()
        return f"broker {self._killed.number} comes back"

    def prove(self) -> bool:
        """Say whether all three have the same records, and draw the picture."""
        from proof import proof_of_table

        from magnetar.pipeline.audit import AuditRequest, audit

        with console.status("Comparing ..."):
            table = proof_of_table(self._tabled.files, canonical)
            place = {"kafka.bootstrap.servers": self._kafka}
            found = audit(
                self._tabled.spark, AuditRequest(TOPIC, str(self._data / TOPIC), None, options=place)
            )
            self._tabled.spark.stop()
        rows = (
            ("sent, by Kafka's producer", self._sent.per_partition, self._sent.digest),
            ("received, by Pulsar's consumer", self._received.per_partition, self._received.digest),
            ("in the table, by Spark", [*table.per_partition.values()], table.digest),
        )
        same = len({(tuple(counts), each) for _, counts, each in rows}) == 1 and table.every_offset_once
        show(rows, found, same=same, again=self._received.again)
        png = self._data / "cluster.png"
        draw(self._samples, self._events, png)
        console.print(f"[bold]4[/]  The picture is [cyan]{png}[/]")
        console.print("[bold]5[/]  [cyan]magnetar cluster doctor[/] says")
        console.print(doctor(self._cluster), markup=False)
        return same and found.is_equal


def show(rows: Sequence[tuple[str, Sequence[int], int]], found: Audit, *, same: bool, again: int) -> None:
    """Print what was sent beside what came out."""
    shown = Table("partition", title="[bold]3[/]  Are they equal?", title_justify="left")
    for name, _, _ in rows:
        shown.add_column(name, justify="right")
    for partition in range(PARTITIONS):
        shown.add_row(str(partition), *(f"{counts[partition]:,}" for _, counts, _ in rows))
    shown.add_section()
    shown.add_row("all", *(f"{sum(counts):,}" for _, counts, _ in rows))
    shown.add_row("digest", *(f"{digest:032x}"[:16] for _, _, digest in rows))
    console.print(shown)
    console.print(
        f"   After the failures Pulsar's consumer was given {again:,} messages again that it had not acknowledged."
    )
    audited = "equal" if found.is_equal else f"[red]different: {found.counts}[/]"
    console.print(f"   magnetar audit, record for record, headers in order: topic and table are {audited}.")
    console.print(
        "[bold green]   What came out is what went in, each record once."
        if same
        else "[bold red]   They differ."
    )


if __name__ == "__main__":
    main()
