"""Bring a table up to its topic: every record that is visible now, once, offset for offset.

The table itself knows where it ends, so there is no checkpoint beside it that could be lost or be of another table:
to run it again, after whatever happened, goes on from the last commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from magnetar.pipeline.admission import admit
from magnetar.pipeline.options import Offsets
from magnetar.pipeline.tables.engine import Engine, LocalEngine
from magnetar.pipeline.tables.files import DataFile
from magnetar.pipeline.tables.maintenance import Upkeep, tidy
from magnetar.pipeline.tables.ranges import OffsetRange, ranges_between, ranges_to_json
from magnetar.pipeline.tables.records import TopicView, tasks_of
from magnetar.pipeline.tables.table import Table

Progress = Callable[[int, int], object]
"""Told (rows written, offsets that there are to read) now and then."""


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What one run did."""

    table: str
    format: str
    version: int
    rows: int = 0
    bytes: int = 0
    files: int = 0
    commits: int = 0
    compacted_files: int = 0
    expired_files: int = 0
    seconds: float = 0.0
    ranges: dict[str, dict[str, list[int]]] = field(default_factory=dict)


def sync(
    topic: str,
    table: Table,
    *,
    options: Mapping[str, str],
    engine: Engine | None = None,
    max_offsets_per_commit: int | None = None,
    upkeep: Upkeep | None = None,
    progress: Progress = lambda rows, total: None,
) -> SyncReport:
    """Append to ``table`` what it lacks of ``topic`` (several: comma-separated), up to what is visible at the start.

    ``options`` are those of the source; ``path`` says where the ledgers are, and ``startingOffsets`` where a table
    that has nothing yet begins. With ``max_offsets_per_commit`` there are several commits of about so many offsets,
    as in Spark's AvailableNow. ``upkeep`` says what is tidied up in the same run.

    Raises what `magnetar.pipeline.tables.errors` names, and the source's errors.
    """
    began = time.monotonic()
    with table.writing():
        with TopicView({**options, "subscribe": topic}) as look:
            run = _Run(look, table, engine or LocalEngine(), progress)
            run.to_the_end(max_offsets_per_commit)
        compacted, expired = tidy(table, engine or LocalEngine(), upkeep or Upkeep())
    return replace(
        run.report,
        version=table.version,
        compacted_files=compacted,
        expired_files=expired,
        seconds=time.monotonic() - began,
    )


def missing(
    topic: str, table: Table, *, options: Mapping[str, str]
) -> tuple[list[OffsetRange], dict[str, str]]:
    """Return what ``table`` lacks of ``topic`` now, and the topic's id: what `append` wants beside rows made of it."""
    with TopicView({**options, "subscribe": topic}) as look:
        table.check_topics(look.ids)
        starts = _starts(look, table)
        ends = {which: max(end, starts[which]) for which, end in look.ends().items()}
        return ranges_between(starts, ends), look.ids


class _Run:
    """One run: where it began, where it will end, and what it did so far."""

    def __init__(self, topic: TopicView, table: Table, engine: Engine, progress: Progress) -> None:
        table.check_topics(topic.ids)
        self._topic = topic
        self._table = table
        self._engine = engine
        self._progress = progress
        self._at = _starts(topic, table)
        self._target = {which: max(end, self._at[which]) for which, end in topic.ends().items()}
        self._total = sum(self._target[which] - self._at[which] for which in self._target)
        ranges = ranges_to_json(ranges_between(self._at, self._target))
        self.report = SyncReport(str(table.place), table.format, table.version, ranges=ranges)

    def to_the_end(self, most: int | None) -> None:
        """Commit until all is there; a table that never saw its topic is told of it even if that is empty."""
        self._progress(0, self._total)
        while self._at != self._target or not set(self._topic.ids) <= set(self._table.topics()):
            self._step(self._target if most is None else admit(self._at, self._target, most))

    def _step(self, ends: Offsets) -> None:
        pieces = self._topic.pieces(self._at, ends)
        ranges = ranges_between(self._at, ends)
        added = self._table.append(partial(self._write, pieces), ranges, self._topic.ids)
        self._at = ends
        self.report = replace(
            self.report,
            bytes=self.report.bytes + sum(each.size for each in added),
            files=self.report.files + len(added),
            commits=self.report.commits + 1,
        )

    def _write(self, pieces: Sequence[Any], attempt: str) -> Iterator[DataFile]:
        table = self._table
        tasks = tasks_of(
            pieces,
            parallelism=self._engine.parallelism,
            place=table.data,
            schema=table.schema,
            layout=table.layout,
            attempt=attempt,
            ask=self._topic.ask,
        )
        for files in self._engine.run(tasks):
            rows = self.report.rows + sum(each.rows for each in files)
            self.report = replace(self.report, rows=rows)
            self._progress(rows, self._total)
            yield from files


def _starts(look: TopicView, table: Table) -> Offsets:
    """Return where the table goes on: behind what it has, or where the options say for what it has nothing of."""
    return look.starts() | {which: at for which, at in table.position().items() if which in look.starts()}
