"""Rows of a Delta table as Spark finds them; a process of its own, for the sake of Delta's jars.

    python -m tests.pipeline.delta_rows_job TABLE

Runs each line of its input as SQL, in which ``TABLE`` stands for the table, then prints a line of JSON: all rows.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from tests.pipeline.delta_job import PACKAGE


def main(table: str) -> None:
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
    for line in sys.stdin:
        if line.strip():
            spark.sql(line.replace("TABLE", f"delta.`{table}`"))
        rows = spark.read.format("delta").load(table).select("id", "name", "offset").collect()
        found = sorted((bytes(row["id"]).decode(), row["name"], row["offset"]) for row in rows)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
