"""A topic from its table again: the same offsets, keys, values, headers and timestamps, gaps included. A Spark job.

Each task sorts a piece of the table by offset and writes it as a sealed ledger into the data directory; when all
are there, the topic is made of them at once. Who hands out ledger ids and makes the topic is the broker that runs on
the directory, or this process where none does (`Registrar`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark.sql import functions as f

from magnetar.ledger.port import LedgerSummary
from magnetar.pipeline.audit_table import TableUnreadable, of_topic, open_table
from magnetar.pipeline.restore_ledgers import Made, RestoredPiece, write_piece
from magnetar.records.compression import Codec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

LEDGER_BYTES = 256 << 20
_NEEDED = ("partition", "offset", "value", "timestamp")
_COLUMNS = ("partition", "offset", "key", "value", "headers", "timestamp", "timestampType")
_MADE = (
    "ledger_id long, partition int, first_offset long, last_offset long, entries long, size long, "
    "max_timestamp long, records long, min_timestamp long"
)


class Registrar(Protocol):
    """Who owns the data directory."""

    def reserve(self, topic: str, partitions: int, ledgers: int) -> tuple[int, ...]:
        """Return ids for ledgers; raise if there is such a topic already."""

    def adopt(
        self, topic: str, partitions: int, configs: Mapping[str, str], logs: Mapping[int, list[LedgerSummary]]
    ) -> None:
        """Make the topic."""


class Order(NamedTuple):
    """What to restore, and how."""

    table: str
    topic: str
    data: Path
    format: str = "auto"
    table_topic: str | None = None
    partitions: int | None = None
    """None: as many as the table knows."""
    configs: Mapping[str, str] = {}
    codec: Codec = Codec.none
    ledger_bytes: int = LEDGER_BYTES


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """Offsets ``[low, high)`` of one partition, its records and ledgers."""

    partition: int
    low: int
    high: int
    records: int
    ledgers: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What was made. ``absent`` are columns that the table did not have."""

    topic: str
    table: str
    table_format: str
    records: int
    absent: tuple[str, ...]
    configs: Mapping[str, str]
    partitions: tuple[RestoredPartition, ...]
    seconds: float


class Extent(NamedTuple):
    """What the table has of one partition."""

    partition: int
    records: int
    low: int
    high: int
    bytes: int


def restore(spark: SparkSession, order: Order, registrar: Registrar) -> Restored:
    """Rebuild the topic; raise `TableUnreadable`, ``RowUnfit``, and what the registrar raises."""
    began = time.monotonic()
    table, table_format = open_table(spark, order.table, order.format)
    missing = [name for name in _NEEDED if name not in table.columns]
    if missing:
        raise TableUnreadable(
            f"a topic cannot be restored from a table without {missing[0]}; it has: {', '.join(table.columns)}"
        )
    absent = tuple(name for name in _COLUMNS if name not in table.columns)
    rows = _normalized(of_topic(table, order.topic, order.table_topic))
    extents = _extents(rows)
    partitions = _partitions(order, extents)
    cut = [(each, *span) for each in extents for span in _spans(each, order.ledger_bytes)]
    ids = registrar.reserve(order.topic, partitions, len(cut))
    pieces = [
        RestoredPiece(extent.partition, low, high, ledger_id)
        for (extent, low, high), ledger_id in zip(cut, ids, strict=True)
    ]
    made = _write(rows, pieces, extents, order)
    # The records are as old as they are: no retention by time may take them away as soon as they are back.
    configs = {"retention.ms": "-1", "retention.bytes": "-1", **order.configs}
    registrar.adopt(order.topic, partitions, configs, _logs(made))
    return Restored(
        order.topic, order.table, table_format, sum(each.records for each in made), absent, configs,
        tuple(_summary(p, made) for p in range(partitions)), round(time.monotonic() - began, 3),
    )  # fmt: skip


def _normalized(table: DataFrame) -> DataFrame:
    """Return the columns of `_COLUMNS` that the table has, in types that the writer knows."""
    made = [f.col("partition").cast("int"), f.col("offset").cast("long")]
    made += [f.col(name).cast("binary") for name in ("key", "value") if name in table.columns]
    if "headers" in table.columns:
        made.append(f.col("headers"))
    made.append(f.col("timestamp").cast("timestamp"))
    kind = f.col("timestampType") if "timestampType" in table.columns else f.lit(0)
    return table.select(*made, kind.cast("int").alias("timestampType"))


