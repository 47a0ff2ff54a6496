"""Delta Lake: files by add actions, offsets by Delta's own application transactions, in one commit of its log.

``txn`` actions are what Delta has for idempotent writers: an application's id, and a version that only it raises. Each
partition is an application, ``magnetar:<topic>:<partition>``, and its version is the next offset that the table needs;
``magnetar-mark:<topic>:<partition>`` is the mark of its last record (`magnetar.pipeline.history`) as a number.
They belong to the table's state, so checkpoints keep them and cleaning the log does not lose them. The same commit's
``commitInfo`` says the ranges for people, as ``magnetar.ranges``; the property ``magnetar.topics`` keeps topics' ids.

Delta lets appends pass each other, which would write the same offsets twice. Here a commit is made only on top of the
version that was looked at, or not at all.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from magnetar.pipeline.history import Marks, RecordMark
from magnetar.pipeline.options import Offsets, TopicPartition
from magnetar.pipeline.tables.delta_log import FEATURE, HIDDEN, DeltaLog, Descriptor, descriptor_of
from magnetar.pipeline.tables.directory import TableDirectory
from magnetar.pipeline.tables.errors import TableError
from magnetar.pipeline.tables.evolution import keeps_types
from magnetar.pipeline.tables.files import DataFile, Layout, column_stats
from magnetar.pipeline.tables.ranges import ranges_to_json
from magnetar.pipeline.tables.schema import plain_schema
from magnetar.pipeline.tables.table import KEEP_S, NOTES, CommitInfo, Table, TableCommit, lost_race

_TOPICS = "magnetar.topics"
_RANGES = "magnetar.ranges"
_MARK = "magnetar-mark"
_OPERATION = "magnetar.operation"
_KEPT = "delta.logRetentionDuration"
_CHECKPOINT_EVERY = 20
_CHECKPOINT_AFTER = 100
_VECTORS = "delta.enableDeletionVectors"
_FORBIDS = ("delta.enableChangeDataFeed", "delta.appendOnly")
# Those that ask nothing more of a commit than delta-rs' own do here. With in-commit timestamps, row ids or a feed of
# changes, files are written again.
_KNOWN_FEATURES = frozenset((FEATURE, "appendOnly", "invariants", "timestampNtz", "variantType"))


class DeltaLakeTable(Table):
    """A Delta table, readable by every Delta reader."""

    format = "delta"
    widens = staticmethod(keeps_types)

    def __init__(
        self, url: str | Path, schema: pa.Schema | None, layout: Layout, *,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        place = TableDirectory(url)
        super().__init__(place, place, layout)
        self._log = DeltaLog(place)
        self._options = dict(storage_options or {}) or None
        try:
            self._table = DeltaTable(place.url, storage_options=self._options)
        except TableNotFoundError:
            if schema is None:
                raise TableError(f"there is no table at {place}") from None
            self._table = self._create(schema)
        self.refresh()
        metadata = self._table.metadata()
        if (
            metadata.partition_columns
            or metadata.configuration.get("delta.columnMapping.mode", "none") != "none"
        ):
            raise TableError(f"{self} has partition columns or maps columns; choose a table without")

    @property
    def version(self) -> int:
        return int(self._table.version())

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def refresh(self) -> None:
        self._table.update_incremental()
        self._schema = plain_schema(pa.schema(self._table.schema().to_arrow()))

    def topics(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._table.metadata().configuration.get(_TOPICS) or "{}")
        return found

    def position(self) -> Offsets:
        found: Offsets = {}
        for topic in self.topics():
            partition = 0
            while (at := self._table.transaction_version(_application(topic, partition))) is not None:
                if at:
                    found[TopicPartition(topic, partition)] = int(at)
                partition += 1
        return found

    def marks(self) -> Marks:
        found = {}
        for which, position in self.position().items():
            packed = self._table.transaction_version(_application(*which, _MARK))
            if packed is not None and packed >= 0:
                found[which] = RecordMark.unpacked(int(packed), position)
        return found

    def files(self) -> list[DataFile]:
        # ``pa.table`` would import pandas where it is installed, a third of a second.
        read = pa.RecordBatchReader.from_stream
        actions = read(self._table.get_add_actions()).read_all()
        rows = actions.select(["path", "size_bytes", "num_records"]).to_pylist()
        vectors = self._vectors()
        return [
            DataFile(
                row["path"],
                row["size_bytes"],
                row["num_records"] or 0,
                deleted=self._log.deleted(vectors[row["path"]]) if row["path"] in vectors else b"",
            )
            for row in rows
        ]

    @property
    def keeps_files(self) -> bool:
        """True if commits may have deletion vectors: on this machine, and where nothing stands against it.

        That is ``delta.enableDeletionVectors`` of ``false``, and features that ask more of a commit.
        """
        said, protocol = self._table.metadata().configuration, self._table.protocol()
        return (
            self.place.is_local
            and said.get(_VECTORS, "true") == "true"
            and all(said.get(each, "false") != "true" for each in _FORBIDS)
            and protocol.min_writer_version in (1, 2, 7)
            and set(protocol.writer_features or ()) <= _KNOWN_FEATURES
        )

    def clean(self) -> int:
        notes = self.place.child(NOTES)
        for name in notes.names() if self.place.is_local else ():
            if name.startswith(HIDDEN):
                notes.delete(name)
        return super().clean()

    def _vectors(self) -> Mapping[str, Descriptor]:
        """Return the deletion vectors that there are, by file."""
        if FEATURE not in (self._table.protocol().reader_features or ()):
            return {}
        return self._log.vectors(self.version)

    def history(self) -> list[CommitInfo]:
        return [
            CommitInfo(
                int(each["version"]),
                int(each.get("timestamp", 0)),
                str(each.get(_OPERATION) or each.get("operation", "")).lower(),
                json.loads(each.get(_RANGES, "{}")),
            )
            for each in self._table.history()
        ]

    def expire(self, older_than_s: float) -> int:
        """Delete files that have been out of the table for so long, and what is that old of the log."""
        gone = self._table.vacuum(
            retention_hours=round(older_than_s / 3600), dry_run=False, enforce_retention_duration=False
        )
        self.refresh()
        self._shorten_log(older_than_s)
        self.refresh()
        return len(gone)

    def _shorten_log(self, older_than_s: float) -> None:
        """Delete commits that are so old and before a checkpoint, which is written where the last one is far behind."""
        kept = _interval(older_than_s)
        if self._table.metadata().configuration.get(_KEPT) != kept:
            self._set_properties({_KEPT: kept})
        names = self.place.child("_delta_log").names()
        checkpoints = [int(name.split(".")[0]) for name in names if ".checkpoint." in name]
        if self.version - max(checkpoints, default=0) >= _CHECKPOINT_EVERY:
            self._table.create_checkpoint()
        self._table.cleanup_metadata()

    def set_columns(self, schema: pa.Schema) -> None:
        # A record among them gets the fields that are new, which is a commit of metadata alone.
        changed = [each for each in schema if each not in self.schema]
        fields = Schema.from_arrow(pa.schema(changed)).fields
        try:
            self._table.alter.add_columns(fields, commit_properties=CommitProperties(max_commit_retries=0))
        except CommitFailedError as error:
            raise lost_race(self, error) from None
        self.refresh()

    def _commit(self, commit: TableCommit, position: Offsets, marks: Marks) -> None:
        self._follow(commit.topics)
        vectors = self._vectors()
        if commit.mark or any(each.path in vectors for each in commit.remove):
            self._commit_vectors(commit, position, marks)
            return
        actions = [_add(each, data_change=commit.operation != "compact") for each in commit.add]
        removals = [_remove(each, data_change=commit.operation != "compact") for each in commit.remove]
        properties = CommitProperties(
            custom_metadata=_told(commit),
            max_commit_retries=0,
            app_transactions=_transactions(commit.topics, position, marks),
        )
        try:
            self._table.create_write_transaction(
                [*actions, *removals],
                mode="append",
                schema=self._table.schema(),
                commit_properties=properties,
                post_commithook_properties=PostCommitHookProperties(create_checkpoint=True),
            )
        except CommitFailedError as error:
            raise lost_race(self, error) from None

    def _commit_vectors(self, commit: TableCommit, position: Offsets, marks: Marks) -> None:
        """Make a commit with deletion vectors, or of files that have some: delta-rs only reads these."""
        now, changes = round(time.time() * 1000), commit.operation != "compact"
        actions: list[dict[str, Any]] = [
            {
                "commitInfo": {
                    "timestamp": now,
                    "operation": commit.operation.upper(),
                    "operationParameters": {},
                    **_told(commit),
                }
            },
            *(self._upgrade() if commit.mark else ()),
        ]
        actions += [
            {"txn": {"appId": each.app_id, "version": each.version, "lastUpdated": now}}
            for each in _transactions(commit.topics, position, marks)
        ]
        vectors = self._vectors()
        for each in (*commit.remove, *commit.mark):
            removal = {
                "path": quote(each.path),
                "deletionTimestamp": now,
                "dataChange": changes,
                "extendedFileMetadata": True,
                "partitionValues": {},
                "size": each.size,
            }
            if each.path in vectors:
                removal["deletionVector"] = {n: v for n, v in vectors[each.path].items() if v is not None}
            actions.append({"remove": removal})
        for each in commit.add:
            actions.append({"add": _raw_add(each, now, changes, _stats(each))})
        for each in commit.mark:
            add = _raw_add(each, now, changes, _stats(self._with_stats(each), is_tight=False))
            actions.append({"add": add | {"deletionVector": descriptor_of(each.deleted)}})
        self._write(actions)
        if (self.version + 1) % _CHECKPOINT_AFTER == 0:
            self._table.update_incremental()
            self._table.create_checkpoint()

    def _write(self, actions: Sequence[Mapping[str, Any]]) -> None:
        try:
            self._log.write(self.version + 1, actions, lambda: self.reached("marked"))
        except FileExistsError as error:
            raise lost_race(self, error) from None

    def _with_stats(self, file: DataFile) -> DataFile:
        """Return a file with the bounds of its footer, but those of floats, which may leave out NaN."""
        footer = self.footers.get(file.path)
        if footer is None:
            with self.data.open(file.path) as source:
                footer = pq.read_metadata(source)
        stats = {name: each for name, each in column_stats(footer).items() if not isinstance(each[0], float)}
        return replace(file, stats=stats)

    def _upgrade(self) -> Iterator[dict[str, Any]]:
        """Yield what has the table know deletion vectors, if it does not yet."""
        protocol = self._table.protocol()
        if FEATURE not in (protocol.reader_features or ()):
            # What writers of version 2 know stands by name in one of features.
            writers = {*(protocol.writer_features or ("appendOnly", "invariants")), FEATURE}
            readers = {*(protocol.reader_features or ()), FEATURE}
            yield {
                "protocol": {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": sorted(readers),
                    "writerFeatures": sorted(writers),
                }
            }
        if self._table.metadata().configuration.get(_VECTORS) != "true":
            yield self._metadata({_VECTORS: "true"})

    def _metadata(self, properties: Mapping[str, str]) -> dict[str, Any]:
        """Return the table's metadata with more properties."""
        known = self._table.metadata()
        found = {
            "id": str(known.id),
            "name": known.name,
            "description": known.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self._table.schema().to_json(),
            "partitionColumns": [],
            "createdTime": known.created_time,
            "configuration": {**known.configuration, **properties},
        }
        return {"metaData": {name: each for name, each in found.items() if each is not None}}

    def _set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table, in a commit of its own."""
        if self._table.metadata().configuration.get(_VECTORS) == "true" and self.keeps_files:
            # delta-rs would have such a table know variants as well, which few readers do.
            info = {"timestamp": round(time.time() * 1000), "operation": "SET TBLPROPERTIES"}
            self._write([{"commitInfo": {**info, "operationParameters": {}}}, self._metadata(properties)])
        else:
            try:
                self._table.alter.set_table_properties(
                    dict(properties),
                    raise_if_not_exists=False,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
            except CommitFailedError as error:
                raise lost_race(self, error) from None
        self._table.update_incremental()

    def _follow(self, topics: Mapping[str, str]) -> None:
        """Have the table's properties name these topics, before the first commit with data of theirs."""
        known = self.topics()
        if topics.items() <= known.items():
            return
        self._set_properties({_TOPICS: json.dumps(known | dict(topics), sort_keys=True)})

    def _create(self, schema: pa.Schema) -> DeltaTable:
        self.place.make()
        try:
            return DeltaTable.create(
                self.place.url,
                schema,
                mode="ignore",
                configuration={_KEPT: _interval(KEEP_S)},  # else the first upkeep would be a commit
                storage_options=self._options,
            )
        except DeltaError as error:
            raise TableError(f"{self}: it cannot be made: {error}") from None


