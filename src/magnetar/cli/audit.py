"""``magnetar audit``: whether a table equals its topic, record for record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin.errors import AdminError, NotThere
from magnetar.admin.whereabouts import data_directory
from magnetar.cli.options import (
    DEFAULT_BOOTSTRAP,
    AnyFormat,
    AnyTable,
    Bootstrap,
    Data,
    Json,
    Master,
    TableTopic,
    TopicName,
)
from magnetar.cli.output import give, pairs, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from magnetar.pipeline.audit import Audit
    from magnetar.pipeline.audit_differences import Difference

# Spark and what builds on it are loaded when the command runs: no other command waits for them.

EQUAL, NOT_EQUAL = 0, 1
_SHOWN = 50


class NotCompared(AdminError):
    """Nobody can say whether they are equal."""

    status = 3


def audit(
    topic: TopicName,
    table: AnyTable,
    format_: AnyFormat = "auto",
    table_topic: TableTopic = None,
    range_: Annotated[
        int, typer.Option("--range", min=1, metavar="OFFSETS", help="How many offsets share a digest.")
    ] = 100_000,
    most: Annotated[int, typer.Option("--most", min=1, help="How many differences to list.")] = 1000,
    up_to_table: Annotated[
        bool, typer.Option("--up-to-table", help="Stop at the table's last offsets: for one that is behind.")
    ] = False,
    master: Master = None,
    data: Data = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Compare a table with its topic, record for record, and name what differs.

    Ends with 0 if they are equal, 1 if not, 2 if the command was not understood, 3 if they could not be compared.
    """
    from magnetar.pipeline import audit as comparing
    from magnetar.pipeline.audit_table import look_for_table
    from magnetar.pipeline.command_session import command_session, progress

    try:
        look_for_table(table, format_)
        where, options = _whereabouts(data, bootstrap_server)
        question = comparing.AuditRequest(
            topic,
            table,
            where,
            format_,
            table_topic,
            range_offsets=range_,
            max_listed=most,
            up_to_table=up_to_table,
            options=options,
        )
        with command_session("magnetar audit", master) as spark, progress(spark, "comparing", hidden=json):
            found = comparing.audit(spark, question)
    except AdminError as error:
        raise NotCompared(str(error), error.next_step) from error
    except Exception as error:  # Spark, the source and the table formats each raise their own
        raise NotCompared(*told(error)) from error
    give(found, _shown, as_json=json)
    raise typer.Exit(EQUAL if found.is_equal else NOT_EQUAL)


def _whereabouts(data: Path | None, bootstrap: str) -> tuple[Path | None, dict[str, str]]:
    """Return the data directory; where it cannot be seen from here, what has the topic read through the broker."""
    try:
        return data_directory(data, bootstrap), {}
    except NotThere:
        if data is not None:
            raise
        return None, {"kafka.bootstrap.servers": bootstrap}


def told(error: Exception) -> tuple[str, str]:
    """Return what an error of a Spark job says: its first line, and where to read on."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[0], " ".join(getattr(error, "__notes__", ()))


def _shown(value: Audit) -> Iterator[RenderableType]:
    yield pairs(
        [
            ("topic", f"{value.topic}: {value.topic_records:,} records"),
            ("table", f"{value.table} ({value.table_format}): {value.table_records:,} records"),
            ("compared", ", ".join(value.compared)),
            *([("not in the table", ", ".join(value.not_compared))] if value.not_compared else []),
        ]
    )
    yield table(
        ("#partition", "#from", "#to", "#in the topic", "#in the table", "#older", "equal"),
        [
            (
                p.partition,
                p.low,
                p.high - 1,
                f"{p.topic_records:,}",
                f"{p.table_records:,}",
                p.older,
                p.is_equal,
            )
            for p in value.partitions
        ],
    )
    yield pairs([(f"digest: {name}", text) for name, text in value.digests.items()])
    if value.is_equal:
        yield _equal(value)
        return
    yield "NOT EQUAL: " + ", ".join(f"{count:,} {kind}" for kind, count in _counts(value) if count)
    for difference in value.differences[:_SHOWN]:
        yield f"  {_named(value.topic, difference)}"
    for move in value.moved[:_SHOWN]:
        yield (
            f"  {value.topic}-{move.partition}@{move.offset} is in the table as "
            f"partition {move.to_partition}, offset {move.to_offset}"
        )
    if len(value.differences) > _SHOWN or not value.is_complete:
        yield "  and more: --json lists as many as --most says"


def _equal(value: Audit) -> str:
    if not value.is_up_to_table:
        return "EQUAL: every record is in the table once, and as it is in the topic"
    if not value.topic_records:
        return "NOTHING COMPARED: the table has no records, and nothing was asked about behind its last ones"
    count = f"{value.topic_records:,} records"
    return f"EQUAL up to where the table stops: {count} are in it once, and as they are in the topic"


def _counts(value: Audit) -> Iterator[tuple[str, int]]:
    yield from value.counts.items()
    yield "without partition or offset", value.unplaced


def _named(topic: str, difference: Difference) -> str:
    place = f"{topic}-{difference.partition}@{difference.first}"
    if difference.last != difference.first:
        place += f" to {difference.last}"
    count = f" ({difference.records:,} records)" if difference.records > 1 else ""
    columns = f" in {', '.join(difference.columns)}" if difference.columns else ""
    return f"{difference.kind}: {place}{count}{columns}"