def _extents(rows: DataFrame) -> list[Extent]:
    size = f.lit(32).cast("long")
    for name in {"key", "value"} & set(rows.columns):
        size = size + f.coalesce(f.octet_length(name), f.lit(0))
    counted = (
        rows.groupBy("partition")
        .agg(
            f.count("*").alias("records"),
            f.min("offset").alias("low"),
            f.max("offset").alias("last"),
            f.sum(size).alias("bytes"),
            f.count_if(f.col("offset").isNull()).alias("nowhere"),
        )
        .orderBy("partition")
        .collect()
    )
    for row in counted:
        if row.partition is None or row.nowhere or row.partition < 0 or row.low < 0:
            raise TableUnreadable("the table has rows whose partition or offset is null or negative")
    return [Extent(r.partition, r.records, r.low, r.last + 1, r.bytes) for r in counted]


def _partitions(order: Order, extents: list[Extent]) -> int:
    if not extents:
        raise TableUnreadable(f"the table has no records of {order.table_topic or order.topic}")
    least = extents[-1].partition + 1
    if order.partitions is None:
        return least
    if order.partitions < least:
        raise ValueError(f"the table has partition {least - 1}: fewer than {least} partitions cannot hold it")
    return order.partitions


def _width(extent: Extent, ledger_bytes: int) -> int:
    """Return how many offsets one ledger holds."""
    ledgers = max(1, -(-extent.bytes // ledger_bytes))
    return max(1, -(-(extent.high - extent.low) // ledgers))


def _spans(extent: Extent, ledger_bytes: int) -> Iterator[tuple[int, int]]:
    width = _width(extent, ledger_bytes)
    for low in range(extent.low, extent.high, width):
        yield low, min(low + width, extent.high)


def _write(rows: DataFrame, pieces: list[RestoredPiece], extents: list[Extent], order: Order) -> list[Made]:
    """Have every piece written; those in whose offsets the table has nothing are written here, as gaps."""
    first: dict[int, int] = {}
    for number, piece in enumerate(pieces):
        first.setdefault(piece.partition, number)
    number = _number_of(extents, first, order.ledger_bytes)
    sorted_rows = (
        rows.withColumn("piece", number.cast("int"))
        .repartitionById(len(pieces), f.col("piece"))
        .sortWithinPartitions("offset")
    )
    now_ms = time.time_ns() // 1_000_000
    job = _task(order.data, pieces, order.codec, now_ms)
    made = [Made(**row.asDict()) for row in sorted_rows.mapInArrow(job, _MADE).collect()]
    there = {each.ledger_id for each in made}
    made += [
        write_piece(order.data, piece, (), codec=order.codec, now_ms=now_ms)
        for piece in pieces
        if piece.ledger_id not in there
    ]
    return sorted(made, key=lambda each: (each.partition, each.first_offset))


def _number_of(extents: list[Extent], first: Mapping[int, int], ledger_bytes: int) -> Column:
    """Return the expression that tells a row's piece."""
    places = f.create_map(
        *(
            f.lit(each)
            for extent in extents
            for each in (
                extent.partition,
                f.struct(
                    f.lit(first[extent.partition]).cast("long").alias("first"),
                    f.lit(extent.low).cast("long").alias("low"),
                    f.lit(_width(extent, ledger_bytes)).cast("long").alias("width"),
                ),
            )
        )
    )
    place = places[f.col("partition")]
    behind = f.col("offset") - place["low"]
    return place["first"] + (behind - behind % place["width"]) / place["width"]


def _task(
    data: Path, pieces: list[RestoredPiece], codec: Codec, now_ms: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    return partial(_write_rows, data, pieces, codec, now_ms)


def _write_rows(
    data: Path, pieces: list[RestoredPiece], codec: Codec, now_ms: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the one piece that this task was given."""
    import pyarrow as pa

    full = (batch for batch in batches if batch.num_rows)
    head = next(full, None)
    if head is None:
        return
    piece = pieces[head.column("piece")[0].as_py()]
    made = write_piece(data, piece, _behind(head, full), codec=codec, now_ms=now_ms)
    kinds = {"partition": pa.int32()}
    yield pa.RecordBatch.from_arrays(
        [pa.array([value], kinds.get(name, pa.int64())) for name, value in made._asdict().items()],
        names=list(Made._fields),
    )


def _behind(head: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield head
    yield from rest


def _logs(made: Iterable[Made]) -> dict[int, list[LedgerSummary]]:
    logs: dict[int, list[LedgerSummary]] = {}
    for each in made:
        logs.setdefault(each.partition, []).append(
            LedgerSummary(
                each.ledger_id,
                each.first_offset,
                each.last_offset,
                each.entries,
                each.size,
                each.max_timestamp,
                time.time_ns() // 1_000_000,
                sealed=True,
                min_timestamp=each.min_timestamp,
            )
        )
    return logs


def _summary(partition: int, made: Iterable[Made]) -> RestoredPartition:
    mine = [each for each in made if each.partition == partition]
    return RestoredPartition(
        partition,
        mine[0].first_offset if mine else 0,
        mine[-1].last_offset + 1 if mine else 0,
        sum(each.records for each in mine),
        len(mine),
        sum(each.size for each in mine),
    )
