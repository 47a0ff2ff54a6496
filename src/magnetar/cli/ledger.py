"""``magnetar ledger``: the files or the ledgers on bookies that hold a partition; look at them, check and mend them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from magnetar.admin.client import Local, Way
from magnetar.admin.errors import Invalid, Unreachable
from magnetar.admin.ledgers_of import HERE, PartitionLedgers
from magnetar.admin.partition_name import parse_place
from magnetar.admin.whereabouts import leader_of, way_to_ask
from magnetar.cli.cluster_place import Bookkeeper, ClientConfig, Config, Metadata, place_of
from magnetar.cli.options import (
    DEFAULT_BOOTSTRAP,
    Admin,
    Bootstrap,
    Data,
    Json,
    Yes,
    confirm,
    partition_names,
)
from magnetar.cli.output import give, moment, pairs, size, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from magnetar.doctor.ledgers import Finding, Report
    from magnetar.doctor.ledgers_cluster import ClusterPlace
    from magnetar.doctor.ledgers_dump import Dump, DumpedLedger
    from magnetar.doctor.ledgers_repair import Repair

# What opens data directories brings a storage engine along: it is loaded by the commands that need it.

app = typer.Typer(help="The files that hold a partition: look, check, mend.", no_args_is_help=True)


@app.command("list")
def list_(
    partition: Annotated[str, typer.Argument(metavar="TOPIC-PARTITION", autocompletion=partition_names)],
    data: Data = None,
    admin: Admin = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List the ledgers of a partition, oldest first."""
    topic, index = parse_place(partition)
    way = way_to_ask(data, admin, bootstrap_server, leader_of(topic, index))
    give(_ledgers(way, topic, index), _listed, as_json=json)


Directory = Annotated[
    Path, typer.Option("--data", exists=True, file_okay=False, help="The broker's data directory.")
]
AnyDirectory = Annotated[
    Path | None,
    typer.Option(
        "--data",
        exists=True,
        file_okay=False,
        help="The broker's data directory. Without it a cluster is meant.",
    ),
]


@app.command()
def verify(
    data: AnyDirectory = None,
    config: Config = None,
    metadata: Metadata = None,
    bookkeeper: Bookkeeper = None,
    metadata_config: ClientConfig = None,
    json: Json = False,
) -> None:
    """Check every byte of a data directory, or every copy on a cluster's bookies; beside brokers, what they finished.

    Ends with 1 if anything is damaged: of a cluster, if no copy is whole.
    """
    cluster = _cluster(data, config, metadata, bookkeeper, metadata_config)
    if cluster is not None:
        from magnetar.doctor.ledgers_cluster import verify_cluster

        report = verify_cluster(cluster)
    else:
        from magnetar.doctor.ledgers import verify as verify_directory

        assert data is not None
        report = verify_directory(data)
    give(report, _verified, as_json=json)
    raise typer.Exit(0 if report.is_whole else 1)


@app.command()
def dump(
    data: Directory,
    partition: Annotated[
        str | None, typer.Argument(metavar="TOPIC-PARTITION", help="All of its ledgers.")
    ] = None,
    ledger: Annotated[int | None, typer.Option("--ledger", min=0, help="Only this ledger.")] = None,
    first: Annotated[int, typer.Option("--from", min=0, help="The first entry of each ledger.")] = 0,
    most: Annotated[int, typer.Option("--most", min=1, help="Entries of each ledger at most.")] = 1000,
    json: Json = False,
) -> None:
    """Show what stands in ledger files, entry by entry, damaged places included."""
    if partition is None and ledger is None:
        raise Invalid("dump what?", "Name a TOPIC-PARTITION, or a ledger with --ledger.")
    from magnetar.doctor.data_directory import DataDirectory
    from magnetar.doctor.ledgers_dump import dump as dump_directory

    log = None
    if partition is not None:
        place = parse_place(partition)
        with DataDirectory(data) as directory:
            log = directory.topic(place.topic).name.ledger_name(place.partition)
    found = dump_directory(data, log=log, ledger=ledger, first_entry=first, most=most)
    give(found, _dumped, as_json=json)


