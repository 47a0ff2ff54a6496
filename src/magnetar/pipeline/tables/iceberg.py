"""Apache Iceberg through PyIceberg: files, offset ranges and position in one transaction of the catalog.

The snapshot's summary says the commit's ranges (``magnetar.ranges``). Table properties, set in the same transaction,
say the position: ``magnetar.next.<topic>`` = ``{partition: offset}``, and ``magnetar.topics`` = ``{topic: id}``.
Properties outlive expired snapshots and other engines' compactions.

PyIceberg would try a commit again on top of another writer's, which would write the same offsets twice. So the table's
property ``commit.retry.num-retries`` is 0: the catalog takes a commit on the snapshot that was looked at, or none.

Embedded, the catalog is a SQLite file beside the table; any catalog of PyIceberg's can be named instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow

from magnetar.pipeline.options import Offsets
from magnetar.pipeline.tables.directory import TableDirectory
from magnetar.pipeline.tables.errors import TableError
from magnetar.pipeline.tables.files import DataFile, Layout
from magnetar.pipeline.tables.ranges import ranges_to_json
from magnetar.pipeline.tables.schema import plain_schema
from magnetar.pipeline.tables.table import CommitInfo, Table, TableCommit, lost_race, positions_of

if TYPE_CHECKING:
    from pyiceberg.table import Table as CatalogTable

_TOPICS = "magnetar.topics"
_NEXT = "magnetar.next."
_RANGES = "magnetar.ranges"
_OPERATION = "magnetar.operation"
_NAMESPACE = "default"
_PROPERTIES = {"commit.retry.num-retries": "0", "format-version": "2"}


class IcebergTable(Table):
    """An Iceberg table in the embedded catalog (``url`` is its directory) or in another (``url`` is its name)."""

    format = "iceberg"

    def __init__(
        self, url: str | Path, schema: pa.Schema | None, layout: Layout, *,
        catalog: str | Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._catalog, self._name, location = _catalog(url, catalog)
        try:
            self._table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            if schema is None:
                raise TableError(
                    f"there is no table {'.'.join(self._name)} in {self._catalog.name}"
                ) from None
            self._table = self._create(schema, location)
        if self._table.properties.get("commit.retry.num-retries") != "0":
            self._table.transaction().set_properties(_PROPERTIES).commit_transaction()
        if not self._table.spec().is_unpartitioned():
            raise TableError(f"Iceberg table {'.'.join(self._name)} is partitioned; choose one that is not")
        place = TableDirectory(self._table.location())
        super().__init__(place, place.child("data"), layout)

    @property
    def version(self) -> int:
        return int(self._table.metadata.current_snapshot_id or 0)

    @property
    def schema(self) -> pa.Schema:
        return plain_schema(schema_to_pyarrow(self._table.schema(), include_field_ids=False))

    def refresh(self) -> None:
        self._table.refresh()

    def topics(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._table.properties.get(_TOPICS, "{}"))
        return found

    def position(self) -> Offsets:
        found: Offsets = {}
        for topic in self.topics():
            found |= positions_of(topic, json.loads(self._table.properties.get(_NEXT + topic, "{}")))
        return found

    def files(self) -> list[DataFile]:
        return [
            DataFile(
                task.file.file_path.rsplit("/", 1)[-1], task.file.file_size_in_bytes, task.file.record_count
            )
            for task in self._table.scan().plan_files()
        ]

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
        """Forget snapshots that old, and delete the files that only they had."""
        limit = datetime.now(UTC) - timedelta(seconds=older_than_s)
        old = [s for s in self._table.snapshots() if s.timestamp_ms < limit.timestamp() * 1000]
        before = {path for snapshot in old for path in self._paths_of(snapshot)}
        self._table.maintenance.expire_snapshots().older_than(limit).commit()
        self.refresh()
        gone = before - {path for snapshot in self._table.snapshots() for path in self._paths_of(snapshot)}
        for path in gone:
            self._table.io.delete(path)
        return len(gone)

    def add_columns(self, schema: pa.Schema) -> None:
        wider = pa.schema([*self.schema, *schema])
        try:
            with self._table.transaction() as transaction:
                with transaction.update_schema() as update:
                    update.union_by_name(wider)
                transaction.set_properties(_columns_properties(transaction.table_metadata.schema()))
        except CommitFailedException as error:
            raise lost_race(self, error) from None
        self.refresh()

    def _commit(self, commit: TableCommit, position: Offsets) -> None:
        topics = self.topics() | dict(commit.topics)
        told = {
            _RANGES: json.dumps(ranges_to_json(commit.ranges)),
            _OPERATION: commit.operation,
            "magnetar.attempt": commit.attempt,
        }
        properties = {_TOPICS: json.dumps(topics, sort_keys=True)}
        for topic in topics:
            at = {str(w.partition): offset for w, offset in sorted(position.items()) if w.topic == topic}
            properties[_NEXT + topic] = json.dumps(at)
        transaction = self._table.transaction()
        transaction.set_properties(properties)
        update = transaction.update_snapshot(snapshot_properties=told)
        with update.overwrite() if commit.remove else update.fast_append() as producer:
            for each in commit.add:
                producer.append_data_file(self._described(each, transaction.table_metadata))
            removed = {each.path for each in commit.remove}
            for task in self._table.scan().plan_files() if removed else ():
                if task.file.file_path.rsplit("/", 1)[-1] in removed:
                    producer.delete_data_file(task.file)
        try:
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise lost_race(self, error) from None

    def _described(self, file: DataFile, metadata: Any) -> Any:
        """Return Iceberg's description of a file: its sizes, counts and bounds, from its own footer."""
        return parquet_file_to_data_file(self._table.io, metadata, self.data.url_of(file.path))

    def _paths_of(self, snapshot: Any) -> set[str]:
        io = self._table.io
        return {
            entry.data_file.file_path
            for manifest in snapshot.manifests(io)
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
        }

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


def _columns_properties(schema: Any) -> dict[str, str]:
    """Our files carry no field ids: readers find columns by these names. Bytes and what is nested have no bounds."""
    found = {"schema.name-mapping.default": schema.name_mapping.model_dump_json()}
    for name in schema.column_names:
        kind = schema.find_type(name)
        if "." in name or (kind.is_primitive and str(kind) == "binary"):
            found[f"write.metadata.metrics.column.{name}"] = "none"
    return found


def _catalog(
    url: str | Path, catalog: str | Mapping[str, str] | None
) -> tuple[Catalog, tuple[str, ...], str | None]:
    """Return the catalog, the table's name in it, and where a new table goes (None: the catalog decides)."""
    if catalog is not None:
        found = load_catalog(catalog) if isinstance(catalog, str) else load_catalog("magnetar", **catalog)
        name = tuple(str(url).split("."))
        return found, name if len(name) > 1 else (_NAMESPACE, *name), None
    place = TableDirectory(url)
    if not place.is_local:
        raise TableError(
            f"{url}: the embedded catalog is for directories; name a catalog of PyIceberg's for others"
        )
    place.directory.parent.mkdir(parents=True, exist_ok=True)
    file = place.directory.parent / "catalog.sqlite"
    found = load_catalog(
        "embedded", type="sql", uri=f"sqlite:///{file}", warehouse=str(place.directory.parent)
    )
    return found, (_NAMESPACE, place.directory.name), place.url
