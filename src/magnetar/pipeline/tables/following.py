"""Bring a table up to its topic: every record that is visible now, once, offset for offset.

The table itself knows where it ends, so there is no checkpoint beside it that could be lost or be of another table:
to run it again, after whatever happened, goes on from the last commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from magnetar.pipeline.admission import admit
from magnetar.pipeline.history import only
from magnetar.pipeline.options import Offsets
from magnetar.pipeline.tables.engine import Engine, LocalEngine
from magnetar.pipeline.tables.files import DataFile
from magnetar.pipeline.tables.glance import Glance
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
    table: Table | Callable[[], Table],
    *,
    options: Mapping[str, str],
    engine: Engine | None = None,
    max_offsets_per_commit: int | None = None,
    upkeep: Upkeep | None = None,
    progress: Progress = lambda rows, total: None,
    at_a_glance: Callable[[], Glance | None] = lambda: None,
) -> SyncReport:
    """Append to ``table`` what it lacks of ``topic`` (several: comma-separated), up to what is visible at the start.

    ``options`` are those of the source; ``path`` says where the ledgers are, and ``startingOffsets`` where a table
    that has nothing yet begins. With ``max_offsets_per_commit`` there are several commits of about so many offsets,
    as in Spark's AvailableNow. ``upkeep`` says what is tidied up in the same run. A ``table`` to be opened is opened
    once it is known that there is such a topic, and not at all where ``at_a_glance`` tells that nothing is to be done.

    Raises what `magnetar.pipeline.tables.errors` names, and the source's errors.
    """
    began = time.monotonic()
    upkeep, engine = upkeep or Upkeep(), engine or LocalEngine()
    with TopicView({**options, "subscribe": topic}) as look:
        seen = at_a_glance()
        if seen is not None and _has_all(look, seen) and not seen.has_expired(upkeep.keep_s):
            return SyncReport(seen.place, "iceberg", seen.version, seconds=time.monotonic() - began)
        opened = table if isinstance(table, Table) else table()
        with opened.writing(), _as_late_as(look, opened, {**options, "subscribe": topic}) as latest:
            run = _Run(latest, opened, engine, progress)
            run.to_the_end(max_offsets_per_commit)
            compacted, expired = tidy(opened, engine, upkeep)
    return replace(
        run.report,
        version=opened.version,
        compacted_files=compacted,
        expired_files=expired,
        seconds=time.monotonic() - began,
    )


@contextmanager
def _as_late_as(look: TopicView, table: Table, options: Mapping[str, str]) -> Iterator[TopicView]:
    """Yield a look at the topic that is not earlier than the table, which another writer may have brought further."""
    ends = look.ends()
    if all(at <= ends.get(which, at) for which, at in table.position().items()):
        yield look
        return
    with TopicView(options) as later:
        yield later


def _has_all(look: TopicView, seen: Glance) -> bool:
    """Return whether a table has all that its topics have, as far as a glance can tell; raise ``DataLost``."""
    ends = look.ends()
    if any(seen.topics.get(name) != topic_id for name, topic_id in look.ids.items()):
        return False
    if any(seen.position.get(which, 0) != end for which, end in ends.items()):
        return False
    if any(end and which not in seen.marks for which, end in ends.items()):
        return False
    return not look.judge(ends, only(seen.marks, ends))


def check_topic(topic: str, *, options: Mapping[str, str]) -> None:
    """Raise ``ValueError`` if there is no such topic (several: comma-separated) where ``options`` say."""
    with TopicView({**options, "subscribe": topic}):
        pass


def missing(
    topic: str, table: Table, *, options: Mapping[str, str]
) -> tuple[list[OffsetRange], dict[str, str]]:
    """Return what ``table`` lacks of ``topic`` now, and the topic's id: what `append` wants beside rows made of it."""
    with TopicView({**options, "subscribe": topic}) as look:
        table.check_topics(look.ids)
        starts = _starts(look, table, check_history(look, table))
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
        back = check_history(topic, table, has_records=True)
        if back:
            table.rewind(back, topic.ids)
        self._at = _starts(topic, table, back)
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
        marks = self._topic.marks_before({w: end for w, end in ends.items() if end > self._at[w]})
        added = self._table.append(partial(self._write, pieces), ranges, self._topic.ids, marks)
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


def check_history(look: TopicView, table: Table, *, has_records: bool = False) -> Offsets:
    """Return the partitions of which the table has more than the topic, and where these end.

    Raises ``DataLost`` where the topic does not have what the table read of it; with ``failOnDataLoss`` = false this
    is a warning. Where the table keeps no mark it is judged by its last row, if its rows are the topic's records.
    """
    position = {which: at for which, at in table.position().items() if which.topic in look.ids}
    marks = only(table.marks(), position)
    unmarked = {which: at for which, at in position.items() if at and which not in marks}
    if has_records and unmarked:
        from magnetar.pipeline.tables.last_rows import last_rows

        marks |= last_rows(table, unmarked)
    return look.judge(position, marks)


def _starts(look: TopicView, table: Table, back: Offsets) -> Offsets:
    """Return where the table goes on: behind what it has, or where the options say for what it has nothing of."""
    starts = look.starts()
    return starts | {which: at for which, at in {**table.position(), **back}.items() if which in starts}
