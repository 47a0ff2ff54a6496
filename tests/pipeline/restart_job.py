"""The jobs that the restart tests kill: a streaming query, or the direct writer, following a topic until told to end.

    python -m tests.pipeline.restart_job spark|direct DATA TOPIC TABLE STOP

Says ``following`` on standard output once it works, and ends when the file STOP is there and all was written.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from magnetar.pipeline.checkpoints import clear_unbegun

OFFSETS_AT_ONCE = 5000


def main() -> None:
    kind, data, topic, table, stop = sys.argv[1:]
    {"spark": follow_with_spark, "direct": follow_directly}[kind](data, topic, Path(table), Path(stop))


def follow_with_spark(data: str, topic: str, table: Path, stop: Path) -> None:
    """Spark's own Parquet sink, which is exactly once by its log of files."""
    from pyspark.sql import SparkSession

    clear_unbegun(Path(f"{table}.checkpoint"))  # where a kill left what Spark refuses: docs/spark-source.md
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    source = (
        spark.readStream.format("magnetar").option("subscribe", topic).option("startingOffsets", "earliest")
    )
    source = source.option("includeHeaders", "true").option("maxOffsetsPerTrigger", OFFSETS_AT_ONCE)
    sink = source.load(data).writeStream.format("parquet")
    sink = sink.option("checkpointLocation", str(table) + ".checkpoint")
    query = sink.start(str(table))
    print("following", flush=True)
    while query.isActive and not stop.exists():
        time.sleep(0.05)
    query.processAllAvailable()
    query.stop()


def follow_directly(data: str, topic: str, table: Path, stop: Path) -> None:
    """The table writer without Spark, commit after commit."""
    from magnetar.pipeline import tables

    table.parent.mkdir(parents=True, exist_ok=True)
    opened = tables.open(table, "parquet")
    print("following", flush=True)
    last = False
    while not last:
        last = stop.exists()
        tables.sync(topic, opened, options={"path": data}, max_offsets_per_commit=OFFSETS_AT_ONCE)


if __name__ == "__main__":
    main()
