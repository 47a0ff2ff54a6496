"""Delta Lake: files by add actions, offsets by Delta's own application transactions, in one commit of its log.

``txn`` actions are what Delta has for idempotent writers: an application's id, and a version that only it raises. Each
partition is an application, ``magnetar:<topic>:<partition>``, and its version is the next offset that the table needs.
They belong to the table's state, so checkpoints keep them and cleaning the log does not lose them. The same commit's
``commitInfo`` says the ranges for people, as ``magnetar.ranges``; the property ``magnetar.topics`` keeps topics' ids.

Delta lets appends pass each other, which would write the same offsets twice. Here a commit is made only on top of the
version that was looked at, or not at all.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from magnetar.pipeline.options import Offsets, TopicPartition
from magnetar.pipeline.tables.directory import TableDirectory
from magnetar.pipeline.tables.errors import TableError
from magnetar.pipeline.tables.files import DataFile, Layout
from magnetar.pipeline.tables.ranges import ranges_to_json
from magnetar.pipeline.tables.schema import plain_schema
from magnetar.pipeline.tables.table import CommitInfo, Table, TableCommit, lost_race

_TOPICS = "magnetar.topics"
_RANGES = "magnetar.ranges"
_OPERATION = "magnetar.operation"


class DeltaLakeTable(Table):
    """A Delta table, readable by every Delta reader."""

    format = "delta"

    def __init__(
        self, url: str | Path, schema: pa.Schema | None, layout: Layout, *,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        place = TableDirectory(url)
        super().__init__(place, place, layout)
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

    def files(self) -> list[DataFile]:
        rows = pa.table(self._table.get_add_actions()).to_pylist()
        marked = {
            each.rsplit("/", 1)[-1]
            for each in pa.table(self._table.deletion_vectors())["filepath"].to_pylist()
        }
        return [
            DataFile(row["path"], row["size_bytes"], row["num_records"] or 0, deletes=row["path"] in marked)
            for row in rows
        ]

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
        """Delete files that have been out of the table for so long, and the log behind its last checkpoint."""
        gone = self._table.vacuum(
            retention_hours=round(older_than_s / 3600), dry_run=False, enforce_retention_duration=False
        )
        self._table.cleanup_metadata()
        self.refresh()
        return len(gone)

    def add_columns(self, schema: pa.Schema) -> None:
        fields = Schema.from_arrow(schema).fields
        try:
            self._table.alter.add_columns(fields, commit_properties=CommitProperties(max_commit_retries=0))
        except CommitFailedError as error:
            raise lost_race(self, error) from None
        self.refresh()

    def _commit(self, commit: TableCommit, position: Offsets) -> None:
        self._follow(commit.topics)
        actions = [_add(each, data_change=commit.operation != "compact") for each in commit.add]
        removals = [_remove(each, data_change=commit.operation != "compact") for each in commit.remove]
        properties = CommitProperties(
            custom_metadata={
                _RANGES: json.dumps(ranges_to_json(commit.ranges)),
                _OPERATION: commit.operation,
                "magnetar.attempt": commit.attempt,
            },
            max_commit_retries=0,
            app_transactions=_transactions(commit.topics, position),
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

    def _follow(self, topics: Mapping[str, str]) -> None:
        """Have the table's properties name these topics, before the first commit with data of theirs."""
        known = self.topics()
        if topics.items() <= known.items():
            return
        try:
            self._table.alter.set_table_properties(
                {_TOPICS: json.dumps(known | dict(topics), sort_keys=True)},
                raise_if_not_exists=False,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except CommitFailedError as error:
            raise lost_race(self, error) from None
        self._table.update_incremental()

    def _create(self, schema: pa.Schema) -> DeltaTable:
        self.place.make()
        try:
            return DeltaTable.create(self.place.url, schema, mode="ignore", storage_options=self._options)
        except DeltaError as error:
            raise TableError(f"{self}: it cannot be made: {error}") from None


def _application(topic: str, partition: int) -> str:
    return f"magnetar:{topic}:{partition}"


def _transactions(topics: Iterable[str], position: Offsets) -> list[Transaction]:
    """Return one for every partition up to the last that has something, so that looking for them finds all."""
    found = []
    for topic in topics:
        count = max((which.partition for which in position if which.topic == topic), default=-1) + 1
        for partition in range(count):
            at = position.get(TopicPartition(topic, partition), 0)
            found.append(Transaction(_application(topic, partition), at))
    return found


def _add(file: DataFile, *, data_change: bool) -> AddAction:
    return AddAction(
        file.path, file.size, {}, round(time.time() * 1000), data_change, json.dumps(_stats(file))
    )


def _remove(file: DataFile, *, data_change: bool) -> RemoveAction:
    return RemoveAction(
        file.path, data_change=data_change, deletion_timestamp=round(time.time() * 1000), size=file.size
    )


def _stats(file: DataFile) -> dict[str, Any]:
    """Return Delta's statistics, by which readers skip files."""
    return {
        "numRecords": file.rows,
        "minValues": {name: _json(low) for name, (low, _, _) in file.stats.items()},
        "maxValues": {name: _json(high, up=True) for name, (_, high, _) in file.stats.items()},
        "nullCount": {name: nulls for name, (_, _, nulls) in file.stats.items()},
    }


def _json(value: Any, *, up: bool = False) -> Any:
    """Return a bound as Delta writes it: times have milliseconds, the upper ones rounded up."""
    if isinstance(value, datetime):
        micros = value.microsecond % 1000
        text = value.replace(microsecond=value.microsecond - micros)
        if up and micros:
            from datetime import timedelta

            text += timedelta(milliseconds=1)
        return text.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value
