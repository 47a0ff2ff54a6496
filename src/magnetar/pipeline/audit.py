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

from magnetar.pipeline.audit_differences import Difference, Found, Move, differences
from magnetar.pipeline.audit_table import TableUnreadable, of_topic, open_table
from magnetar.pipeline.digests import COLUMNS, digest, hashed, range_number
from magnetar.pipeline.source import MagnetarDataSource, from_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

RANGE_OFFSETS = 100_000
MOST_LISTED = 1000


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
    unplaced: int
    """Rows of the table without partition or offset."""
    ranges: tuple[RangeLine, ...]
    seconds: float


class Question(NamedTuple):
    """What to compare. ``data`` is the broker's directory or other place the source reads from."""

    topic: str
    table: str
    data: Path
    format: str = "auto"
    table_topic: str | None = None
    """The topic's name in the table, where it is another one."""
    range_offsets: int = RANGE_OFFSETS
    most_listed: int = MOST_LISTED
    up_to_table: bool = False
    """Compare only up to the last offset of each partition that the table has."""
    options: Mapping[str, str] = {}
    """More options for the source."""


Bounds = dict[int, tuple[int, int]]


def audit(spark: SparkSession, question: Question) -> Audit:
    """Compare; raise ``ValueError`` for a topic that is not there, and `TableUnreadable`."""
    began = time.monotonic()
    table, table_format = open_table(spark, question.table, question.format)
    columns = _compared(table)
    rows = of_topic(table, question.topic, question.table_topic)
    bounds = _bounds(question)
    if question.up_to_table:
        bounds = _cut_to_table(bounds, rows)
    theirs = hashed(_topic(spark, question, bounds), columns)
    ours = hashed(rows, columns)
    topic_lines = _lines(theirs, columns, question.range_offsets)
    table_lines = _lines(_within(ours, bounds), columns, question.range_offsets)
    older, unplaced = _left_aside(ours, bounds)
    ranges = tuple(_paired(topic_lines, table_lines, question.range_offsets))
    wrong = [each for each in ranges if not each.is_equal]
    found = Found()
    if wrong:
        topic_again = hashed(_topic(spark, question, _envelope(wrong, bounds)), columns)
        found = differences(
            spark, topic_again, _within(ours, bounds), columns,
            [(each.partition, each.low // question.range_offsets) for each in wrong],
            range_offsets=question.range_offsets, most=question.most_listed,
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


def _bounds(question: Question) -> Bounds:
    """Give, by partition, the offsets that the topic has now: ``[first, next)``."""
    options = {
        "subscribe": question.topic,
        "startingOffsets": "earliest",
        "path": str(question.data),
        **question.options,
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


def _topic(spark: SparkSession, question: Question, bounds: Bounds) -> DataFrame:
    """Give the topic's records with offsets in ``bounds``."""
    some = {p: (low, high) for p, (low, high) in bounds.items() if high > low} or dict([*bounds.items()][:1])
    options = {
        "assign": json.dumps({question.topic: list(some)}),
        "startingOffsets": json.dumps({question.topic: {str(p): low for p, (low, _) in some.items()}}),
        "endingOffsets": json.dumps({question.topic: {str(p): high for p, (_, high) in some.items()}}),
        "includeHeaders": "true",
        **question.options,
    }
    return spark.read.format("magnetar").options(**options).load(str(question.data))


def _within(rows: DataFrame, bounds: Bounds) -> DataFrame:
    """Give the rows that can be compared: partitions that the topic does not have are; what it let go of is not."""
    return rows.where(f.col("offset") >= _low(bounds)).where("partition is not null and offset is not null")


def _low(bounds: Bounds) -> Column:
    low = f.lit(0).cast("long")
    for partition, (first, _) in bounds.items():
        if first:
            low = f.when(f.col("partition") == partition, f.lit(first).cast("long")).otherwise(low)
    return low


def _left_aside(rows: DataFrame, bounds: Bounds) -> tuple[dict[int, int], int]:
    """Count, by partition, what is older than the topic, and the rows that have no place at all."""
    nowhere = f.col("partition").isNull() | f.col("offset").isNull() | (f.col("offset") < 0)
    aside = rows.select("partition", "offset", nowhere.alias("nowhere"))
    if any(low for low, _ in bounds.values()):
        aside = aside.where(f.col("nowhere") | (f.col("offset") < _low(bounds)))
    else:
        aside = aside.where("nowhere")
    counted = aside.groupBy("partition", "nowhere").count().collect()
    older = {row.partition: row["count"] for row in counted if not row.nowhere}
    return older, sum(row["count"] for row in counted if row.nowhere)


def _lines(rows: DataFrame, columns: Iterable[str], size: int) -> dict[tuple[int, int], Side]:
    """Give one line per partition and range."""
    made = [digest(name).alias(name) for name in columns]
    counted = rows.groupBy("partition", range_number(size)).agg(
        f.count("*").alias("records"), f.min("offset").alias("first"), f.max("offset").alias("last"), *made
    )
    return {(row.partition, row.range): _side(row, columns) for row in counted.collect()}


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
