"""Apache Iceberg through PyIceberg: files, offset ranges and position in one transaction of the catalog.

The snapshot's summary says the commit's ranges (``magnetar.ranges``). Table properties, set in the same transaction,
say the position: ``magnetar.next.<topic>`` = ``{partition: offset}``, ``magnetar.marks.<topic>`` marks of the same form
(`magnetar.pipeline.history`), and ``magnetar.topics`` = ``{topic: id}``.
Properties outlive expired snapshots and other engines' compactions.

PyIceberg would try a commit again on top of another writer's, which would write the same offsets twice. So the table's
property ``commit.retry.num-retries`` is 0: the catalog takes a commit on the snapshot that was looked at, or none.

Embedded, the catalog is a SQLite file beside the table; any catalog of PyIceberg's can be named instead. A catalog that
is asked over the network may make a commit and not say so. Where the table does not show it either, its files stay,
under a note, until the note is a day old.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import FileFormat
from pyiceberg.table.snapshots import Operation

from magnetar.pipeline.history import Marks, marks_from_json, marks_to_json
from magnetar.pipeline.options import Offsets
from magnetar.pipeline.tables.deleted_rows import packed, unpacked
from magnetar.pipeline.tables.directory import TableDirectory
from magnetar.pipeline.tables.errors import CommitUnknown, TableError
from magnetar.pipeline.tables.files import DataFile, Layout, attempt_of
from magnetar.pipeline.tables.glance import CATALOG, CATALOG_FILE, MARKS, NAMESPACE, NEXT, TOPICS
from magnetar.pipeline.tables.position_deletes import (
    OverwriteWithDeletes,
    is_of,
    read_deletes,
    write_deletes,
)
from magnetar.pipeline.tables.ranges import ranges_to_json
from magnetar.pipeline.tables.schema import plain_schema
from magnetar.pipeline.tables.table import (
    NOTES,
    STALE_S,
    CommitInfo,
    Table,
    TableCommit,
    lost_race,
    positions_of,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table as CatalogTable

# What a catalog over the network says, or no answer at all (requests' errors are OSErrors), when it may have committed.
_UNKNOWN = (CommitStateUnknownException, ServerError, ServiceUnavailableError, OSError)
_ATTEMPT = "magnetar.attempt"
_RANGES = "magnetar.ranges"
_OPERATION = "magnetar.operation"
_REMEMBERED = 256
_METRICS = "write.metadata.metrics.column."
_PROPERTIES = {
    "commit.retry.num-retries": "0",
    "format-version": "2",
    # Each commit writes a file of metadata that lists all before it: without these two every commit ever made stays.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}


class IcebergTable(Table):
    """An Iceberg table in the embedded catalog (``url`` is its directory) or in another (``url`` is its name)."""

    format = "iceberg"

    def __init__(
        self, url: str | Path, schema: pa.Schema | None, layout: Layout, *,
        catalog: str | Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._catalog, self._name, location = _catalog(url, catalog)
        self._is_embedded = catalog is None
        try:
            self._table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            if schema is None:
                raise TableError(
                    f"there is no table {'.'.join(self._name)} in {self._catalog.name}"
                ) from None
            self._table = self._create(schema, location)
        if not _PROPERTIES.items() - {("format-version", "2")} <= self._table.properties.items():
            self._table.transaction().set_properties(_PROPERTIES).commit_transaction()
        if not self._table.spec().is_unpartitioned():
            raise TableError(f"Iceberg table {'.'.join(self._name)} is partitioned; choose one that is not")
        self._planned: tuple[int, list[Any]] | None = None
        self._deleted_rows: dict[tuple[str, ...], bytes] = {}
        place = TableDirectory(self._table.location())
        super().__init__(place, place.child("data"), layout)

    @property
    def version(self) -> int:
        return int(self._table.metadata.current_snapshot_id or 0)

    @property
    def schema(self) -> pa.Schema:
        from pyiceberg.io.pyarrow import schema_to_pyarrow  # it takes longer to load than all else here

        return plain_schema(schema_to_pyarrow(self._table.schema(), include_field_ids=False))

    def refresh(self) -> None:
        self._table.refresh()

    def topics(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._table.properties.get(TOPICS, "{}"))
        return found

    def position(self) -> Offsets:
        found: Offsets = {}
        for topic in self.topics():
            found |= positions_of(topic, json.loads(self._table.properties.get(NEXT + topic, "{}")))
        return found

    def marks(self) -> Marks:
        texts = {topic: self._table.properties.get(MARKS + topic, "{}") for topic in self.topics()}
        return marks_from_json({topic: json.loads(text) for topic, text in texts.items()})

    def files(self) -> list[DataFile]:
        return [self._file(each) for each in self._tasks()]

    def names(self) -> set[str]:
        tasks = self._tasks()
        deletes = {_base(each.file_path) for task in tasks for each in task.delete_files}
        return {_base(task.file.file_path) for task in tasks} | deletes

    @property
    def keeps_files(self) -> bool:
        """True if commits may have files of deletes: in version 2, unless the table's ``write.merge.mode`` says no."""
        said = self._table.properties.get("write.merge.mode", "merge-on-read")
        return self._table.format_version == 2 and said == "merge-on-read"

    def _tasks(self) -> list[Any]:
        """Return PyIceberg's tasks of a scan: each file with its files of deletes."""
        if self._planned is None or self._planned[0] != self.version:
            try:
                self._planned = self.version, list(self._table.scan().plan_files())
            except ValueError as error:  # equality deletes
                raise TableError(f"{self}: {error}") from None
        return self._planned[1]

    def _file(self, task: Any) -> DataFile:
        file, deletes = task.file, sorted(task.delete_files, key=lambda each: each.file_path)
        unknown = any(each.file_format != FileFormat.PARQUET for each in deletes)
        deleted = b"" if unknown else self._deleted(file.file_path, deletes)
        return DataFile(
            _base(file.file_path),
            file.file_size_in_bytes,
            file.record_count,
            deletes=unknown,
            deleted=deleted,
        )

    def _deleted(self, path: str, deletes: Sequence[Any]) -> bytes:
        """Return the rows that files of deletes name of a data file; those files never change."""
        if not deletes:
            return b""
        key = path, *(each.file_path for each in deletes)
        if key not in self._deleted_rows:
            if len(self._deleted_rows) > _REMEMBERED:
                self._deleted_rows.clear()
            rows = unpacked(b"")
            for each in deletes:
                with self._table.io.new_input(each.file_path).open() as source:
                    rows |= unpacked(packed(read_deletes(source, path)))
            self._deleted_rows[key] = packed(rows)
        return self._deleted_rows[key]

    def history(self) -> list[CommitInfo]:
        found = []
        for snapshot in reversed(self._table.snapshots()):
            told = snapshot.summary.additional_properties if snapshot.summary else {}
            found.append(
                CommitInfo(
                    snapshot.snapshot_id,
                    snapshot.timestamp_ms,
                    told.get(_OPERATION, ""),
                    json.loads(told.get(_RANGES, "{}")),
                    int(told.get("added-data-files", 0)),
                    int(told.get("deleted-data-files", 0)),
                )
            )
        return found

    def expire(self, older_than_s: float) -> int:
        """Forget snapshots that old, and delete the files that only they had: data, and the lists that name them."""
        limit = datetime.now(UTC) - timedelta(seconds=older_than_s)
        newest = self._table.metadata.current_snapshot_id
        old = [s for s in self._table.snapshots() if s.timestamp_ms < limit.timestamp() * 1000]
        if all(snapshot.snapshot_id == newest for snapshot in old):
            return 0
        self._table.maintenance.expire_snapshots().older_than(limit).commit()
        self.refresh()
        kept = self._table.snapshots()
        ids = {snapshot.snapshot_id for snapshot in kept}
        removed = [snapshot for snapshot in old if snapshot.snapshot_id not in ids]
        heirs = _heirs(kept)
        gone = {path for each in removed for path in self._paths_of(each)}
        gone -= {path for each in heirs for path in self._paths_of(each)}
        lists = {path for each in removed for path in self._lists_of(each)}
        lists -= {path for each in heirs for path in self._lists_of(each)}
        for path in gone | lists:
            self._table.io.delete(path)
        return len(gone)

    def set_columns(self, schema: pa.Schema) -> None:
        try:
            with self._table.transaction() as transaction:
                with transaction.update_schema() as update:
                    update.union_by_name(schema)
                transaction.set_properties(_columns_properties(transaction.table_metadata.schema()))
        except CommitFailedException as error:
            raise lost_race(self, error) from None
        self.refresh()

    def _commit(self, commit: TableCommit, position: Offsets, marks: Marks) -> None:
        topics = self.topics() | dict(commit.topics)
        told = {
            _RANGES: json.dumps(ranges_to_json(commit.ranges)),
            _OPERATION: commit.operation,
            _ATTEMPT: commit.attempt,
        }
        properties = {TOPICS: json.dumps(topics, sort_keys=True)}
        by_topic = marks_to_json(marks)
        for topic in topics:
            at = {str(w.partition): offset for w, offset in sorted(position.items()) if w.topic == topic}
            properties[NEXT + topic] = json.dumps(at)
            properties[MARKS + topic] = json.dumps(by_topic.get(topic, {}))
        transaction = self._table.transaction()
        if commit.remove or commit.mark:
            self._overwrite(commit, transaction, told)
        else:
            with transaction.update_snapshot(snapshot_properties=told).fast_append() as producer:
                for each in commit.add:
                    producer.append_data_file(self._described(each, transaction.table_metadata))
        # Last: behind a change of properties PyIceberg copies all metadata for each look.
        transaction.set_properties(properties)
        try:
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise lost_race(self, error) from None
        except _UNKNOWN as error:
            if self._is_embedded:
                raise
            if not self._is_made(commit):
                self._leave(commit)
                raise CommitUnknown(
                    f"{self}: the catalog {self._catalog.name} did not say whether it made the commit ({error}). Run "
                    "it again: offsets that the table has by then are not written twice"
                ) from None

    def _is_made(self, commit: TableCommit) -> bool:
        """Return whether the table has a commit that its catalog gave no answer for."""
        try:
            self.refresh()
        except Exception:
            return False  # not to be known either
        told = [each.summary.additional_properties for each in self._table.snapshots() if each.summary]
        return any(each.get(_ATTEMPT) == commit.attempt for each in told)

    def _leave(self, commit: TableCommit) -> None:
        """Note that the files of a commit must stay, until the commit can come no more."""
        for attempt in {commit.attempt, *(attempt_of(each.path) for each in commit.add)}:
            self.place.child(NOTES).write(f"unknown-{attempt}.json", b"{}")

    def _may_be_committed(self, attempt: str) -> bool:
        note, notes = f"unknown-{attempt}.json", self.place.child(NOTES)
        if self._is_embedded or note not in notes.names():
            return False
        if notes.age_s(note, time.time()) <= STALE_S:
            return True
        notes.delete(note)
        return False

    def _overwrite(self, commit: TableCommit, transaction: Any, told: dict[str, str]) -> None:
        """Stage a snapshot without some files, or with other deleted rows in some."""
        tasks = {_base(task.file.file_path): task for task in self._tasks()}
        if any(each.path not in tasks for each in (*commit.remove, *commit.mark)):
            raise lost_race(self, "a file to replace is gone")
        gone = [tasks[each.path] for each in commit.remove]
        marked = [(tasks[each.path], each.deleted) for each in commit.mark]
        deletes = [
            write_deletes(self.data, commit.attempt, task.file.file_path, deleted, flush=self.layout.flush)
            for task, deleted in marked
        ]
        self.reached("marked")
        replaced = [task for task, _ in marked] + gone
        dropped = {d.file_path for t in replaced for d in t.delete_files if is_of(d, t.file.file_path)}
        producer = OverwriteWithDeletes(
            Operation.OVERWRITE, transaction, self._table.io, snapshot_properties=told
        )
        producer.with_deletes(deletes, dropped)
        with producer:
            for each in commit.add:
                producer.append_data_file(self._described(each, transaction.table_metadata))
            for task in gone:
                producer.delete_data_file(task.file)

    def _described(self, file: DataFile, metadata: Any) -> Any:
        """Return Iceberg's description of a file: its sizes, counts and bounds, from its own footer."""
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        url = self.data.url_of(file.path)
        try:
            return parquet_file_to_data_file(self._table.io, metadata, url)
        except OverflowError:
            # Bounds of times that Python's calendar does not have: without bounds readers look into the file.
            times = {
                n: "none" for n in metadata.schema().column_names if _is_time(metadata.schema().find_type(n))
            }
            unbounded = {f"{_METRICS}{name}": how for name, how in times.items()}
            metadata = metadata.model_copy(update={"properties": {**metadata.properties, **unbounded}})
            return parquet_file_to_data_file(self._table.io, metadata, url)

    def _paths_of(self, snapshot: Any) -> set[str]:
        io = self._table.io
        return {
            entry.data_file.file_path
            for manifest in snapshot.manifests(io)
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
        }

    def _lists_of(self, snapshot: Any) -> set[str]:
        """Return the files that say what a snapshot consists of."""
        return {snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(self._table.io))}

    def _create(self, schema: pa.Schema, location: str | None) -> CatalogTable:
        try:
            self._catalog.create_namespace(self._name[:-1])
        except NamespaceAlreadyExistsError:
            pass
        try:
            made = self._catalog.create_table(self._name, schema, location=location, properties=_PROPERTIES)
        except TableAlreadyExistsError:
            return self._catalog.load_table(self._name)
        made.transaction().set_properties(_columns_properties(made.schema())).commit_transaction()
        return made