def _interval(seconds: float) -> str:
    """Return a time in the words of Delta's properties."""
    return f"interval {round(seconds)} seconds"


def _application(topic: str, partition: int, kind: str = "magnetar") -> str:
    return f"{kind}:{topic}:{partition}"


def _transactions(topics: Iterable[str], position: Offsets, marks: Marks) -> list[Transaction]:
    """Return one for every partition up to the last that has something, so that looking for them finds all.

    And one more for its mark, as a number that counts from the position; -1 where it has none.
    """
    found = []
    for topic in topics:
        count = max((which.partition for which in position if which.topic == topic), default=-1) + 1
        for partition in range(count):
            at = position.get(TopicPartition(topic, partition), 0)
            found.append(Transaction(_application(topic, partition), at))
            mark = marks.get(TopicPartition(topic, partition))
            packed = None if mark is None else mark.packed(at)
            found.append(Transaction(_application(topic, partition, _MARK), -1 if packed is None else packed))
    return found


def _add(file: DataFile, *, data_change: bool) -> AddAction:
    return AddAction(file.path, file.size, {}, round(time.time() * 1000), data_change, _stats(file))


def _remove(file: DataFile, *, data_change: bool) -> RemoveAction:
    return RemoveAction(
        file.path, data_change=data_change, deletion_timestamp=round(time.time() * 1000), size=file.size
    )


