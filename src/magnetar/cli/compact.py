"""``magnetar topic compact``: compact a topic now, and wait until that is done."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, cast

import typer

from magnetar.admin.client import Way
from magnetar.admin.compaction import TopicCompaction
from magnetar.admin.errors import AdminError, Invalid
from magnetar.admin.whereabouts import way_to_ask
from magnetar.cli.options import DEFAULT_BOOTSTRAP, Admin, Bootstrap, Data, Json, Partitions, TopicName
from magnetar.cli.output import give, pairs, size, table

if TYPE_CHECKING:
    from rich.console import RenderableType

_EVERY_S = 0.2


def compact(
    name: TopicName,
    partition: Partitions = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until it is done, or return immediately.")
    ] = True,
    status: Annotated[
        bool, typer.Option("--status", help="Begin none: show how the last one went, or goes.")
    ] = False,
    data: Data = None,
    admin: Admin = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Keep the newest record of every key: begin to compact a topic, and wait until that is done.

    Does what pulsar-admin's compact does. Of a topic with cleanup.policy=compact the older records make room; of others
    the history stays, beside what is compacted. Ends with 1 if a partition could not be compacted.
    """
    if status and not wait:
        raise Invalid("--status begins nothing that --no-wait could leave alone", "Give one of both.")
    way = way_to_ask(data, admin, bootstrap_server)
    asked: dict[str, object] = {"topic": name, "partitions": partition or []}
    found = cast(TopicCompaction, way.ask("compaction" if status else "compact", **asked))
    if wait and not status:
        found = _done(way, asked, found, hidden=json)
    give(found, _shown, as_json=json)
    for each in found.partitions:
        if each.status == "ERROR":
            raise AdminError(
                f"{name}-{each.partition} was not compacted, and is as it was: {each.error}",
                "Run 'magnetar ledger verify', and look at the broker's log.",
            )
        if wait and not status and each.status != "SUCCESS":
            raise AdminError(
                f"{name}-{each.partition} was not compacted: was the broker restarted?", "Try again."
            )


def _done(way: Way, asked: dict[str, object], found: TopicCompaction, *, hidden: bool) -> TopicCompaction:
    """Wait until no partition is being compacted; show, on standard error of a terminal, how many are done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("compacting"), BarColumn(), MofNCompleteColumn(), TextColumn("partitions"))
    to_terminal = sys.stderr.isatty() and not hidden
    with Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True, disable=not to_terminal
    ) as bar:
        task = bar.add_task("", total=len(found.partitions))
        while found.running:
            time.sleep(_EVERY_S)
            found = cast(TopicCompaction, way.ask("compaction", **asked))
            bar.update(task, completed=len(found.partitions) - found.running)
    return found


def _shown(value: TopicCompaction) -> Iterator[RenderableType]:
    kept = "the older records made room" if value.replaces else "the history stays beside it"
    yield pairs([("topic", value.topic), ("compacted", kept)])
    rows = [
        (p.partition, p.status, p.removed, p.took_ms, size(p.compacted_size), size(p.waiting_size))
        for p in value.partitions
    ]
    yield table(("#partition", "status", "#left out", "#ms", "#compacted", "#waits"), rows)
    if any(each.waiting_size for each in value.partitions) and not value.running:
        yield (
            "What waits can be compacted later: it came meanwhile, is younger than min.compaction.lag.ms, or is read "
            "by a job with a pin."
        )
