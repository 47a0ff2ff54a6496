"""Is a table equal to its topic, record for record? A Spark job that finds one wrong record among millions.

First both sides are boiled down to one line per range of offsets: how many records, and a digest per column (see
`magnetar.pipeline.digests`). Only ranges whose lines differ are looked at record by record. Gaps in the topic's offsets
are no difference: what is compared are the records that are there.

The table is opened before the topic is asked where it ends, so a stream that goes on writing does no harm.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as f

from magnetar.pipeline.audit_differences import Difference, Differences, Move, differences
from magnetar.pipeline.audit_table import TableUnreadable, of_topic, open_table
from magnetar.pipeline.digests import COLUMNS, digest, hashed, range_number
from magnetar.pipeline.source import MagnetarDataSource, from_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

RANGE_OFFSETS = 100_000
MAX_LISTED = 1000


@dataclass(frozen=True, slots=True)
class Side:
    """What topic or table has in one range: records, their first and last offset (-1 for none), a digest per column."""

    records: int = 0
    first: int = -1
    last: int = -1
    digests: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class RangeLine:
    """One range of offsets, ``[low, high)``, of one partition, on both sides."""

    partition: int
    low: int
    high: int
    topic: Side
    table: Side

    @property
    def is_equal(self) -> bool:
        return self.topic == self.table


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """One partition: the offsets compared, ``[low, high)``, and the records found in them.

    ``older`` counts the table's records below ``low``, which the topic no longer keeps: nothing is said about them.
    """

    partition: int
    low: int
    high: int
    topic_records: int
    table_records: int
    older: int
    is_equal: bool


@dataclass(frozen=True, slots=True)
class Audit:
    """The outcome. ``differences`` are as many as were asked for at most; ``counts`` has all records of each kind."""

    topic: str
    table: str
    table_format: str
    is_equal: bool
    topic_records: int
    table_records: int
    compared: tuple[str, ...]
    not_compared: tuple[str, ...]
    digests: Mapping[str, str]
    """Per column, of the topic; equal to the table's where ``is_equal``."""
    partitions: tuple[PartitionLine, ...]
    counts: Mapping[str, int]
    differences: tuple[Difference, ...]
    moved: tuple[Move, ...]
    is_complete: bool
    """Whether all differences are listed."""
    is_up_to_table: bool
    """Whether nothing was asked about behind the table's last offsets."""
    unplaced: int
    """Rows of the table without partition or offset."""
    ranges: tuple[RangeLine, ...]
    seconds: float


class AuditRequest(NamedTuple):
    """What to compare. ``data`` is the broker's directory; None has the topic read through the broker's Fetch."""

    topic: str
    table: str
    data: Path | None
    format: str = "auto"
    table_topic: str | None = None
    """The topic's name in the table, where it is another one."""
    range_offsets: int = RANGE_OFFSETS
    max_listed: int = MAX_LISTED
    up_to_table: bool = False
    """Compare only up to the last offset of each partition that the table has."""
    options: Mapping[str, str] = {}
    """More options for the source; without ``data``, kafka.bootstrap.servers among them."""

    @property
    def place(self) -> dict[str, str]:
        """The options that say where the topic is."""
        return dict(self.options) | ({} if self.data is None else {"path": str(self.data)})


Bounds = dict[int, tuple[int, int]]