def _told(commit: TableCommit) -> dict[str, str]:
    """Return what ``commitInfo`` says for people."""
    return {
        _RANGES: json.dumps(ranges_to_json(commit.ranges)),
        _OPERATION: commit.operation,
        "magnetar.attempt": commit.attempt,
    }


def _raw_add(file: DataFile, now: int, data_change: bool, stats: str) -> dict[str, Any]:
    return {
        "path": quote(file.path),
        "partitionValues": {},
        "size": file.size,
        "modificationTime": now,
        "dataChange": data_change,
        "stats": stats,
    }


def _stats(file: DataFile, *, is_tight: bool = True) -> str:
    """Return Delta's statistics, by which readers skip files: JSON, without the bounds that JSON cannot say."""
    least = {name: _literal(low) for name, (low, _, _) in file.stats.items()}
    greatest = {name: _literal(high, up=True) for name, (_, high, _) in file.stats.items()}
    nulls = {name: str(count) for name, (_, _, count) in file.stats.items()}
    bounds = "" if is_tight else ', "tightBounds": false'
    return (
        f'{{"numRecords": {file.rows}, "minValues": {_object(least)}, "maxValues": {_object(greatest)}, '
        f'"nullCount": {_object(nulls)}{bounds}}}'
    )


def _object(literals: Mapping[str, str | None]) -> str:
    return "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in literals.items() if text) + "}"


def _literal(value: Any, *, up: bool = False) -> str | None:
    """Return a bound as Delta writes it, or None if it cannot: times have milliseconds, the upper ones rounded up.

    Without a bound a reader looks into the file. A bound that is no JSON (Infinity) ends every reader, and writer.
    """
    if isinstance(value, datetime):
        micros = value.microsecond % 1000
        text = value.replace(microsecond=value.microsecond - micros)
        if up and micros:
            try:
                text += timedelta(milliseconds=1)
            except OverflowError:  # the end of year 9999
                return None
        return json.dumps(text.isoformat(timespec="milliseconds").replace("+00:00", "Z"))
    if isinstance(value, date):
        return json.dumps(value.isoformat())
    if isinstance(value, Decimal):
        return f"{value:f}" if value.is_finite() else None
    if isinstance(value, float):
        return json.dumps(value) if math.isfinite(value) else None
    return json.dumps(value) if isinstance(value, str | int) else None
