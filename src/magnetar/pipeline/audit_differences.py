"""Which records differ, where the digests of a range do: named one by one, listed as runs of offsets.

Kinds: ``missing`` (the topic has it, the table not), ``extra`` (the table has it, the topic not), ``doubled`` (more
than once in the table), ``changed`` (in some columns). A run goes over what both sides do not have: gaps stay gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from magnetar.pipeline.digests import content, hash_name, range_number

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

KINDS = ("missing", "extra", "doubled", "changed")


@dataclass(frozen=True, slots=True)
class Difference:
    """``records`` of one kind between two offsets, inclusive; ``columns`` are those that differ in some of them."""

    kind: str
    partition: int
    first: int
    last: int
    records: int
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """A record of the topic that the table has elsewhere, unchanged otherwise."""

    partition: int
    offset: int
    to_partition: int
    to_offset: int


@dataclass(frozen=True, slots=True)
class Differences:
    """All that was found; ``counts`` has the records of each kind, listed or not."""

    counts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    differences: tuple[Difference, ...] = ()
    moved: tuple[Move, ...] = ()
    is_complete: bool = True


def differences(
    spark: SparkSession, topic: DataFrame, table: DataFrame, columns: Sequence[str],
    ranges: Iterable[tuple[int, int]], *, range_offsets: int, most: int,
) -> Differences:  # fmt: skip
    """Compare ``(partition, number of the range)`` record by record; both sides as `hashed` gives them."""
    wanted = f.broadcast(spark.createDataFrame(list(ranges), "partition int, range long"))
    number = range_number(range_offsets)
    here = topic.select("*", number).join(wanted, ["partition", "range"], "left_semi")
    there = table.select("*", number).join(wanted, ["partition", "range"], "left_semi")
    both = _both(here, there, columns).persist()
    try:
        counted = both.groupBy("kind").agg(f.count("*").alias("records")).collect()
        counts = dict.fromkeys(KINDS, 0) | {row.kind: row.records for row in counted if row.kind}
        runs = _runs(both).orderBy("partition", "first").limit(most + 1).collect()
        listed = _merged(runs, columns)
        moved = _moved(both, most)
    finally:
        both.unpersist()
    return Differences(counts, tuple(listed[:most]), moved, len(runs) <= most)


def _both(topic: DataFrame, table: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return one row per offset that either side has: its kind (null: equal), and which columns differ, as bits."""
    key = ["partition", "range", "offset"]
    hashes = [hash_name(name) for name in columns]
    mine = topic.select(*key, *hashes, content(columns).alias("content"))
    ends = [
        fold(name).alias(f"{end}_{name}") for name in hashes for end, fold in (("min", f.min), ("max", f.max))
    ]
    theirs = table.groupBy(*key).agg(
        f.count("*").alias("copies"), f.collect_set(content(columns)).alias("table_contents"), *ends
    )
    joined = mine.join(theirs, key, "full_outer")
    bits = f.lit(0)
    for place, name in enumerate(hashes):
        differs = (f.col(name) != f.col(f"min_{name}")) | (f.col(name) != f.col(f"max_{name}"))
        bits = bits + f.when(differs, f.lit(1 << place)).otherwise(f.lit(0))
    return joined.select(*key, bits.alias("bits"), "copies", "content", "table_contents").select(
        "*", _kind().alias("kind")
    )


def _kind() -> Column:
    return (
        f.when(f.col("copies").isNull(), "missing")
        .when(f.col("content").isNull(), "extra")
        .when(f.col("copies") > 1, "doubled")
        .when(f.col("bits") > 0, "changed")
    )


def _runs(both: DataFrame) -> DataFrame:
    """Return runs of one kind within each range, and whether they reach the range's first or last offset."""
    order = Window.partitionBy("partition", "range").orderBy("offset")
    whole = Window.partitionBy("partition", "range")
    kind = f.coalesce(f.col("kind"), f.lit(""))
    marked = both.select(
        "partition", "range", "offset", "kind", "bits",
        (kind != f.coalesce(f.lag(kind).over(order), f.lit("-"))).cast("int").alias("begins"),
        f.row_number().over(order).alias("place"),
        f.count("*").over(whole).alias("places"),
    )  # fmt: skip
    numbered = marked.withColumn("run", f.sum("begins").over(order)).where("kind is not null")
    return numbered.groupBy("partition", "range", "run", "kind").agg(
        f.min("offset").alias("first"),
        f.max("offset").alias("last"),
        f.count("*").alias("records"),
        f.bit_or("bits").alias("bits"),
        (f.min("place") == 1).alias("opens"),
        (f.max("place") == f.max("places")).alias("closes"),
    )


def _merged(runs: Sequence[Row], columns: Sequence[str]) -> list[Difference]:
    """Put together what a border between two ranges took apart."""
    found: list[Difference] = []
    before: Row | None = None
    for row in runs:
        differ = tuple(name for place, name in enumerate(columns) if row.bits >> place & 1)
        goes_on = (
            before is not None
            and (before.partition, before.kind, before.range + 1) == (row.partition, row.kind, row.range)
            and before.closes
            and row.opens
        )
        if goes_on:
            last = found[-1]
            both = tuple(name for name in columns if name in last.columns or name in differ)
            found[-1] = replace(last, last=row.last, records=last.records + row.records, columns=both)
        else:
            found.append(Difference(row.kind, row.partition, row.first, row.last, row.records, differ))
        before = row
    return found


def _moved(both: DataFrame, most: int) -> tuple[Move, ...]:
    """Return records that are not where they belong, and are found, as they were, where they do not belong."""
    lost = both.where("kind in ('missing', 'changed')").select("content", "partition", "offset")
    # Where it was put on top of another record, both are in the table at one offset.
    stray = both.where("kind in ('extra', 'changed', 'doubled')").select(
        f.explode(f.array_except("table_contents", f.array("content"))).alias("content"),
        f.col("partition").alias("to_partition"),
        f.col("offset").alias("to_offset"),
    )
    pairs = lost.join(stray, "content").where("partition != to_partition or offset != to_offset")
    rows = pairs.orderBy("partition", "offset", "to_partition", "to_offset").limit(most).collect()
    return tuple(Move(r.partition, r.offset, r.to_partition, r.to_offset) for r in rows)
