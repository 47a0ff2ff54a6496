"""Iceberg's position deletes (format version 2): files that name rows of data files by their numbers.

PyIceberg reads them and does not write them. Each data file has one file of deletes at most, with all of its deleted
rows, which the next one replaces; readers find it by its bounds of ``file_path``.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table.snapshots import Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT, Record

from magnetar.pipeline.tables.deleted_rows import unpacked
from magnetar.pipeline.tables.directory import TableDirectory

# The ids that Iceberg's specification has for these two columns.
_PATH, _POS = 2147483546, 2147483545
_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(_PATH)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(_POS)}),
    ]
)


class DeletesWriter(ManifestWriterV2):
    """Writes a manifest of files of deletes."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


# PyIceberg's own class for a snapshot that removes files: what it lacks is a manifest of deletes. The methods are the
# hooks that its subclasses have.
class OverwriteWithDeletes(_OverwriteFiles):
    """A snapshot that may also add files of deletes, and let go of some."""

    def with_deletes(self, added: Sequence[DataFile], dropped: Iterable[str]) -> None:
        """Set the files of deletes that are added, and the full names of those that are dropped."""
        self._new_deletes = list(added)
        self._dropped = set(dropped)
        self._gone: list[DataFile] = []

    def _deleted_entries(self) -> list[ManifestEntry]:
        return super()._deleted_entries() if self._deleted_data_files else []

    def _existing_manifests(self) -> list[ManifestFile]:
        if self._deleted_data_files:
            return super()._existing_manifests()
        snapshot = self._transaction.table_metadata.current_snapshot()
        there = snapshot.manifests(io=self._io) if snapshot else []  # none of them need be read
        return [each for each in there if each.has_added_files() or each.has_existing_files()]

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        data = [each for each in manifests if each.content == ManifestContent.DATA]
        deletes = [each for each in manifests if each.content == ManifestContent.DELETES]
        entries = [entry for each in deletes for entry in self.fetch_manifest_entry(each)]
        spec = self._transaction.table_metadata.spec()
        if not entries and not self._new_deletes:
            return data
        with DeletesWriter(
            spec, self.schema(), self.new_manifest_output(), self.snapshot_id, self._compression
        ) as writer:
            for entry in entries:
                if entry.data_file.file_path in self._dropped:
                    writer.delete(entry)
                    self._gone.append(entry.data_file)
                else:
                    writer.existing(entry)
            for each in self._new_deletes:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED, snapshot_id=self.snapshot_id, data_file=each
                    )
                )
        return [*data, writer.to_manifest_file()]

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        added, removed = self._added_data_files, self._deleted_data_files
        self._added_data_files = [*added, *self._new_deletes]
        self._deleted_data_files = {*removed, *self._gone}
        try:
            return super()._summary(snapshot_properties)
        finally:
            self._added_data_files, self._deleted_data_files = added, removed


def write_deletes(place: TableDirectory, attempt: str, path: str, deleted: bytes, *, flush: bool) -> DataFile:
    """Write the deleted rows of the data file with the full name ``path``, and return what the commit says of it."""
    rows = pa.array(unpacked(deleted).to_array(), pa.int64())
    name = f"deletes-{attempt}-{uuid.uuid4().hex[:8]}.parquet"
    paths = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), len(rows)), [path])
    table = pa.Table.from_arrays([paths.cast(pa.string()), rows], schema=_SCHEMA)
    with place.create(name) as sink:
        pq.write_table(
            table, sink, use_dictionary=["file_path"], column_encoding={"pos": "DELTA_BINARY_PACKED"},
            compression="zstd", store_schema=False,
        )  # fmt: skip
        size = sink.tell()
    if flush:
        place.sync([name])
    bounds = [(_PATH, path.encode(), path.encode())]
    bounds += [(_POS, struct.pack("<q", rows[0].as_py()), struct.pack("<q", rows[-1].as_py()))]
    return DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=place.url_of(name),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(rows),
        file_size_in_bytes=size,
        column_sizes={},
        value_counts={_PATH: len(rows), _POS: len(rows)},
        null_value_counts={_PATH: 0, _POS: 0},
        nan_value_counts={},
        lower_bounds={number: least for number, least, _ in bounds},
        upper_bounds={number: greatest for number, _, greatest in bounds},
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
        spec_id=0,
    )


def is_of(deletes: DataFile, path: str) -> bool:
    """Return whether a file of deletes is about this data file alone."""
    lower, upper = deletes.lower_bounds or {}, deletes.upper_bounds or {}
    return lower.get(_PATH) == upper.get(_PATH) == path.encode()


def read_deletes(source: Any, path: str) -> Any:
    """Return the rows of the data file ``path`` that a file of deletes names, as an array of numpy's."""
    table = pq.ParquetFile(source).read(columns=["file_path", "pos"])
    return table.filter(pc.equal(table["file_path"], path))["pos"].to_numpy()
