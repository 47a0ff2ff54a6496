"""One run of a project: what ``spark-pipelines run`` does, with its events as values and a report behind it."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.pipeline.checkpoints import clear_unbegun
from magnetar.pipeline.jobs.alone import alone
from magnetar.pipeline.jobs.decode.there import making_anew
from magnetar.pipeline.jobs.moved import moved_fields
from magnetar.pipeline.jobs.nothing_new import forget_complete, note_complete, tables_if_nothing_new
from magnetar.pipeline.jobs.outcome import FlowEvent, RunReport, TableReport
from magnetar.pipeline.jobs.passes import empty, passes, registry_of
from magnetar.pipeline.jobs.progress import CHECKPOINTS, TopicProgress, local_storage_of, progress
from magnetar.pipeline.jobs.report import write_report
from magnetar.pipeline.jobs.session import spark_session
from magnetar.pipeline.jobs.spec import SPARK_SPEC_FILE, ProjectSpec
from magnetar.pipeline.jobs.tables import direct_table, place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS = "runs"
_LOCK = ".run.lock"
_STATE = re.compile(r"^(?:Flow|Table|Sink) (?:'|`)?(?P<name>[\w.`-]+?)(?:'|`)? (?:is|has) (?P<state>[A-Z]+)")
_OF_STACK = re.compile(r"\s*at |JVM stacktrace:$|[\w.$]+(Exception|Error)$")


class RunFailed(Exception):
    """A flow failed. The message is Spark's, its first lines; ``next_step`` names the log that has all."""

    next_step = ""


Told = Callable[[FlowEvent], object]


def run(
    project: ProjectSpec, *, told: Told = lambda _: None, refresh: Sequence[str] = (),
    full_refresh: Sequence[str] = (), full_refresh_all: bool = False,
) -> RunReport:  # fmt: skip
    """Bring all tables up to their topics; raise `RunFailed`, `SpecError`, `ProjectBusy` or what a registry raises."""
    with alone("run", project.directory / _LOCK):
        if not (refresh or full_refresh or full_refresh_all):
            unchanged = tables_if_nothing_new(project, project.directory / RUNS)
            if unchanged is not None:
                return _nothing_new(project, unchanged)
        return _run(project, told, refresh, full_refresh, full_refresh_all)


def _nothing_new(project: ProjectSpec, tables: tuple[TableReport, ...]) -> RunReport:
    """Return the report of a run that had nothing to do; it leaves no directory behind."""
    topics = tuple(progress(project, topic) for topic in project.topics.values())
    return RunReport(
        started_ms=round(time.time() * 1000),
        seconds=0.0,
        records=0,
        records_per_s=0.0,
        dead_letters=0,
        tables=tables,
        topics=topics,
        lag=sum(each.lag for each in topics),
        directory="",
    )


def _run(
    project: ProjectSpec,
    told: Told,
    refresh: Sequence[str],
    full_refresh: Sequence[str],
    full_refresh_all: bool,
) -> RunReport:
    before = [progress(project, topic) for topic in project.topics.values()]
    started = time.time()
    place = project.directory / RUNS / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(started))
    place.mkdir(parents=True, exist_ok=True)
    names = [name for topic in project.topics.values() for name in topic.tables]
    forget_complete(project.directory / RUNS)
    anew = names if full_refresh_all else full_refresh
    empty(project, anew)
    storage = local_storage_of(project)
    if storage is not None:
        clear_unbegun(storage / CHECKPOINTS)
    with making_anew(anew), spark_session(project, place / "spark.log") as spark:
        moved = moved_fields(project)
        counts = {name: _rows(project, spark, name) for name in names}
        clock = time.monotonic()
        events = list(_events(project, spark, told, refresh, full_refresh, full_refresh_all, dry=False))
        seconds = time.monotonic() - clock
        took = _durations(events)
        _tidy(project, names, started)
        tables = tuple(_table(project, spark, name, counts[name], took.get(name, 0.0)) for name in names)
    after = tuple(progress(project, topic) for topic in project.topics.values())
    records = sum(_moved(b, a) for b, a in zip(before, after, strict=True))
    dead = {topic.dead_letters for topic in project.topics.values()}
    report = RunReport(
        started_ms=round(started * 1000),
        seconds=round(seconds, 3),
        records=records,
        records_per_s=round(records / seconds, 1) if seconds else 0.0,
        dead_letters=sum(max(each.added, 0) for each in tables if each.table in dead),
        tables=tables,
        topics=after,
        lag=sum(each.lag for each in after),
        directory=str(place),
        moved=moved,
    )
    write_report(report, events, place)
    if not (refresh or full_refresh):
        note_complete(project, project.directory / RUNS, tables)
    return report


def check(project: ProjectSpec, *, told: Told = lambda _: None) -> tuple[str, ...]:
    """Have Spark analyse the whole graph without running it; give the tables' names."""
    local_storage_of(project)
    for topic in project.topics.values():
        progress(project, topic)
    with spark_session(project, project.directory / "check.log") as spark:
        list(_events(project, spark, told, (), (), False, dry=True))
    (project.directory / "check.log").unlink(missing_ok=True)
    return tuple(name for topic in project.topics.values() for name in topic.tables)


