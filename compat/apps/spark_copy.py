"""Copies one topic into another by Spark's own Kafka source and sink: BOOTSTRAP FROM TO CHECKPOINT JARS."""

import sys

from pyspark.sql import SparkSession

address, source, target, checkpoint, jars = sys.argv[1:]
builder = (
    SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
)
spark = builder.getOrCreate()
there = {"kafka.bootstrap.servers": address}
read = spark.readStream.format("kafka").options(**there, subscribe=source, startingOffsets="earliest").load()
written = read.select("key", "value").writeStream.format("kafka").options(**there, topic=target)
written.option("checkpointLocation", checkpoint).start().awaitTermination()
