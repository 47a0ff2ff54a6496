"""``magnetar table``: lakehouse tables that follow topics."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from magnetar.admin.errors import AdminError, Invalid
from magnetar.admin.whereabouts import data_directory
from magnetar.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Data, Json, TopicName
from magnetar.cli.output import give, moment, pairs, size, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from magnetar.pipeline.tables import SyncReport
    from magnetar.pipeline.tables.glance import Glance
    from magnetar.pipeline.tables.table import TableState

# Arrow, the table formats and Spark are loaded when a command runs: no other command waits for them.

app = typer.Typer(help="Bring lakehouse tables up to their topics.", no_args_is_help=True)

TableName = Annotated[
    str, typer.Argument(metavar="TABLE", help="A directory or URL; with --catalog, a name in it.")
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="parquet|delta|iceberg", help="For a new table, parquet if it is not given."
    ),
]
Catalog = Annotated[
    str | None,
    typer.Option("--catalog", metavar="NAME", help="Iceberg: a catalog of PyIceberg's configuration."),
]


class NotSynced(AdminError):
    """The table is as far as its last commit says; what could not be done is in the message."""


@app.command()
def sync(
    topic: TopicName,
    table: TableName,
    format_: Format = None,
    catalog: Catalog = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark's master; without it this process does the work.")
    ] = None,
    start: Annotated[
        str, typer.Option("--start", metavar="earliest|JSON", help="Where a new table begins.")
    ] = "earliest",
    isolation: Annotated[
        str, typer.Option(metavar="LEVEL", help="read_uncommitted, or read_committed.")
    ] = "read_uncommitted",
    compression: Annotated[str, typer.Option(help="snappy, zstd, lz4, gzip or none.")] = "snappy",
    file_size: Annotated[int, typer.Option(min=1, metavar="MIB", help="About how large files become.")] = 128,
    per_commit: Annotated[
        int | None,
        typer.Option(min=1, metavar="OFFSETS", help="About how many offsets a commit takes; all else."),
    ] = None,
    keep: Annotated[
        float, typer.Option(min=0, metavar="DAYS", help="How long unused files are retained for readers.")
    ] = 7.0,
    compact: Annotated[bool, typer.Option("--compact/--no-compact", help="Join small files.")] = True,
    fail_on_data_loss: Annotated[
        bool,
        typer.Option(
            "--fail-on-data-loss/--no-fail-on-data-loss",
            help="Stop where the topic does not have what the table needs next or has read, or warn and go on.",
        ),
    ] = True,
    data: Data = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Append to a table what it lacks of a topic, exactly once, and tidy it up.

    The table remembers its offsets itself: run the command again, after whatever happened, and it goes on.
    """
    from magnetar.pipeline import tables
    from magnetar.pipeline.tables.engine import LocalEngine, SparkEngine

    options = {
        "path": str(data_directory(data, bootstrap_server)),
        "startingOffsets": start,
        "isolation": isolation,
        "failOnDataLoss": str(fail_on_data_loss).lower(),
    }
    upkeep = tables.Upkeep(compact=compact, keep_s=keep * 86400)
    with _told(), _spark(master) as spark:
        layout = tables.Layout(file_size << 20, compression)
        with _bar(topic, hidden=json) as progress:
            report = tables.sync(
                topic,
                partial(tables.open, table, format_, layout=layout, **_settings(catalog)),
                options=options,
                engine=LocalEngine() if spark is None else SparkEngine(spark),
                max_offsets_per_commit=per_commit,
                upkeep=upkeep,
                progress=progress,
                at_a_glance=partial(_glance, table, format_, catalog),
            )
    give(report, _synced, as_json=json)


@app.command()
def show(table: TableName, format_: Format = None, catalog: Catalog = None, json: Json = False) -> None:
    """Show how far a table is, and its commits."""
    from magnetar.pipeline import tables

    with _told():
        opened = tables.open(table, format_, create=False, **_settings(catalog))
        state = opened.state()
    give(state, _shown, as_json=json)


