"""``magnetar migrate``: what other systems wrote, made into what is written here."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import AdminError, Invalid
from magnetar.base.printable import printable_lines
from magnetar.cli.cluster_place import Bookkeeper, ClientConfig, Config, Metadata, place_of
from magnetar.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, DryRun, Json, Master, Yes, confirm
from magnetar.cli.output import give, pairs, size, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from magnetar.migrate.from_kafka import FromKafka, FromKafkaRun
    from magnetar.migrate.from_kafka_groups import GroupMoved
    from magnetar.migrate.migrate import Migration
    from magnetar.migrate.takeover import Takeover

# What opens data directories brings a storage engine along: it is loaded by the commands that need it.

app = typer.Typer(help="Bring in what other systems wrote.", no_args_is_help=True)
_SHOWN = 50
_LOOK_S = 10


@dataclass(frozen=True, slots=True)
class Dropped:
    """How many bytes of old files were deleted."""

    data: str
    freed: int


@app.command("packed-offsets")
def packed_offsets(
    data: Annotated[
        Path, typer.Option("--data", exists=True, file_okay=False, help="A stopped broker's data directory.")
    ],
    dry_run: DryRun = False,
    drop_old: Annotated[
        bool,
        typer.Option("--drop-old", help="Delete the old files of an earlier migration; do nothing else."),
    ] = False,
    spark: Annotated[
        bool, typer.Option("--spark", help="Have Spark's tasks read and write the ledgers, for large topics.")
    ] = False,
    master: Master = None,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Give topics of KoP before 2.8 continuous offsets, and translate what groups committed.

    No topic is deleted; the old files are kept until --drop-old. Killed at any moment, it can be run again.
    """
    if drop_old and dry_run:
        raise Invalid("--drop-old cannot be tried", "Leave out --dry-run, or --drop-old.")
    if drop_old:
        confirm(f"Delete the files in {data} as they were before the migration?", yes=yes)
        from magnetar.migrate.migrate import drop_old as drop

        give(Dropped(str(data), drop(data)), _dropped, as_json=json)
        return
    from magnetar.migrate.migrate import migrate

    if spark or master is not None:
        done = _by_spark(data, master, dry_run=dry_run, hidden=json)
    else:
        with _bar(hidden=json) as progress:
            done = migrate(data, dry_run=dry_run, progress=progress)
    give(done, _migrated, as_json=json)


def _by_spark(data: Path, master: str | None, *, dry_run: bool, hidden: bool) -> Migration:
    """Migrate by Spark's tasks; the directory must be seen by all of its workers under the same name."""
    from magnetar.migrate.migrate import migrate
    from magnetar.pipeline.command_session import command_session, progress

    with command_session("magnetar migrate", master) as spark, progress(spark, "rewriting", hidden=hidden):
        return migrate(data, dry_run=dry_run, spark=spark)


