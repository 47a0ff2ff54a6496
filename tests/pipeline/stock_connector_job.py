"""What Spark's own Kafka connector does with our broker; run in a process of its own, for the sake of its jars.

    python -m tests.pipeline.stock_connector_job JARS ADDRESS DIRECTORY

Prints one JSON object with what it found.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

COUNT = 1000


def main(jars: str, address: str, directory: Path) -> dict[str, Any]:
    builder = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.jars", jars)
    )
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    servers = ("kafka.bootstrap.servers", address)
    rows = spark.range(COUNT).selectExpr(
        "CAST(id AS STRING) AS key",
        "CONCAT('v', id) AS value",
        "ARRAY(NAMED_STRUCT('key', 'h', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
        "CAST(id % 2 AS INT) AS partition",
    )
    rows.write.format("kafka").option(*servers).option("topic", "stock").option(
        "includeHeaders", "true"
    ).save()

    def columns(frame: DataFrame) -> list[Any]:
        chosen = frame.selectExpr(
            "partition",
            "offset",
            "CAST(key AS STRING)",
            "CAST(value AS STRING)",
            "headers[0].key",
            "timestampType",
        )
        return sorted(tuple(row) for row in chosen.collect())

    read = (
        spark.read.format("kafka")
        .option(*servers)
        .option("subscribe", "stock")
        .option("includeHeaders", "true")
    )
    stream = (
        spark.readStream.format("kafka").option(*servers).option("subscribe", "stock")
        .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "300").load()
        .writeStream.format("kafka").option(*servers).option("topic", "copy")
        .option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    stream.awaitTermination(120)
    ours = (
        spark.read.format("magnetar")
        .option(*servers)
        .option("subscribe", "stock")
        .option("includeHeaders", "true")
    )
    copied = spark.read.format("kafka").option(*servers).option("subscribe", "copy").load()
    found = {
        "rows": columns(read.load()),
        "through magnetar": columns(ours.load()),
        "batches": len([each for each in stream.recentProgress if each.numInputRows]),
        "copied": sorted(row[0] for row in copied.selectExpr("CAST(value AS STRING)").collect()),
    }
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
