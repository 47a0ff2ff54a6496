"""Parquet files written straight from Arrow, in the order of offsets.

How they are written is a matter of measurement: positions are packed as differences, what producers wrote is not put
into dictionaries (it would be tried and given up in every row group), and only columns that anybody filters by get
statistics. That is twice as fast as pyarrow's defaults for records of 100 B.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from magnetar.pipeline.tables.deleted_rows import unpacked, without
from magnetar.pipeline.tables.directory import TableDirectory
from magnetar.pipeline.tables.schema import rows_with_fields

_POSITIONS = frozenset(
    (
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "ledger_id",
        "entry_id",
        "batch_index",
        "publish_time",
    )
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROW_GROUP_BYTES = 16 << 20
_ROW_GROUP_ROWS = 1 << 20
_SORTED_GROUP_ROWS = 1 << 15
CODECS = ("snappy", "zstd", "lz4", "gzip", "none")
_NAME = re.compile(r"(?P<order>.+)-(?P<attempt>[0-9a-f]{12})-[0-9a-f]{8}\.parquet")


@dataclass(frozen=True, slots=True)
class Layout:
    """How files are written."""

    target_bytes: int = 128 << 20
    """About how large a file may become."""
    compression: str = "snappy"
    """One of `CODECS`. zstd makes smaller files and takes some more time."""
    flush: bool = True
    """Whether files are on disk before a commit names them. Without it a commit survives the death of any process, as
    one of Spark's own writer does, but after a power failure files may be damaged that the table has."""
    sorted_by: tuple[str, ...] = ()
    """The columns by which rows come sorted, the key's: then row groups are small and have bounds of these columns, so
    that few need to be read to find a key."""
    keep_from_bytes: int | None = 256 << 10
    """Files at least this large stay as they are when `apply_changes` replaces some of their rows, which are marked as
    deleted then, where format and table allow it; smaller files are written again. None: all are."""

    def __post_init__(self) -> None:
        if self.compression not in CODECS:
            raise ValueError(f"compression must be one of {', '.join(CODECS)}, not {self.compression!r}")
        if self.target_bytes < 1:
            raise ValueError(f"target_bytes must be above 0, not {self.target_bytes}")


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a table; ``path`` is its name in the table's data directory."""

    path: str
    size: int
    rows: int
    stats: dict[str, Any] = field(default_factory=dict)
    """``{column: [least, greatest, nulls]}`` of the columns that have statistics."""

    deletes: bool = False
    """Whether rows are deleted in a way of the format's that is not known here."""
    deleted: bytes = b""
    """The numbers of rows that are deleted (`magnetar.pipeline.tables.deleted_rows`)."""

    @property
    def live_rows(self) -> int:
        """The number of rows that readers see."""
        if not self.deleted:
            return self.rows
        return self.rows - len(unpacked(self.deleted))

    @property
    def order(self) -> str:
        """What sorts the files of a partition by offset."""
        match = _NAME.fullmatch(self.path)
        return match["order"] if match else ""


def new_attempt() -> str:
    """Return a name for one try to commit; every file written for it carries it."""
    return uuid.uuid4().hex[:12]


def attempt_of(path: str) -> str | None:
    """Return the attempt that a file was written for, or None if it is not one of ours."""
    match = _NAME.fullmatch(path)
    return match["attempt"] if match else None


