"""A streaming query with the sink, to be killed: python -m tests.pipeline.sink_job ADDRESS DIRECTORY."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from magnetar.pipeline.checkpoints import clear_unbegun


def main(address: str, directory: Path) -> None:
    clear_unbegun(
        directory / "checkpoint"
    )  # killed while it wrote down its first batch, Spark would refuse it
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    lines = spark.readStream.option("maxFilesPerTrigger", "1").text(str(directory / "in"))
    mixed = lines.repartition(2)  # rows come to tasks in another order each time
    running = (
        mixed.writeStream.format("magnetar")
        .option("kafka.bootstrap.servers", address)
        .option("kafka.batch.size", "3000")
        .option("topic", "killed")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    running.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
