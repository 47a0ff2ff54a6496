"""A topic of changes into Delta tables by Spark's own writer; a process of its own, for the sake of Delta's jars.

    python -m tests.pipeline.delta_job DATA DIRECTORY

Appends what came to one table, and merges it into another, as a user would; does as much as there is, and can be run
again. Prints one JSON object with both tables.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"


def main(data: str, directory: Path) -> dict[str, Any]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.jars.packages": PACKAGE,
        "spark.jars.excludes": "org.slf4j:slf4j-api",  # Spark has its own
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    every, state = str(directory / "every"), str(directory / "state")
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS delta.`{state}` (id STRING, value STRING, offset BIGINT) USING delta"
    )

    def merge(batch: DataFrame, number: int) -> None:
        del number
        batch.createOrReplaceTempView("changes")
        batch.sparkSession.sql(
            f"""
            MERGE INTO delta.`{state}` AS kept
            USING (
                SELECT CAST(key AS STRING) AS id, max(offset) AS offset,
                       max_by(struct(CAST(value AS STRING) AS value), offset).value AS value
                FROM changes GROUP BY key
            ) AS change
            ON kept.id = change.id
            WHEN MATCHED AND change.value IS NULL THEN DELETE
            WHEN MATCHED THEN UPDATE SET *
            WHEN NOT MATCHED AND change.value IS NOT NULL THEN INSERT *
            """
        )

    changes = (
        spark.readStream.format("magnetar").option("path", data).option("subscribe", "changes")
        .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "250").load()
    )  # fmt: skip
    appended = changes.writeStream.format("delta").option("checkpointLocation", str(directory / "c1"))
    appended.trigger(availableNow=True).start(every).awaitTermination()
    merged = changes.writeStream.foreachBatch(merge).option("checkpointLocation", str(directory / "c2"))
    query = merged.trigger(availableNow=True).start()
    query.awaitTermination()
    found = {
        "offsets": sorted(
            row.offset for row in spark.read.format("delta").load(every).select("offset").collect()
        ),
        "state": {row.id: row.value for row in spark.read.format("delta").load(state).collect()},
        "batches": len([each for each in query.recentProgress if each.numInputRows]),
    }
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
