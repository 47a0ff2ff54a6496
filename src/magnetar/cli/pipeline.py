"""``magnetar pipeline``: projects of Spark Declarative Pipelines, from topics to tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from magnetar.admin.errors import AdminError, Invalid
from magnetar.cli.options import DryRun, Json, Yes, confirm
from magnetar.cli.output import give, pairs, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from magnetar.pipeline.jobs.outcome import FlowEvent, RunReport
    from magnetar.pipeline.jobs.project import Created

# Spark and what builds on it are loaded when a command runs: no other command waits for them.

app = typer.Typer(help="Make and run Spark pipelines from topics to tables.", no_args_is_help=True)

Project = Annotated[
    Path, typer.Argument(metavar="DIRECTORY", help="The project; default: the one around here.")
]


@app.command()
def init(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="Where the project's files shall be.")
    ],
    topic: Annotated[str, typer.Option("--topic", help="The topic to begin with.")],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="The broker's data directory; else records come through Fetch."),
    ] = None,
    bootstrap_servers: Annotated[
        str,
        typer.Option(
            "--bootstrap-server", "-b", metavar="HOST:PORT", help="The broker, for Fetch and replay."
        ),
    ] = "",
    format: Annotated[str, typer.Option("--format", help="json, avro, protobuf or bytes.")] = "json",
    schema: Annotated[
        str, typer.Option("--schema", metavar="DDL", help="Columns of JSON, as Spark DDL.")
    ] = "",
    schema_file: Annotated[
        Path | None,
        typer.Option("--schema-file", help="An .avsc, .proto, .desc, .json or .ddl file; it is copied."),
    ] = None,
    registry: Annotated[str, typer.Option("--registry", metavar="URL", help="A schema registry.")] = "",
    envelope: Annotated[str, typer.Option("--envelope", help="none or debezium.")] = "none",
    current: Annotated[
        str | None,
        typer.Option("--current", help="rebuild, upsert or none; rebuild for parquet, upsert for others."),
    ] = None,
    table_format: Annotated[
        str, typer.Option("--table-format", help="parquet, delta or iceberg.")
    ] = "parquet",
    writer: Annotated[
        str,
        typer.Option("--writer", help="direct: files straight from Arrow, or spark: by Spark's own writer."),
    ] = "direct",
    json: Json = False,
) -> None:
    """Make a project: plain files, which are yours from then on."""
    with _told_plainly():
        from magnetar.pipeline.jobs.project import create

        made = create(
            directory, topic, data, format=format, schema=schema, schema_file=schema_file, registry=registry,
            envelope=envelope, current=current, table_format=table_format, bootstrap=bootstrap_servers,
            writer=writer,
        )  # fmt: skip
    give(made, _created, as_json=json)


@app.command()
def check(directory: Project = Path(), json: Json = False) -> None:
    """Check the project's files, its topics and schemas, and have Spark analyse every table. Nothing is written."""
    with _told_plainly():
        from magnetar.pipeline.jobs.run import check as check_all

        project = _load(directory)
        tables = check_all(project)
    give(CheckedProject(str(project.directory), tables), _checked, as_json=json)


@app.command()
def plan(directory: Project = Path(), json: Json = False) -> None:
    """Show what the next run would read, and which columns the tables would get. Spark is not started."""
    with _told_plainly():
        from magnetar.pipeline.jobs.plan import plan as plan_next

        planned = plan_next(_load(directory))
    give(planned, _planned, as_json=json)