class FileWriter:
    """Writes batches of one order into files of about the wanted size."""

    def __init__(self, place: TableDirectory, schema: pa.Schema, layout: Layout, attempt: str) -> None:
        self._place = place
        self._schema = schema
        self._layout = layout
        self._attempt = attempt
        self._options = writer_options(schema, layout)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._file: _OpenFile | None = None
        self._partition = ""
        self.files: list[DataFile] = []

    def write(self, batch: pa.RecordBatch, order: str) -> None:
        """Take a batch; ``order`` names the file that it may begin. What is not small gets files of its own."""
        partition = order.rsplit("-", 1)[0]
        if self._file is not None and partition != self._partition and self._is_large():
            self.close()
        self._partition = partition
        if self._file is None:
            name = f"{order}-{self._attempt}-{uuid.uuid4().hex[:8]}.parquet"
            self._file = _OpenFile(self._place, name, self._options)
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        rows = sum(each.num_rows for each in self._waiting)
        most = _SORTED_GROUP_ROWS if self._layout.sorted_by else _ROW_GROUP_ROWS
        if self._waiting_bytes >= _ROW_GROUP_BYTES or rows >= most:
            self._flush()
            if self._file.size >= self._layout.target_bytes:
                self.close()

    def close(self) -> None:
        """End the file that is open."""
        if self._file is not None:
            self._flush()
            self.files.append(self._file.close())
            if self._layout.flush:
                self._place.sync([self.files[-1].path])
            self._file = None

    def _is_large(self) -> bool:
        assert self._file is not None
        return self._file.size + self._waiting_bytes > self._layout.target_bytes // 16

    def _flush(self) -> None:
        if self._waiting and self._file is not None:
            start = self._file.size
            self._file.add(pa.Table.from_batches(self._waiting))
            if self._layout.flush:
                self._place.begin_sync(self._file.name, start, self._file.size)
        self._waiting, self._waiting_bytes = [], 0


class _OpenFile:
    def __init__(self, place: TableDirectory, name: str, options: dict[str, Any]) -> None:
        self.name = name
        self._sink = place.create(name)
        self._options = options
        self._writer: pq.ParquetWriter | None = None
        self._footer: list[Any] = []
        self._unbounded: set[str] = set()

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def add(self, table: pa.Table) -> None:
        """Write one row group."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._sink, table.schema, metadata_collector=self._footer, **self._options
            )
        self._unbounded |= _with_nan(table)
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def close(self) -> DataFile:
        assert self._writer is not None
        self._writer.close()
        size = self.size
        self._sink.close()
        (footer,) = self._footer
        stats = {name: each for name, each in column_stats(footer).items() if name not in self._unbounded}
        return DataFile(self.name, size, footer.num_rows, stats)


def writer_options(schema: pa.Schema, layout: Layout) -> dict[str, Any]:
    """Return what `pyarrow.parquet.ParquetWriter` is told about these columns."""
    compression = layout.compression
    packed = [f.name for f in schema if f.name in _POSITIONS and _is_packable(f.type)]
    raw = [f.name for f in schema if pa.types.is_binary(f.type) or pa.types.is_large_binary(f.type)]
    plain = set(packed) | set(raw)
    leaves = _leaves(schema)
    return {
        "compression": compression,
        "compression_level": 1 if compression == "zstd" else None,
        "use_dictionary": [path for path in leaves if path not in plain and not path.endswith(".value")],
        "column_encoding": dict.fromkeys(packed, "DELTA_BINARY_PACKED") | dict.fromkeys(raw, "PLAIN"),
        "write_statistics": [
            f.name
            for f in schema
            if f.name in layout.sorted_by or (f.name not in raw and not pa.types.is_nested(f.type))
        ],
        "sorting_columns": [pq.SortingColumn(leaves.index(name)) for name in layout.sorted_by] or None,
        "write_page_index": True,
        "store_schema": False,
    }


def _with_nan(table: pa.Table) -> set[str]:
    """Return the columns with NaN in them, which bounds leave out: readers that skip files would miss it."""
    import pyarrow.compute as pc

    return {
        field.name
        for field in table.schema
        if pa.types.is_floating(field.type) and pc.any(pc.is_nan(table[field.name])).as_py()
    }


def column_stats(footer: Any) -> dict[str, Any]:
    """Return ``{column: [least, greatest, nulls]}`` over all row groups of a file."""
    found: dict[str, Any] = {}
    broken = set()
    for group in range(footer.num_row_groups):
        row_group = footer.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            name, stats = column.path_in_schema, column.statistics
            if "." in name or stats is None or not stats.has_min_max:
                broken.add(name)
                continue
            try:
                least, greatest = _bounds(stats)
            except OverflowError:  # times that no calendar of Python's reaches
                broken.add(name)
                continue
            low, high, nulls = found.get(name, (least, greatest, 0))
            found[name] = [min(low, least), max(high, greatest), nulls + stats.null_count]
    return {name: each for name, each in found.items() if name not in broken}


def _bounds(stats: Any) -> tuple[Any, Any]:
    """Return the least and the greatest of a column's values, as Python has them."""
    kind = str(stats.logical_type)
    if kind.startswith("Timestamp(isAdjustedToUTC=true, timeUnit=microseconds"):
        # What pyarrow would make of these imports pandas where it is installed.
        return _EPOCH + timedelta(microseconds=stats.min_raw), _EPOCH + timedelta(microseconds=stats.max_raw)
    return stats.min, stats.max