def drop(catalog: str, name: str) -> None:
    """Drop a table of a catalog, with its files where the catalog deletes such; one that is not there is fine."""
    found = load_catalog(catalog)
    try:
        found.purge_table(name)
    except NoSuchTableError:
        pass
    except (RESTError, NotImplementedError):
        found.drop_table(name)


def drop_embedded(place: Path) -> None:
    """Take a table out of the embedded catalog; one that is not there is fine."""
    found, name, _ = _catalog(place, None)
    try:
        found.drop_table(name)
    except NoSuchTableError:
        pass


def _columns_properties(schema: Any) -> dict[str, str]:
    """Our files carry no field ids: readers find columns by these names. Bytes and what is nested have no bounds."""
    found = {"schema.name-mapping.default": schema.name_mapping.model_dump_json()}
    for name in schema.column_names:
        kind = schema.find_type(name)
        if "." in name or (kind.is_primitive and str(kind) == "binary"):
            found[f"{_METRICS}{name}"] = "none"
    return found


def _heirs(snapshots: Sequence[Any]) -> Sequence[Any]:
    """Return those that have all which snapshots before them had and any of these still has.

    Where each was made of the one before it that is the first: what it has no more, no later one has again. Where
    another engine rolled back or branched it is all of them.
    """
    ordered = sorted(snapshots, key=lambda each: each.sequence_number or 0)
    one_line = all(later.parent_snapshot_id == each.snapshot_id for each, later in pairwise(ordered))
    return ordered[:1] if one_line else ordered


def _base(path: str) -> str:
    """Return a file's name without where it is."""
    return path.rsplit("/", 1)[-1]


def _is_time(kind: Any) -> bool:
    return str(kind) in ("date", "timestamp", "timestamptz")


def _catalog(
    url: str | Path, catalog: str | Mapping[str, str] | None
) -> tuple[Catalog, tuple[str, ...], str | None]:
    """Return the catalog, the table's name in it, and where a new table goes (None: the catalog decides)."""
    if catalog is not None:
        found = load_catalog(catalog) if isinstance(catalog, str) else load_catalog("magnetar", **catalog)
        name = tuple(str(url).split("."))
        return found, name if len(name) > 1 else (NAMESPACE, *name), None
    place = TableDirectory(url)
    if not place.is_local:
        raise TableError(
            f"{url}: the embedded catalog is for directories; name a catalog of PyIceberg's for others"
        )
    place.directory.parent.mkdir(parents=True, exist_ok=True)
    file = place.directory.parent / CATALOG_FILE
    found = load_catalog(CATALOG, type="sql", uri=f"sqlite:///{file}", warehouse=str(place.directory.parent))
    return found, (NAMESPACE, place.directory.name), place.url
