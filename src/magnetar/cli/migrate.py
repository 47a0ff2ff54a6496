"""``magnetar migrate``: what other systems wrote, made into what is written here."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin.errors import Invalid
from magnetar.cli.options import DryRun, Json, Master, Yes, confirm
from magnetar.cli.output import give, pairs, size, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from magnetar.admin.migrate import Migration

# What opens data directories brings a storage engine along: it is loaded by the commands that need it.

app = typer.Typer(help="Bring in what other systems wrote.", no_args_is_help=True)
_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Dropped:
    """How many bytes of old files were deleted."""

    data: str
    freed: int


@app.callback()
def _group() -> None:
    """Keep ``packed-offsets`` a command of its own although it is the only one."""


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
        from magnetar.admin.migrate import drop_old as drop

        give(Dropped(str(data), drop(data)), _dropped, as_json=json)
        return
    from magnetar.admin.migrate import migrate

    if spark or master is not None:
        done = _by_spark(data, master, dry_run=dry_run, hidden=json)
    else:
        with _bar(hidden=json) as progress:
            done = migrate(data, dry_run=dry_run, progress=progress)
    give(done, _migrated, as_json=json)


def _by_spark(data: Path, master: str | None, *, dry_run: bool, hidden: bool) -> Migration:
    """Migrate by Spark's tasks; the directory must be seen by all of its workers under the same name."""
    from magnetar.admin.migrate import migrate
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