def _events(
    project: ProjectSpec, spark: SparkSession, told: Told, refresh: Sequence[str],
    full_refresh: Sequence[str], full_refresh_all: bool, *, dry: bool,
) -> Iterator[FlowEvent]:  # fmt: skip
    from pyspark.errors import PySparkException
    from pyspark.pipelines import cli

    path = project.directory / SPARK_SPEC_FILE
    clock = time.monotonic()
    last = ""
    try:
        spec = cli.load_pipeline_spec(path)
        for name, value in spec.configuration.items():
            spark.conf.set(name, value)
        for each in passes(project, refresh, full_refresh, full_refresh_all, dry=dry):
            # Spark runs a graph once.
            graph = cli.create_dataflow_graph(
                spark,
                default_catalog=spec.catalog,
                default_database=spec.database,
                sql_conf=spec.configuration,
            )
            registry = registry_of(spark, graph, each)
            with redirect_stdout(sys.stderr):  # where Spark says what it loads
                cli.register_definitions(path, registry, spec, spark, graph)
            if registry.is_empty:  # with current: none nothing is left for the last pass
                continue
            results = cli.start_run(
                spark, graph, full_refresh=list(each.anew), full_refresh_all=full_refresh_all,
                refresh=[], dry=dry, storage=spec.storage,
            )  # fmt: skip
            for result in results:
                if "pipeline_event_result" in result:
                    event = _event(result["pipeline_event_result"].event.message, time.monotonic() - clock)
                    last = event.message if "FAILED" in event.state else last
                    told(event)
                    yield event
    except PySparkException as error:
        raise RunFailed(_cause(f"{error}\n{last}")) from error
    if last:
        raise RunFailed(_cause(last))


def _event(message: str, seconds: float) -> FlowEvent:
    match = _STATE.match(message)
    if match:
        return FlowEvent(
            round(seconds, 3), match["name"].rsplit(".", 1)[-1].strip("`"), match["state"], message
        )
    whole = re.match(r"Run (?:is|has) ([A-Z]+)", message)
    return FlowEvent(round(seconds, 3), "", whole[1] if whole else "", message)


def _cause(text: str) -> str:
    """Return Spark's words without the stack: an error raised in Python on a worker says most in its last line."""
    lines = [line for line in text.splitlines() if line.strip() and not _OF_STACK.match(line)]
    python = [line for line in lines if re.match(r"\s*[\w.]*magnetar[\w.]*\.\w+: ", line)]
    return (python[-1].strip() if python else "\n".join(lines[:6])).strip()


def _durations(events: Sequence[FlowEvent]) -> dict[str, float]:
    began: dict[str, float] = {}
    took: dict[str, float] = {}
    for event in events:
        if event.state == "STARTING":
            began[event.table] = event.seconds
        elif event.state == "COMPLETED" and event.table in began:
            took[event.table] = round(event.seconds - began[event.table], 3)
    return took


def _rows(project: ProjectSpec, spark: SparkSession, name: str) -> int:
    if project.is_direct(name):
        table = direct_table(project, name)
        return 0 if table is None else sum(each.live_rows for each in table.files())
    return int(spark.table(name).count()) if spark.catalog.tableExists(name) else 0


def _table(project: ProjectSpec, spark: SparkSession, name: str, before: int, seconds: float) -> TableReport:
    rows = _rows(project, spark, name)
    if project.is_direct(name):
        table = direct_table(project, name)
        files = 0 if table is None else len(table.files())
    else:
        files = len(spark.table(name).inputFiles()) if spark.catalog.tableExists(name) else 0
    return TableReport(name, rows, rows - before, files, seconds)


def _tidy(project: ProjectSpec, names: Sequence[str], started: float) -> None:
    """Join small files of the tables that Magnetar writes, and let go of what has been out of use for a week.

    Of the tables that Spark writes, let go of what killed runs began and nobody counts.
    """
    from magnetar.pipeline.tables import Upkeep
    from magnetar.pipeline.tables.engine import LocalEngine
    from magnetar.pipeline.tables.listing import remove_uncommitted
    from magnetar.pipeline.tables.maintenance import tidy

    for name in names:
        if not project.is_direct(name):
            place = place_of(project, name)
            if "://" not in place:
                remove_uncommitted(Path(place), started)
        elif (table := direct_table(project, name)) is not None:
            with table.writing():
                tidy(table, LocalEngine(), Upkeep())


def _moved(before: TopicProgress, after: TopicProgress) -> int:
    """Return how many offsets were read; those of transactions' marks and other gaps count too."""
    start = {each.partition: each.next_offset for each in before.partitions}
    return sum(max(each.next_offset - start.get(each.partition, each.first), 0) for each in after.partitions)
