"""The PySpark job: from the topic's ledgers to a table. ``read``, ``transform``, ``write``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from magnetar.pipeline import tables
from magnetar.pipeline.stderr import stderr_to

FLIGHT = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int,
    arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int,
    distance int, hour int, minute int, time_hour timestamp
"""


def session(log: Path) -> SparkSession:
    """Start Spark on two cores of this machine; what it says besides results goes to ``log``."""
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.driver.memory": "2g",
    }
    builder = SparkSession.builder.master("local[2]").appName("flights")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with stderr_to(log):  # where the JVM, once started, goes on writing
        return builder.getOrCreate()


def read(
    spark: SparkSession,
    place: Mapping[str, str],
    topic: str,
    ranges: Sequence[tables.OffsetRange] | None = None,
) -> DataFrame:
    """Read the topic, or these offsets of it; the columns are those of Spark's Kafka source.

    ``place`` says where it is: a ``path`` to read past the broker, ``kafka.bootstrap.servers`` to fetch.
    """
    source = spark.read.format("magnetar").options(**place).option("includeHeaders", "true")
    if ranges is None:
        return source.option("subscribe", topic).load()
    source = source.option("assign", json.dumps({topic: [each.partition for each in ranges]}))
    for name, ends in (
        ("startingOffsets", {each.partition: each.low for each in ranges}),
        ("endingOffsets", {each.partition: each.high for each in ranges}),
    ):
        source = source.option(name, json.dumps({topic: ends}))
    return source.load()


def transform(records: DataFrame) -> DataFrame:
    """Take the JSON apart, and keep each record as it was beside it."""
    flight = f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight")
    return records.select(
        "topic", "partition", "offset", "timestamp", "key", "value", "headers", flight
    ).select("topic", "partition", "offset", "timestamp", "key", "value", "headers", "flight.*")


def write(spark: SparkSession, place: Mapping[str, str], topic: str, path: Path) -> tables.Table:
    """Add what the table lacks of the topic, offsets and rows in one commit: to run it again changes nothing."""
    table = tables.open(path, "parquet", schema=tables.schema_of(transform(read(spark, place, topic))))
    with table.writing():
        ranges, topics = tables.missing(topic, table, options=place)
        if ranges:
            tables.append(table, transform(read(spark, place, topic, ranges)), ranges, topics)
    return table


def worst_routes(table: DataFrame) -> DataFrame:
    """Rank routes with a flight a week or more by how late their flights arrive."""
    flown = table.where("arr_delay is not null").groupBy("origin", "dest")
    return (
        flown.agg(
            f.count("*").alias("flights"),
            f.avg("arr_delay").alias("minutes_late"),
            f.avg((f.col("arr_delay") > 30).cast("int")).alias("share_very_late"),
        )
        .where("flights >= 52")
        .orderBy(f.desc("minutes_late"))
    )


def worst_hours(table: DataFrame) -> DataFrame:
    """Rank the hours of departure by how late flights leave; half a dozen night flights do not count."""
    flown = table.where("dep_delay is not null").groupBy("hour")
    return (
        flown.agg(f.count("*").alias("flights"), f.avg("dep_delay").alias("minutes_late"))
        .where("flights >= 52")
        .orderBy(f.desc("minutes_late"))
    )


def by_hour_and_month(table: DataFrame) -> DataFrame:
    """Return the mean delay at departure per airport, month and hour, for the picture."""
    flown = table.where("dep_delay is not null").groupBy("origin", "month", "hour")
    return flown.agg(f.avg("dep_delay").alias("minutes_late"))