def audit(spark: SparkSession, question: AuditRequest) -> Audit:
    """Compare; raise ``ValueError`` for a topic that is not there, and `TableUnreadable`."""
    began = time.monotonic()
    table, table_format = open_table(spark, question.table, question.format)
    columns = _compared(table)
    rows = of_topic(table, question.topic, question.table_topic)
    bounds = _bounds(question)
    if question.up_to_table:
        bounds = _cut_to_table(bounds, rows)
    theirs = hashed(_topic(spark, question, bounds, columns), columns)
    ours = hashed(rows, columns)
    topic_lines, _, _ = _lines(theirs, columns, question.range_offsets, bounds)
    table_lines, older, unplaced = _lines(ours, columns, question.range_offsets, bounds)
    ranges = tuple(_paired(topic_lines, table_lines, question.range_offsets))
    wrong = [each for each in ranges if not each.is_equal]
    found = Differences()
    if wrong:
        topic_again = hashed(_topic(spark, question, _envelope(wrong, bounds), columns), columns)
        found = differences(
            spark, topic_again, ours.where(_aside(bounds) == COMPARED), columns,
            [(each.partition, each.low // question.range_offsets) for each in wrong],
            range_offsets=question.range_offsets, most=question.max_listed,
        )  # fmt: skip
    return Audit(
        topic=question.topic,
        table=question.table,
        table_format=table_format,
        is_equal=not wrong and not unplaced,
        topic_records=sum(each.topic.records for each in ranges),
        table_records=sum(each.table.records for each in ranges) + unplaced,
        compared=("partition", "offset", *columns),
        not_compared=tuple(name for name in COLUMNS if name not in columns),
        digests=_total(ranges, columns),
        partitions=_partitions(ranges, bounds, older),
        counts=found.counts,
        differences=found.differences,
        moved=found.moved,
        is_complete=found.is_complete,
        is_up_to_table=question.up_to_table,
        unplaced=unplaced,
        ranges=ranges,
        seconds=round(time.monotonic() - began, 3),
    )


def _compared(table: DataFrame) -> tuple[str, ...]:
    missing = [name for name in ("partition", "offset") if name not in table.columns]
    if missing:
        raise TableUnreadable(
            f"the table has no column {missing[0]}; it needs partition and offset, and has: "
            + ", ".join(table.columns)
        )
    return tuple(name for name in COLUMNS if name in table.columns)


def _bounds(question: AuditRequest) -> Bounds:
    """Give, by partition, the offsets that the topic has now: ``[first, next)``."""
    options = {
        "subscribe": question.topic,
        "startingOffsets": "earliest",
        **question.place,
    }
    source = MagnetarDataSource(options)
    reader = source.streamReader(source.schema())
    starts, ends = from_json(reader.initialOffset()), from_json(reader.reportLatestOffset())
    return {which.partition: (starts[which], max(end, starts[which])) for which, end in ends.items()}


def _cut_to_table(bounds: Bounds, rows: DataFrame) -> Bounds:
    last = {
        row.partition: row.last
        for row in rows.groupBy("partition").agg(f.max("offset").alias("last")).collect()
    }
    return {p: (low, max(min(high, last.get(p, -1) + 1), low)) for p, (low, high) in bounds.items()}


def _topic(spark: SparkSession, question: AuditRequest, bounds: Bounds, columns: Iterable[str]) -> DataFrame:
    """Return the topic's records with offsets in ``bounds``: their places and these columns."""
    some = {p: (low, high) for p, (low, high) in bounds.items() if high > low} or dict([*bounds.items()][:1])
    options = {
        "assign": json.dumps({question.topic: list(some)}),
        "startingOffsets": json.dumps({question.topic: {str(p): low for p, (low, _) in some.items()}}),
        "endingOffsets": json.dumps({question.topic: {str(p): high for p, (_, high) in some.items()}}),
        "columns": ",".join(("partition", "offset", *columns)),
        **question.place,
    }
    return spark.read.format("magnetar").options(**options).load()


COMPARED, OLDER, UNPLACED = 0, 1, 2


def _aside(bounds: Bounds) -> Column:
    """Tell of a row whether it is compared; what the topic let go of is not, and what has no place cannot be."""
    low = f.lit(0).cast("long")
    for partition, (first, _) in bounds.items():
        if first:
            low = f.when(f.col("partition") == partition, f.lit(first).cast("long")).otherwise(low)
    offset = f.col("offset")
    nowhere = f.col("partition").isNull() | offset.isNull() | (offset < 0)
    return f.when(nowhere, UNPLACED).when(offset < low, OLDER).otherwise(COMPARED)


def _lines(
    rows: DataFrame, columns: Iterable[str], size: int, bounds: Bounds
) -> tuple[dict[tuple[int, int], Side], dict[int, int], int]:
    """Return one line per partition and range, how many rows are older by partition, and how many have no place."""
    made = [digest(name).alias(name) for name in columns]
    grouped = rows.withColumn("aside", _aside(bounds)).groupBy("partition", range_number(size), "aside")
    counted = grouped.agg(
        f.count("*").alias("records"), f.min("offset").alias("first"), f.max("offset").alias("last"), *made
    ).collect()
    older: dict[int, int] = {}
    for row in counted:
        if row.aside == OLDER:
            older[row.partition] = older.get(row.partition, 0) + row.records
    lines = {(r.partition, r.range): _side(r, columns) for r in counted if r.aside == COMPARED}
    return lines, older, sum(row.records for row in counted if row.aside == UNPLACED)


def _side(row: Row, columns: Iterable[str]) -> Side:
    return Side(row.records, row.first, row.last, {name: _hex(row[name]) for name in columns})


def _hex(value: int) -> str:
    return f"{value & (1 << 64) - 1:016x}"


def _paired(
    topic: Mapping[tuple[int, int], Side], table: Mapping[tuple[int, int], Side], size: int
) -> Iterable[RangeLine]:
    nothing = Side()
    for partition, number in sorted(topic.keys() | table.keys()):
        at = partition, number
        yield RangeLine(
            partition, number * size, (number + 1) * size, topic.get(at, nothing), table.get(at, nothing)
        )


def _envelope(wrong: Iterable[RangeLine], bounds: Bounds) -> Bounds:
    """Give, by partition, offsets that span all ranges that are wrong."""
    spans: Bounds = {}
    for each in wrong:
        if each.partition in bounds:
            low, high = spans.get(each.partition, (each.low, each.high))
            first, after = bounds[each.partition]
            spans[each.partition] = max(min(low, each.low), first), min(max(high, each.high), after)
    return spans or {p: (low, low) for p, (low, _) in bounds.items()}


def _total(ranges: Iterable[RangeLine], columns: Iterable[str]) -> dict[str, str]:
    total = dict.fromkeys(columns, 0)
    for each in ranges:
        for name, text in (each.topic.digests or {}).items():
            total[name] ^= int(text, 16)
    return {name: _hex(value) for name, value in total.items()}


def _partitions(
    ranges: Iterable[RangeLine], bounds: Bounds, older: Mapping[int, int]
) -> tuple[PartitionLine, ...]:
    lines = []
    ranges = list(ranges)
    for partition in sorted(bounds.keys() | {each.partition for each in ranges}):
        mine = [each for each in ranges if each.partition == partition]
        low, high = bounds.get(partition, (0, 0))
        lines.append(
            PartitionLine(
                partition,
                low,
                high,
                sum(each.topic.records for each in mine),
                sum(each.table.records for each in mine),
                older.get(partition, 0),
                all(each.is_equal for each in mine),
            )
        )
    return tuple(lines)