def _glance(table: str, format_: str | None, catalog: str | None) -> Glance | None:
    """Look at a table without opening it, where that is worth it and its format is the one that was asked for."""
    from magnetar.pipeline import tables
    from magnetar.pipeline.tables.glance import glance_at

    if catalog is not None or format_ not in (None, "iceberg") or tables.format_of(table) != "iceberg":
        return None
    return glance_at(table)


def _settings(catalog: str | None) -> dict[str, Any]:
    return {} if catalog is None else {"catalog": catalog}


def _spark(master: str | None) -> Any:
    if master is None:
        return nullcontext()
    from magnetar.pipeline.command_session import command_session

    return command_session("magnetar table", master)


@contextmanager
def _told() -> Iterator[None]:
    """Have what tables and the source raise end the command with a sentence instead of a traceback."""
    from magnetar.pipeline.plan import DataLost
    from magnetar.pipeline.tables import TableConflict, TableError

    try:
        yield
    except AdminError:
        raise
    except TableConflict as error:
        raise NotSynced(
            str(error), "Wait for the other writer; running the command again is always safe."
        ) from None
    except DataLost as error:
        raise NotSynced(
            str(error).split(". ")[0],
            "'--no-fail-on-data-loss' goes on with what the topic has; 'magnetar audit' tells what the table has else.",
        ) from None
    except (TableError, OSError) as error:
        raise NotSynced(
            str(error), "Look at the path, its rights and --format; 'magnetar table sync' makes a new table."
        ) from None
    except ValueError as error:
        raise Invalid(str(error)) from None


@contextmanager
def _bar(topic: str, *, hidden: bool) -> Iterator[Callable[[int, int], object]]:
    """Show, on standard error of a terminal, how far it is."""
    if hidden or not sys.stderr.isatty():
        yield lambda rows, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(topic), BarColumn(), MofNCompleteColumn(), TextColumn("rows"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(topic, total=None)
        yield lambda rows, total: bar.update(task, completed=rows, total=total)


def _synced(value: SyncReport) -> Iterator[RenderableType]:
    rate = f" ({value.rows / value.seconds:,.0f} rows/s)" if value.seconds else ""
    yield pairs(
        [
            ("table", f"{value.table} ({value.format}), version {value.version}"),
            ("rows added", f"{value.rows:,} in {value.seconds:.1f} s{rate}"),
            ("files added", f"{value.files}, {size(value.bytes)}, in {value.commits} commits"),
            ("files joined", value.compacted_files),
            ("files deleted", value.expired_files),
        ]
    )
    yield from _ranges(value.ranges)


def _shown(value: TableState) -> Iterator[RenderableType]:
    yield pairs(
        [
            ("table", f"{value.table} ({value.format}), version {value.version}"),
            ("rows", f"{value.rows:,}"),
            ("files", f"{value.files}, {size(value.bytes)}"),
        ]
    )
    if value.position:
        rows = [(t, p, at) for t, ps in value.position.items() for p, at in ps.items()]
        yield table(("topic", "#partition", "#next offset"), rows)
    yield table(
        ("#version", "when", "what", "offsets"),
        [(c.version, moment(c.timestamp_ms), c.operation, _brief(c.ranges)) for c in value.commits],
    )


def _ranges(ranges: Mapping[str, Mapping[str, list[int]]]) -> Iterator[RenderableType]:
    rows = [(t, p, low, high) for t, ps in ranges.items() for p, (low, high) in ps.items()]
    if rows:
        yield table(("topic", "#partition", "#from", "#up to"), [(t, p, a, b - 1) for t, p, a, b in rows])
    else:
        yield "the table has all there is"


def _brief(ranges: Mapping[str, Mapping[str, list[int]]]) -> str:
    told = [f"{t}-{p}: {low} to {high - 1}" for t, ps in ranges.items() for p, (low, high) in ps.items()]
    return ", ".join(told[:3]) + (f" and {len(told) - 3} more" if len(told) > 3 else "")