@app.command()
def run(
    directory: Project = Path(),
    refresh: Annotated[
        list[str] | None, typer.Option("--refresh", metavar="TABLE", help="Only this; repeatable.")
    ] = None,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option("--full-refresh", metavar="TABLE", help="Empty it and start again; repeatable."),
    ] = None,
    full_refresh_all: Annotated[
        bool, typer.Option("--full-refresh-all", help="Start again with all tables.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Bring all tables up to their topics."""
    if full_refresh or full_refresh_all:
        what = "all tables" if full_refresh_all else ", ".join(full_refresh or [])
        confirm(f"Empty {what} and read the topics from their beginning?", yes=yes)
    with _told_plainly():
        from magnetar.pipeline.jobs.run import run as run_once

        project = _load(directory)
        with _bars(project, quiet=json) as told:
            report = run_once(
                project, told=told, refresh=refresh or (), full_refresh=full_refresh or (),
                full_refresh_all=full_refresh_all,
            )  # fmt: skip
    give(report, _ran, as_json=json)


@app.command()
def status(directory: Project = Path(), json: Json = False) -> None:
    """Show how far the tables are, and the last runs. Spark is not started."""
    with _told_plainly():
        from magnetar.pipeline.jobs.status import status as status_of

        found = status_of(_load(directory))
    give(found, _status, as_json=json)


@app.command()
def replay(
    directory: Project = Path(),
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic's dead letters.")] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TOPIC", help="A retry topic; the topic itself by default.")
    ] = None,
    error: Annotated[
        str, typer.Option("--error", metavar="TEXT", help="Only those whose error has this text.")
    ] = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Send dead letters again, each once, and mark them."""
    with _told_plainly():
        from magnetar.pipeline.jobs.replay import replay as send_again

        project = _load(directory)
        if not dry_run:
            confirm(
                f"Send the dead letters of {topic or 'all topics'} to {to or 'their topic'} again?", yes=yes
            )
        sent = send_again(project, topic=topic, to=to, error=error, dry_run=dry_run)
    give(sent, _replayed, as_json=json)


@dataclass(frozen=True, slots=True)
class CheckedProject:
    """A project in which nothing is wrong."""

    directory: str
    tables: tuple[str, ...]


class PipelineFailed(AdminError):
    """A run that did not come to its end."""


@contextmanager
def _told_plainly() -> Iterator[None]:
    """Return errors of the pipeline as the command line's own."""
    try:
        from magnetar.pipeline.jobs.alone import ProjectBusy
        from magnetar.pipeline.jobs.decode.registry import RegistryUnavailable
        from magnetar.pipeline.jobs.replay import ReplayFailed
        from magnetar.pipeline.jobs.run import RunFailed
        from magnetar.pipeline.jobs.spec import NoProject, SpecError
    except ImportError as error:
        raise PipelineFailed(f"pipelines need {error.name}", "Install magnetar[spark].") from None
    try:
        yield
    except NoProject as error:
        raise Invalid(
            str(error),
            "Name its directory, or make one with 'magnetar pipeline init DIRECTORY --topic TOPIC'.",
        ) from None
    except SpecError as error:
        raise Invalid(str(error)) from None
    except ProjectBusy as error:
        raise PipelineFailed(str(error), "Wait for its end; what it has done stays.") from None
    except RegistryUnavailable as error:
        raise PipelineFailed(str(error), "Start it, or correct registry.url.") from None
    except ReplayFailed as error:
        raise PipelineFailed(str(error), "Run replay again: what was sent is marked.") from None
    except RunFailed as error:
        raise PipelineFailed(str(error), error.next_step) from None


def _load(directory: Path) -> Any:
    from magnetar.pipeline.jobs.spec import load_spec
    from magnetar.pipeline.jobs.topic import find_project

    return load_spec(find_project(None if directory == Path() else directory))


@contextmanager
def _bars(project: Any, *, quiet: bool) -> Iterator[Any]:
    """Show a line per table and its state while a run is on; nothing where nobody watches."""
    if quiet or not sys.stdout.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    names = [name for topic in project.topics.values() for name in topic.tables]
    steps = {"QUEUED": 0, "PLANNING": 1, "STARTING": 1, "RUNNING": 2, "COMPLETED": 3}
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, TimeElapsedColumn()) as shown:
        tasks = {name: shown.add_task(name, total=3, state="waiting") for name in names}

        def told(event: FlowEvent) -> None:
            if event.table in tasks:
                at = steps.get(event.state)
                shown.update(tasks[event.table], completed=at, state=event.state.lower())

        yield told


def _created(value: Created) -> Iterator[RenderableType]:
    yield f"made {value.directory}"
    for name in value.files:
        yield f"  {name}"
    yield "'magnetar pipeline check' looks at it, 'magnetar pipeline run' runs it"


def _checked(value: CheckedProject) -> Iterator[RenderableType]:
    yield f"{value.directory} is in order; its tables are {', '.join(value.tables)}"


def _planned(value: Any) -> Iterator[RenderableType]:
    rows = [(t.topic, p.partition, p.next_offset, p.end, p.lag) for t in value.topics for p in t.partitions]
    yield table(("topic", "#partition", "#from", "#to", "#records"), rows)
    yield table(("table", "columns"), [(each.table, each.columns) for each in value.tables])


def _ran(value: RunReport) -> Iterator[RenderableType]:
    rows = [
        (
            each.table,
            f"{each.rows:,}",
            f"{each.added:+,}" if each.added else "",
            each.files,
            f"{each.seconds:.1f}",
        )
        for each in value.tables
    ]
    yield table(("table", "#rows", "#added", "#files", "#seconds"), rows)
    read = f"{value.records:,} in {value.seconds:.1f} s, {value.records_per_s:,.0f} per second"
    yield pairs(
        [
            ("records", read if value.records else "nothing new"),
            ("dead letters", f"{value.dead_letters:,}" if value.dead_letters else "none"),
            ("lag", f"{value.lag:,} records came meanwhile" if value.lag else "none"),
            (
                "report",
                f"{value.directory}/report.html" if value.directory else "none: nothing was to be done",
            ),
        ]
    )
    yield from (f"  {each}" for each in value.moved)
    if value.dead_letters:
        yield "  -> 'magnetar pipeline replay' sends dead letters again once their cause is gone"


def _status(value: Any) -> Iterator[RenderableType]:
    rows = [(t.topic, p.partition, p.next_offset, p.end, p.lag) for t in value.topics for p in t.partitions]
    yield table(("topic", "#partition", "#next offset", "#end", "#lag"), rows)
    runs = [(each.started, each.records, each.dead_letters, f"{each.seconds:.1f}") for each in value.runs]
    yield table(("run", "#records", "#dead letters", "#seconds"), runs)


def _replayed(value: Any) -> Iterator[RenderableType]:
    rows = [(each.topic, each.to, each.found, each.sent_before, each.sent) for each in value.topics]
    yield table(("topic", "to", "#dead letters", "#sent before", "#sent now"), rows)