@contextmanager
def _bar(*, hidden: bool) -> Iterator[Callable[[int, int], object]]:
    """Show, on standard error of a terminal, how far it is."""
    if hidden or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("rewriting"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("rewriting", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _dropped(value: Dropped) -> Iterator[RenderableType]:
    yield f"{size(value.freed)} freed"


def _migrated(value: Migration) -> Iterator[RenderableType]:
    if value.resumed:
        yield "an earlier migration had been interrupted: it is complete now"
    if not value.logs and not value.committed:
        yield "every topic has an index: there is nothing to migrate"
        return
    yield table(
        ("partition", "#ledgers", "#entries of Kafka", "#of Pulsar", "#next offset"),
        [(x.log, x.ledgers, x.entries_kafka, x.entries_pulsar, x.next_offset) for x in value.logs],
    )
    landings = Counter(each.landing.value for each in value.committed)
    rows = [("committed offsets", len(value.committed)), *((f"  at: {k}", n) for k, n in landings.items())]
    yield pairs([("read", size(value.bytes)), *rows])
    if value.committed:
        yield table(
            ("group", "topic", "#partition", "#was", "#is", "points at"),
            [
                (x.group, x.topic, x.partition, x.packed, x.offset, x.landing.value)
                for x in value.committed[:_SHOWN]
            ],
        )
    if len(value.committed) > _SHOWN:
        yield f"and {len(value.committed) - _SHOWN} more: --json lists all"
    if value.dry_run:
        yield "nothing was changed: this was a dry run"
    else:
        yield f"the old files are in {value.data}/packed-offsets/old; --drop-old deletes them"


@app.command("from-kafka")
def from_kafka(
    source: Annotated[
        str, typer.Option("--source", metavar="HOST:PORT", help="A broker of the cluster to move from.")
    ],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    source_config: Annotated[
        Path | None,
        typer.Option(
            "--source-config",
            exists=True,
            dir_okay=False,
            help="Kafka client settings for the source: security.protocol and so on.",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", metavar="PATTERN", help="Only such topics, as in 'orders*'; repeatable."
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", metavar="PATTERN", help="Only such groups; repeatable."),
    ] = None,
    acls: Annotated[bool, typer.Option(help="Whether ACLs are copied.")] = True,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on copying what comes, until interrupted.")
    ] = False,
    cut_over: Annotated[
        bool,
        typer.Option("--cut-over", help="Wait until the source is quiet, compare, and lead the topics here."),
    ] = False,
    quiet_s: Annotated[
        float, typer.Option("--quiet", metavar="SECONDS", min=0, help="How long nothing may come before.")
    ] = 5,
    audit: Annotated[
        bool, typer.Option("--audit", help="Compare all that was copied, batch by batch.")
    ] = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Move topics of a Kafka cluster here while they are in use: same offsets, groups' offsets, ACLs.

    Run it as often as you like, it goes on where the logs here end; until --cut-over producers here have to wait.
    """
    if follow and cut_over:
        raise Invalid("--follow goes on until interrupted", "Interrupt it, and run --cut-over then.")
    from magnetar.migrate.from_kafka import FromKafkaRun, parse_wanted

    wanted = parse_wanted(topic, group, acls=acls)
    with (
        ClusterAdmin(source, credentials_in=source_config, timeout_s=30) as there,
        ClusterAdmin(bootstrap_server, timeout_s=30) as here,
        _telling(hidden=json) as (say, progress),
        FromKafkaRun(there, here, wanted, say, progress) as migration,
    ):
        done = migration.plan() if dry_run else _moved(migration, follow, cut_over, quiet_s, audit)
    give(done, _from_kafka, as_json=json)


def _moved(migration: FromKafkaRun, follow: bool, cut_over: bool, quiet_s: float, audit: bool) -> FromKafka:
    migration.begin()
    migration.catch_up()
    acls = migration.acls()
    groups = migration.groups()
    if follow:
        groups = _followed(migration, groups)
    compared = migration.audit() if audit or cut_over else None
    if not cut_over:
        return migration.report(groups, acls, compared)
    migration.look_again()
    migration.wait_until_quiet(quiet_s)
    return migration.cut_over(migration.groups(), acls)


def _followed(migration: FromKafkaRun, groups: tuple[GroupMoved, ...]) -> tuple[GroupMoved, ...]:
    """Go on until interrupted; what groups commit and partitions that topics are given follow every ten seconds."""
    due = time.monotonic()
    try:
        while True:
            migration.copy()
            if time.monotonic() >= due:
                migration.look_again()
                groups = migration.groups()
                due = time.monotonic() + _LOOK_S
    except KeyboardInterrupt:
        return groups


@contextmanager
def _telling(*, hidden: bool) -> Iterator[tuple[Callable[[str], object], Callable[[int, int], object]]]:
    """Show, on standard error, what is done or waited for, each thing once; and on a terminal how far it is."""
    said = ""

    def say(text: str) -> None:
        nonlocal said
        if text != said:
            said = text
            print(printable_lines(f"magnetar: {text}"), file=sys.stderr, flush=True)

    if hidden or not sys.stderr.isatty():
        yield say, lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("copying", total=None)
        yield (
            lambda text: bar.update(task, description=text),
            lambda done, total: bar.update(task, completed=done, total=total),
        )


def _from_kafka(value: FromKafka) -> Iterator[RenderableType]:
    yield table(
        ("topic", "#partition", "#first", "#next", "#source first", "#source next", "#expired"),
        [
            (x.topic, x.partition, x.first, x.next, x.source_first, x.source_next, x.expired)
            for x in value.partitions
        ],
    )
    for each in value.topics:
        if each.left_out:
            yield f"{each.topic}: nothing like {', '.join(each.left_out)} here"
        for name, how in each.differs.items():
            yield f"{each.topic}: {name} follows the cluster: {how}"
    for moved in value.groups:
        yield f"group {moved.group}: {moved.left_out or f'{moved.partitions} partitions'}"
    acls = f"{value.acls.kept} of {value.acls.entries}"
    yield pairs(
        [
            ("copied", size(value.bytes)),
            ("ACLs", f"{acls}: {value.acls.left_out}" if value.acls.left_out else acls),
            *(
                []
                if value.audit is None
                else [("compared", f"{value.audit.records} records in {value.audit.batches} batches, equal")]
            ),
        ]
    )
    if value.dry_run:
        yield "nothing was changed: this was a dry run"
    elif value.cut_over:
        yield "the topics are led here now"
    else:
        yield "the topics are led by the source still: --cut-over ends that"


@app.command("from-pulsar")
def from_pulsar(
    config: Config = None,
    metadata: Metadata = None,
    bookkeeper: Bookkeeper = None,
    metadata_config: ClientConfig = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Say what can be served, and what stands in the way; change nothing."),
    ] = False,
    take: Annotated[bool, typer.Option("--take", help="Have Magnetar brokers serve it.")] = False,
    back: Annotated[bool, typer.Option("--back", help="Have Pulsar brokers serve it again.")] = False,
    json: Json = False,
) -> None:
    """Serve a cluster of Pulsar's in place, from the same ZooKeeper and bookies; ends with 1 if that cannot be.

    No record is copied. End Pulsar's brokers before --take, and Magnetar's before --back; each can be run again.
    """
    if check + take + back != 1:
        raise Invalid("one of --check, --take and --back is to be named", "Begin with --check.")
    scheme = (metadata or "").partition(":")[0]
    if scheme in ("etcd", "rocksdb", "oxia", "memory"):
        raise Invalid(
            f"the metadata lie in {scheme}, and brokers of Magnetar's share theirs in ZooKeeper only",
            "Move them to ZooKeeper first.",
        )
    try:
        from magnetar.ledger.bookkeeper.jvm import end_jvm_in_order
        from magnetar.migrate import from_pulsar_commands as commands
    except ImportError as error:
        raise AdminError(f"{error.name} is not installed", "pip install 'magnetar[cluster]'") from error

    do = commands.check if check else commands.take if take else commands.back
    place = place_of(config, metadata, bookkeeper, metadata_config).place
    with _telling(hidden=json) as (_, progress):
        try:
            found = do(place, progress)
        finally:
            end_jvm_in_order()
    give(found, _taken_over, as_json=json)
    if not found.is_possible and not back:
        raise typer.Exit(1)


def _taken_over(value: Takeover) -> Iterator[RenderableType]:
    yield table(
        ("topic", "state", "#ledgers", "#entries", "#subscriptions"),
        [(x.topic, x.state, x.ledgers, x.entries, x.subscriptions) for x in value.topics[:_SHOWN]],
    )
    if len(value.topics) > _SHOWN:
        yield f"and {len(value.topics) - _SHOWN} more: --json lists all"
    states = Counter(each.state for each in value.topics)
    yield pairs(
        [
            ("cluster", ", ".join(value.clusters) or None),
            *states.items(),
            ("schemas as Pulsar has them", value.schemas_of_pulsar),
            ("topics with policies of their own", len(value.policies_of_pulsar)),
            ("groups of KoP", len(value.groups_of_kop)),
            (
                "moved",
                f"{value.topics_moved} topics, {value.schemas_moved} schemas, {value.cursors_moved} cursors, "
                f"{value.policies_moved} topics' policies, {value.groups_moved} groups",
            ),
        ]
    )
    if value.policies_of_pulsar:
        yield table(
            ("topic", "its own policies", "not honoured"),
            [
                (x.topic, ", ".join(x.policies), ", ".join(x.not_honoured))
                for x in value.policies_of_pulsar[:_SHOWN]
            ],
        )
    if value.groups_of_kop:
        yield table(
            ("namespace", "group", "#partitions committed"),
            [(x.namespace, x.group, x.offsets) for x in value.groups_of_kop[:_SHOWN]],
        )
    for each in value.findings:
        yield f"{each.severity}: {each.what}"
        if each.next_step:
            yield f"  -> {each.next_step}"
    if not value.is_possible:
        yield "it cannot be served in place as long as there are errors"
