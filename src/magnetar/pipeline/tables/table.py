"""The table port: what every format gives. One commit holds data files and offset ranges, or nothing of both.

A writer does the same in every format:

1. it takes the table's lock, where the place has one (a directory of this machine);
2. it leaves a note of what it is going to write, an *attempt*, in ``_magnetar/``;
3. its tasks write files, which nobody sees yet, named after the attempt;
4. one atomic commit on top of the version that it has seen brings files, ranges and the new position;
5. it removes the note.

Whoever finds a note of a writer that is dead deletes the attempt's files, unless the commit was made.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from magnetar.pipeline.history import Marks, RecordMark
from magnetar.pipeline.options import Offsets, TopicPartition
from magnetar.pipeline.tables.directory import TableDirectory
from magnetar.pipeline.tables.engine import rows_by_tasks
from magnetar.pipeline.tables.errors import CommitUnknown, TableConflict, TableError, TopicReplaced
from magnetar.pipeline.tables.evolution import Widens, widens_numbers
from magnetar.pipeline.tables.files import DataFile, Layout, attempt_of, new_attempt, read_in_order
from magnetar.pipeline.tables.lock import writer_lock
from magnetar.pipeline.tables.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTES = "_magnetar"
STALE_S = 24 * 3600.0
"""Age of a note, in seconds, from which its writer counts as dead where there is no lock."""

Step = Callable[[str], object]
"""Told before each step of a write: ``noted``, ``written``, ``committed``, ``done``; ``marked`` within a commit."""

KEEP_S = 7 * 86400.0
"""How long, in seconds, commits and files that are out of use are kept by default."""


@dataclass(frozen=True, slots=True)
class TableCommit:
    """What one commit changes. ``topics`` gives the id of every topic that the ranges are of."""

    operation: str
    attempt: str
    add: Sequence[DataFile] = ()
    remove: Sequence[DataFile] = ()
    ranges: Sequence[OffsetRange] = ()
    topics: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[TopicPartition, RecordMark] = field(default_factory=dict)
    """The last records of the ranges, where they are known."""
    rewound: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Partitions whose position goes back, and to which offset: their topic was restored to an earlier state."""
    mark: Sequence[DataFile] = ()
    """Files that stay and have other deleted rows now: all that are, also those that were before."""


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """One commit as the table remembers it."""

    version: int
    timestamp_ms: int
    operation: str
    ranges: dict[str, dict[str, list[int]]]
    added: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as it is: how far it is of each topic, and its last commits, newest first."""

    table: str
    format: str
    version: int
    rows: int
    files: int
    bytes: int
    position: dict[str, dict[str, int]]
    commits: tuple[CommitInfo, ...]


class Table(ABC):
    """One table, as it was when it was opened or refreshed last."""

    format: str
    widens: Widens = staticmethod(widens_numbers)
    """What a column's type may become in this format."""

    def __init__(self, place: TableDirectory, data: TableDirectory, layout: Layout) -> None:
        self.place = place
        self.data = data
        self.layout = layout
        self.steps: list[Step] = []
        """Each is called with the name of a step that is done."""
        self.footers: dict[str, Any] = {}
        """Footers of files that were looked at, which never change."""

    def __str__(self) -> str:
        return f"{self.format} table {self.place}"

    # --- what a format brings ---------------------------------------------------------------------------------

    @property
    @abstractmethod
    def version(self) -> int:
        """The number (or id) of the commit that is looked at."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns."""

    @abstractmethod
    def refresh(self) -> None:
        """Look at the newest commit."""

    @abstractmethod
    def topics(self) -> dict[str, str]:
        """Return the topics that the table follows, with their ids."""

    @abstractmethod
    def position(self) -> Offsets:
        """Return the next offset that the table needs of each partition."""

    @abstractmethod
    def marks(self) -> Marks:
        """Return the marks of the last records that were read, of the partitions that have one."""

    @abstractmethod
    def files(self) -> list[DataFile]:
        """Return the files that are in the table."""

    def names(self) -> set[str]:
        """Return the names of all files in use in the table's data directory."""
        return {each.path for each in self.files()}

    @abstractmethod
    def history(self) -> list[CommitInfo]:
        """Return the commits that are still known, the newest first."""

    @property
    def keeps_files(self) -> bool:
        """True if a commit may mark rows as deleted in files that stay; format and properties say so."""
        return False

    @abstractmethod
    def set_columns(self, schema: pa.Schema) -> None:
        """Have these columns: those that are there, perhaps wider or with more fields, and new ones behind them.

        Rows stay as they are, null where they have nothing. Raises `TableConflict` if there is a later commit.
        """

    @abstractmethod
    def _commit(self, commit: TableCommit, position: Offsets, marks: Marks) -> None:
        """Make one commit on top of the version that was looked at; raise `TableConflict` if there is a later one."""

    @abstractmethod
    def expire(self, older_than_s: float) -> int:
        """Forget commits and delete files that are out of use for so long; give how many files went."""

    # --- what is the same for all -----------------------------------------------------------------------------

    def reached(self, step: str) -> None:
        """Report that a step of a change is done."""
        for report in self.steps:
            report(step)

    def state(self, commits: int = 20) -> TableState:
        """Return what people want to know of it."""
        files = self.files()
        position: dict[str, dict[str, int]] = {}
        for which, at in sorted(self.position().items()):
            position.setdefault(which.topic, {})[str(which.partition)] = at
        return TableState(
            str(self.place),
            self.format,
            self.version,
            sum(each.live_rows for each in files),
            len(files),
            sum(each.size for each in files),
            position,
            tuple(self.history()[:commits]),
        )

    def urls(self) -> list[str]:
        """Return the full names of the files in the table, for readers that take files.

        Raises `TableError` if rows of them are deleted, which such readers would not see.
        """
        files = self.files()
        marked = next((each.path for each in files if each.deleted or each.deletes), None)
        if marked is not None:
            raise TableError(
                f"{self}: rows of {marked} are deleted; read the table with a {self.format} reader"
            )
        return [self.data.url_of(each.path) for each in files]

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the whole table; for tests and small tables."""
        files = self.files()
        self.check_deletes(files)
        batches = [batch for _, batch in read_in_order(self.data, files, self.schema)]
        table = pa.Table.from_batches(batches, self.schema)
        return table if columns is None else table.select(list(columns))

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """Return the table as it is now, as a frame that later commits do not change."""
        from pyspark.sql.pandas.types import from_arrow_schema

        schema, files = from_arrow_schema(self.schema), self.files()
        self.check_deletes(files)
        whole = [self.data.url_of(each.path) for each in files if not each.deleted]
        marked = [each for each in files if each.deleted]
        frame = spark.read.schema(schema).parquet(*whole) if whole else spark.createDataFrame([], schema)
        return (
            frame.unionAll(rows_by_tasks(spark, self.data, marked, self.schema, schema)) if marked else frame
        )

    def check_deletes(self, files: Sequence[DataFile]) -> None:
        """Raise `TableError` if rows of these files are deleted by what is not understood here."""
        unknown = next((each.path for each in files if each.deletes), None)
        if unknown is not None:
            raise TableError(
                f"{self}: file {unknown} has rows deleted by another engine, in a way not known here; compact it first"
            )

    def check_topics(self, topics: Mapping[str, str]) -> None:
        """Raise `TopicReplaced` if one of these topics is not the one that the table follows under its name."""
        known = self.topics()
        for name, topic_id in topics.items():
            if known.get(name, topic_id) != topic_id:
                raise TopicReplaced(
                    f"{self} follows topic {name!r} with id {known[name]}; the topic of that name now has id "
                    f"{topic_id}: it was deleted and made anew. Choose another table for it"
                )

    def commit(self, commit: TableCommit) -> None:
        """Make one commit on top of the version that was looked at, all or nothing, and look at it then."""
        from magnetar.pipeline.tables.ranges import advance

        self.check_topics(commit.topics)
        if _note(commit.attempt) not in self.place.child(NOTES).names():
            raise lost_race(self, "its files were taken for those of a dead writer, and deleted")
        position = advance({**self.position(), **commit.rewound}, commit.ranges)
        self._commit(commit, position, self._marks_behind(commit))
        self.refresh()

    def _marks_behind(self, commit: TableCommit) -> Marks:
        """Return the marks after a commit: one of a record that the table is no longer behind of goes."""
        kept = {
            which: mark
            for which, mark in self.marks().items()
            if mark.offset < commit.rewound.get(which, mark.offset + 1)
        }
        return {**kept, **commit.marks}

    def rewind(self, to: Mapping[TopicPartition, int], topics: Mapping[str, str]) -> None:
        """Have the table go on at earlier offsets; its rows stay. The caller holds the writer's lock."""
        with self.attempt() as attempt:
            self.commit(TableCommit("rewind", attempt, topics=topics, rewound=to))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the one who writes: take the lock, see the newest commit, and clean up behind those who died.

        Raises `TableConflict` if another process is at it. On object stores there is no lock; there the commit alone
        decides, and what the dead left behind is deleted after a day.
        """
        with writer_lock(self.place):
            self.refresh()
            self.clean()
            yield

    @contextmanager
    def attempt(self) -> Iterator[str]:
        """Note that files are going to be written, and forget it once they are committed, or delete them.

        What a catalog does not say whether it took stays where it is (`CommitUnknown`).
        """
        name = note_attempt(self.place, self.data)
        self.reached("noted")
        is_known = True
        try:
            yield name
        except CommitUnknown:
            is_known = False
            raise
        finally:
            # A commit that failed may yet have been made: only what the table says counts.
            if is_known:
                self.refresh()
                self._forget([name])

    def append(
        self,
        written: Callable[[str], Iterable[DataFile]],
        ranges: Sequence[OffsetRange],
        topics: Mapping[str, str],
        marks: Mapping[TopicPartition, RecordMark] | None = None,
    ) -> list[DataFile]:
        """Have ``written`` write files for an attempt, and commit them together with their offset ranges."""
        with self.attempt() as attempt:
            files = list(written(attempt))
            self.reached("written")
            self.commit(TableCommit("append", attempt, files, (), ranges, topics, marks or {}))
            self.reached("committed")
        self.reached("done")
        return files

    def adopt(
        self,
        attempts: Collection[str],
        files: Sequence[DataFile],
        ranges: Sequence[OffsetRange],
        topics: Mapping[str, str],
        marks: Mapping[TopicPartition, RecordMark] | None = None,
    ) -> bool:
        """Commit files that tasks wrote for attempts of their own (`note_attempt`); False if they were there before.

        The caller holds the writer's lock. Raises ``OffsetsCommitted`` if some of the ranges are in the table, and
        others are not.
        """
        self.refresh()
        if self.has(ranges):
            self._forget(attempts)
            return False
        self.check_attempts(attempts)
        with self.attempt() as attempt:
            self.commit(TableCommit("append", attempt, files, (), ranges, topics, marks or {}))
            self.reached("committed")
        self._forget(attempts)
        self.reached("done")
        return True

    def has(self, ranges: Sequence[OffsetRange]) -> bool:
        """Return whether the table has all of these offsets already."""
        position = self.position()
        return all(
            position.get(TopicPartition(each.topic, each.partition), 0) >= each.high for each in ranges
        )

    def check_attempts(self, attempts: Collection[str]) -> None:
        """Raise `TableConflict` if files of one of these attempts may have been deleted."""
        noted = set(self.place.child(NOTES).names())
        if any(_note(each) not in noted for each in attempts):
            raise lost_race(self, "its files were taken for those of a dead writer, and deleted")

    def drop(self, attempts: Collection[str]) -> None:
        """Delete what these attempts wrote and nobody committed."""
        self.refresh()
        self._forget(attempts)

    def clean(self) -> int:
        """Delete what dead writers left; give how many files went. Whoever calls holds the lock."""
        notes = self.place.child(NOTES)
        names = [each for each in notes.names() if each.endswith(".json")]
        attempts = {each.split("-", 1)[1].removesuffix(".json") for each in names if self._is_dead(each)}
        # A writer that yet lives and is about to commit sees by its note that its files are going.
        for attempt in attempts:
            notes.write(_note(attempt, "dead"), b"{}")
            notes.delete(_note(attempt))
        if attempts:
            self.refresh()
        return self._forget(attempts)

    def _is_dead(self, note: str) -> bool:
        return self.place.is_local or self.place.child(NOTES).age_s(note, time.time()) > STALE_S

    def _may_be_committed(self, attempt: str) -> bool:
        """Return whether a catalog may yet make a commit with the files of an attempt."""
        return False

    def _forget(self, attempts: Collection[str]) -> int:
        """Delete the files of these attempts that are not in the table, and their notes."""
        attempts = [each for each in attempts if not self._may_be_committed(each)]
        if not attempts:
            return 0
        kept = self.names()
        gone = [n for n in self.data.names() if attempt_of(n) in attempts and n not in kept]
        for name in gone:
            self.data.delete(name)
        for attempt in attempts:
            self.place.child(NOTES).delete(_note(attempt))
            self.place.child(NOTES).delete(_note(attempt, "dead"))
        return len(gone)


def note_attempt(place: TableDirectory, data: TableDirectory) -> str:
    """Note that files are going to be written; give the name that they must carry."""
    name = new_attempt()
    notes = place.child(NOTES)
    notes.make()
    data.make()
    notes.write(_note(name), json.dumps({"attempt": name, "began_ms": round(time.time() * 1000)}).encode())
    return name


def _note(attempt: str, state: str = "attempt") -> str:
    return f"{state}-{attempt}.json"


def lost_race(table: Table, why: object = "") -> TableConflict:
    """Return the error of a writer that came second."""
    return TableConflict(
        f"{table}: another writer committed on top of version {table.version}, so nothing of this commit is in the "
        f"table; run it again to go on from where the table is now{f' ({why})' if why else ''}"
    )


def positions_of(topic: str, offsets: Mapping[str, Any]) -> Offsets:
    """Read ``{partition: next offset}`` of one topic."""
    return {TopicPartition(topic, int(partition)): int(offset) for partition, offset in offsets.items()}