@app.command()
def repair(
    data: AnyDirectory = None,
    config: Config = None,
    metadata: Metadata = None,
    bookkeeper: Bookkeeper = None,
    metadata_config: ClientConfig = None,
    drop_damaged: Annotated[
        bool, typer.Option("--drop-damaged", help="Give up what is damaged, and keep all that is whole.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Mend the data directory of a stopped broker, or copies on a cluster's bookies from others that are whole.

    Nothing is given up without --drop-damaged, which a cluster's brokers have to be ended for. Ends with 1 if anything
    is still damaged.
    """
    from magnetar.doctor.ledgers import Gravity

    cluster = _cluster(data, config, metadata, bookkeeper, metadata_config)
    if drop_damaged:
        where = data if cluster is None else cluster.metadata
        confirm(f"Give up the damaged entries in {where} for good?", yes=yes)
    if cluster is not None:
        from magnetar.doctor.ledgers_cluster_repair import repair_cluster

        done = repair_cluster(cluster, drop_damaged=drop_damaged)
    else:
        from magnetar.doctor.ledgers_repair import repair as repair_directory

        assert data is not None
        done = repair_directory(data, drop_damaged=drop_damaged)
    give(done, _repaired, as_json=json)
    raise typer.Exit(1 if any(each.gravity is Gravity.damage for each in done.left) else 0)


def _cluster(
    data: Path | None,
    config: Path | None,
    metadata: str | None,
    bookkeeper: str | None,
    metadata_config: Path | None,
) -> ClusterPlace | None:
    """Return the cluster that is meant, None for a data directory."""
    if data is not None:
        if config is not None:
            raise Invalid("--data is one broker's, --config a cluster's", "Leave out one of them.")
        return None
    if config is None and metadata is None:
        raise Invalid(
            "verify or mend what?", "Name --data DIRECTORY, --config FILE or --metadata zk:HOST:PORT/PATH."
        )
    found = place_of(config, metadata, bookkeeper, metadata_config)
    if found.login is not None:
        raise Invalid(
            "bookies want a login (bookkeeperClientAuthenticationPlugin), and this reads them without Java's client",
            "Look at ledgers with BookKeeper's own shell.",
        )
    return found.place


def _ledgers(way: Way, topic: str, partition: int) -> PartitionLedgers:
    try:
        return cast(PartitionLedgers, way.ask("ledgers", topic=topic, partition=partition))
    except Unreachable:
        if not isinstance(way, Local):
            raise
        from magnetar.doctor.data_directory import DataDirectory

        with DataDirectory(way.data) as directory:
            return directory.ledgers(topic, partition)


def _listed(value: PartitionLedgers) -> Iterator[RenderableType]:
    yield pairs(
        [
            ("partition", f"{value.topic}-{value.partition}"),
            ("readable from", value.first_offset),
            ("next offset", value.next_offset),
            ("flush", value.flush),
        ]
    )
    tiered = any(row.lies != HERE for row in value.ledgers)
    lies = ("lies",) if tiered else ()
    yield table(
        ("#ledger", "#first", "#last", "#entries", "#size", "latest record", "created", "sealed", *lies),
        [
            (
                row.ledger,
                row.first_offset,
                row.last_offset if row.entries else "-",
                row.entries,
                size(row.size),
                moment(row.max_timestamp),
                moment(row.created),
                row.sealed,
                *((row.lies,) if tiered else ()),
            )
            for row in value.ledgers
        ],
    )


def _verified(report: Report) -> Iterator[RenderableType]:
    yield pairs(
        [
            ("data", report.data),
            ("managed ledgers", report.logs),
            ("ledgers", report.ledgers),
            ("entries", report.entries),
            ("read", size(report.bytes)),
        ]
    )
    if report.open:
        yield f"{report.open} ledgers are open, being written or left so by a broker that died: they were left out"
    elif report.live:
        yield "a broker is running: what it is writing now was left out"
    yield from _findings(report.findings)
    yield "all of it is what was written" if report.is_whole else "DAMAGED"


def _findings(findings: tuple[Finding, ...]) -> Iterator[RenderableType]:
    for finding in findings:
        at = f" at byte {finding.at}" if finding.at >= 0 else ""
        yield f"{finding.gravity}: {finding.file}{at}: {finding.what}"
        if finding.do:
            yield f"  -> {finding.do}"


def _dumped(value: Dump) -> Iterator[RenderableType]:
    for ledger in value.ledgers:
        yield from _dumped_ledger(ledger)


def _dumped_ledger(ledger: DumpedLedger) -> Iterator[RenderableType]:
    state = "sealed" if ledger.sealed else "open"
    torn = f", {ledger.torn} torn bytes at its end" if ledger.torn else ""
    yield f"ledger {ledger.ledger} of {ledger.log}: {size(ledger.size)}, {state}, header {ledger.header}{torn}"
    yield ledger.file
    yield table(
        (
            "#entry",
            "#at byte",
            "#bytes",
            "#first",
            "#last",
            "appended",
            "format",
            "codec",
            "#producer",
            "problem",
        ),
        [
            (
                row.entry,
                row.at,
                row.size,
                row.first_offset,
                row.last_offset,
                moment(row.appended),
                row.entry_format or "-",
                row.codec or "-",
                row.producer_id if row.producer_id >= 0 else "-",
                row.problem,
            )
            for row in ledger.entries
        ],
    )


def _repaired(value: Repair) -> Iterator[RenderableType]:
    if not value.actions:
        yield "nothing was done"
    for action in value.actions:
        lost = f" (offsets {action.lost_first} to {action.lost_last})" if action.lost_first >= 0 else ""
        yield f"{action.file}: {action.what}{lost}"
    if value.left:
        yield "left as it is:"
        yield from _findings(value.left)