def write_files(
    place: TableDirectory,
    schema: pa.Schema,
    layout: Layout,
    attempt: str,
    batches: Iterable[tuple[str, pa.RecordBatch]],
) -> list[DataFile]:
    """Write (order, batch) pairs that follow each other; give the files, which nobody reads before a commit."""
    writer = FileWriter(place, schema, layout, attempt)
    for order, batch in batches:
        if batch.num_rows:
            writer.write(batch, order)
    writer.close()
    return writer.files


def read_in_order(
    place: TableDirectory, files: Iterable[DataFile], schema: pa.Schema
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the (order, batch) pairs of files one after the other, in the table's schema, without deleted rows."""
    for each in files:
        with place.open(each.path) as source:
            for batch in rows_of(pq.ParquetFile(source), each):
                yield each.order, fit(batch, schema)


def rows_of(
    parquet: pq.ParquetFile, file: DataFile, groups: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file's row groups (default: all) but those that are deleted."""
    if not file.deleted:
        yield from parquet.iter_batches(batch_size=1 << 16, row_groups=groups)
        return
    deleted, first = unpacked(file.deleted), 0
    for number in range(parquet.num_row_groups):
        at, first = first, first + parquet.metadata.row_group(number).num_rows
        if groups is not None and number not in groups:
            continue
        for batch in parquet.iter_batches(batch_size=1 << 16, row_groups=[number]):
            yield without(batch, at, deleted)
            at += batch.num_rows


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch the table's columns: in its order and types, null where it has none."""
    names = batch.schema.names
    columns = [
        rows_with_fields(batch.column(f.name)).cast(f.type)
        if f.name in names
        else pa.nulls(batch.num_rows, f.type)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def sorted_by(footer: Any) -> tuple[str, ...]:
    """Return the columns that a file's rows are sorted by within each row group; none if it does not say."""
    if not footer.num_row_groups:
        return ()
    columns = footer.row_group(0).sorting_columns
    return tuple(footer.schema.column(each.column_index).path for each in columns)


def no_rows(schema: pa.Schema) -> pa.Table:
    """Return a table of these columns that is empty.

    ``schema.empty_table()`` would import pandas where it is installed: 40 MB in each of Spark's workers.
    """
    return pa.Table.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)


def order_of(topic: str, partition: int, offset: int) -> str:
    """Return what a file's name begins with, so that names sort by offset."""
    return f"part-{re.sub(r'[^A-Za-z0-9_.]', '_', topic)}-{partition:05d}-{offset:019d}"


def _is_packable(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind))


def _leaves(schema: pa.Schema) -> list[str]:
    """Return the paths of all leaves as Parquet names them."""
    sample = pq.ParquetFile(_empty_file(schema)).schema
    return [sample.column(number).path for number in range(len(sample))]


def _empty_file(schema: pa.Schema) -> pa.BufferReader:
    sink = pa.BufferOutputStream()
    pq.write_table(no_rows(schema), sink)
    return pa.BufferReader(sink.getvalue())
