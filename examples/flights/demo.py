"""From a topic to a table: 336,776 real flights through a stock Kafka client, our broker and Spark.

    python examples/flights/demo.py [--data DIR]

Run it again, and nothing doubles: a complete topic is not produced again, and the table knows which offsets it has.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from broker import broker
from flights import COUNT, flights, records
from proof import Proof, proof_of_table
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.rule import Rule
from rich.table import Table
from topic import GROUP, TOPIC, consume, create_topic, produce, records_in_topic

if TYPE_CHECKING:
    from magnetar.pipeline.audit import Audit

TABLE = "flights"
console = Console(highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=Path("demo-data"), help="the broker's data directory, and the results'"
    )
    data = parser.parse_args().data.resolve()
    if not has_java():
        raise SystemExit(
            "Spark makes the table and needs a Java runtime: apt-get install default-jre-headless"
        )
    data.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with broker(data) as address:
        console.print(f"[bold]1[/]  The broker is ready at [cyan]{address}[/], its data in {data}")
        sent = fill_topic(address, data)
        seen = read_back(address, sent)
        same = make_table(data, seen)
    console.print(f"\nDone in {time.monotonic() - began:.0f} s.")
    show_how_to_go_on(data)
    if not same:
        raise SystemExit("table and topic differ")


def has_java() -> bool:
    """Tell whether Spark finds a JVM to start, where it looks for one."""
    at_home = Path(os.environ.get("JAVA_HOME", "/nowhere"), "bin", "java")
    return at_home.exists() or shutil.which("java") is not None


def fill_topic(address: str, data: Path) -> str:
    """Produce the flights unless an earlier run did; give the digest of what was sent, which a file keeps."""
    marker = data / "flights.sent"
    if marker.exists() and records_in_topic(address) == COUNT:
        console.print(f"[bold]2[/]  Topic [cyan]{TOPIC}[/] holds all {COUNT:,} flights: nothing to produce")
        return marker.read_text().strip()
    marker.unlink(missing_ok=True)
    shutil.rmtree(data / TABLE, ignore_errors=True)  # a new topic gets a new table
    create_topic(address)
    with bar(f"[bold]2[/]  Produce to topic [cyan]{TOPIC}[/]", COUNT) as progress:
        sent = f"{produce(address, records(flights()), progress):032x}"
    marker.write_text(sent + "\n")
    return sent


def read_back(address: str, sent: str) -> Proof:
    """Consume the whole topic; stop the demo if it is not what was sent."""
    with bar(f"[bold]3[/]  Read it back in group [cyan]{GROUP}[/]", COUNT) as progress:
        seen = consume(address, COUNT, progress)
    if seen.count != COUNT or not seen.every_offset_once:
        raise SystemExit(f"the topic gave {seen.count:,} records instead of {COUNT:,}, or some offset twice")
    if f"{seen.digest:032x}" != sent:
        raise SystemExit("what the topic gave is not what was sent")
    return seen


def make_table(data: Path, seen: Proof) -> bool:
    """Run the Spark job, show what the table says, and tell whether it equals the topic."""
    import job  # Spark takes a moment to import
    from picture import draw

    from magnetar.pipeline.audit import AuditRequest, audit

    path, png = data / TABLE, data / "delays.png"
    with console.status("Spark is starting ..."):
        spark = job.session(data / "spark.log")
    began = time.monotonic()
    with console.status("Spark reads the ledgers ..."):
        files = job.write(spark, {"path": str(data)}, TOPIC, path).urls()
    console.print(
        f"[bold]4[/]  Spark turned the ledgers into [cyan]{path}[/] in {time.monotonic() - began:.1f} s"
    )
    table = spark.read.parquet(str(path))
    routes, hours = job.worst_routes(table).take(8), job.worst_hours(table).take(8)
    draw(job.by_hour_and_month(table).collect(), png)
    show_worst(routes, hours)
    console.print(f"[bold]5[/]  The picture is [cyan]{png}[/]")
    with console.status("Comparing table and topic ..."):
        found = audit(spark, AuditRequest(TOPIC, str(path), data))
        # A proof of its own: what a Kafka client saw has nothing to do with how Spark reads the topic.
        same = equal(seen, proof_of_table(files))
    spark.stop()
    show_proof(seen, found, same)
    return found.is_equal and same


def equal(topic: Proof, table: Proof) -> bool:
    """Return whether both hold the same records, each offset once."""
    same = (topic.count, topic.digest, topic.per_partition) == (
        table.count,
        table.digest,
        table.per_partition,
    )
    return same and topic.every_offset_once and table.every_offset_once


def show_worst(routes: list[tuple[str, str, int, float, float]], hours: list[tuple[int, int, float]]) -> None:
    """Print the answers that the table gives."""
    left = Table("from", "to", title="Worst routes by arrival", title_style="bold")
    for name in ("flights", "minutes late", "over 30 min"):
        left.add_column(name, justify="right")
    for origin, dest, count, late, share in routes:
        left.add_row(origin, dest, f"{count:,}", f"{late:.1f}", f"{share:.0%}")
    right = Table("hour", title="Worst hours to leave", title_style="bold")
    for name in ("flights", "minutes late"):
        right.add_column(name, justify="right")
    for hour, count, late in hours:
        right.add_row(f"{hour}:00", f"{count:,}", f"{late:.1f}")
    both = Table.grid(padding=(0, 3))
    both.add_row(left, right)
    console.print(both)


def show_proof(seen: Proof, found: Audit, same: bool) -> None:
    """Print topic and table side by side; ``magnetar audit`` says the same."""
    shown = Table("", title="Are they equal?", title_style="bold")
    for partition in found.partitions:
        shown.add_column(f"partition {partition.partition}", justify="right")
    for name, counts in (
        ("topic, by a Kafka client", seen.per_partition.values()),
        ("topic, by Spark", [each.topic_records for each in found.partitions]),
        ("table, by Spark", [each.table_records for each in found.partitions]),
    ):
        shown.add_row(name, *(f"{count:,}" for count in counts))
    console.print(shown)
    for column, digest in found.digests.items():
        console.print(f"digest of {column}".ljust(28), digest if found.is_equal else "[red]differs somewhere")
    console.print("table as the client saw it".ljust(28), "yes, by another digest" if same else "[red]no")
    is_equal = same and found.is_equal
    console.print(
        "[bold green]Table and topic are equal." if is_equal else f"[bold red]They differ: {found.counts}"
    )


def show_how_to_go_on(data: Path) -> None:
    """Print commands to copy."""
    lines = (
        "# a broker that stays, for any Kafka client",
        f".venv/bin/magnetar standalone --data {data} --kafka 127.0.0.1:9092",
        "# then, in another terminal",
        ".venv/bin/magnetar topic list",
        f".venv/bin/magnetar table show {data / TABLE}",
        f".venv/bin/magnetar consume {TOPIC} --help",
        f"kcat -b 127.0.0.1:9092 -t {TOPIC} -C -c 3 -f '%k %h %s\\n'",
        "# the same topic in PySpark, broker or no broker",
        f'spark.read.format("magnetar").option("subscribe", "{TOPIC}").load("{data}")',
    )
    console.print(Rule("Go on from here", align="left"))
    console.print("\n".join(lines), soft_wrap=True, markup=False)


@contextmanager
def bar(text: str, total: int) -> Iterator[Callable[[int], object]]:
    """Show a progress bar; the block gets a function to call with how far it is."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(text, total=total)
        yield lambda done: progress.update(task, completed=done)


if __name__ == "__main__":
    main()
