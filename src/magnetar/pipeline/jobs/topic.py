"""A topic's tables as frames: what the functions in ``transformations/`` return.

*bronze* is the topic as it is. *decoded* has the record's fields as columns, and beside them::

    _topic, _partition, _offset, _timestamp, _headers    where it lies
    _key           the record's key: raw bytes
    _op            upsert or delete (a tombstone, or Debezium's op d); null where nothing could be decoded
    _schema_id     of the registry, or null
    _error, _bytes    why it could not be decoded, and its value then; null for all others

*dead letters* are the decoded rows that have an error. *current state* has one row per key: the one with the highest
offset, unless that is a deletion. A record that replay has sent again counts at its first place, so it never hides a
newer one.

Query functions of declarative pipelines may not ask Spark anything, so all this only builds expressions.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from magnetar.pipeline.jobs.decode.reserved import RESERVED
from magnetar.pipeline.jobs.sinks import SINK, TableSink, sink_of
from magnetar.pipeline.jobs.spec import SPEC_FILE, NoProject, ProjectSpec, TopicSpec, load_spec
from magnetar.pipeline.replays import REPLAY_HEADER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

META = RESERVED


def load_topic(name: str, directory: str | Path | None = None) -> TopicTables:
    """Return the tables of a topic of the project in ``directory``, or the one around the current directory."""
    spec = load_spec(find_project(directory))
    return TopicTables(spec, spec.topic(name))


def find_project(directory: str | Path | None = None) -> Path:
    """Return the directory of the project; raise `NoProject` if there is none there or above."""
    start = Path(directory or ".").absolute()
    for each in (start, *(start.parents if directory is None else ())):
        if (each / SPEC_FILE).is_file():
            return each
    raise NoProject(start)


class TopicTables:
    """The frames of one topic. Its schema is looked up when this is made, so that is when errors show."""

    def __init__(self, project: ProjectSpec, topic: TopicSpec) -> None:
        self.project = project
        self.spec = topic
        self._values = _values(project, topic)

    @property
    def format(self) -> str:
        """The table format that Spark writes."""
        return self.project.table_format

    def records(self, spark: SparkSession) -> DataFrame:
        """Stream every record of the topic: bronze."""
        from magnetar.pipeline.jobs.progress import source_options

        options = source_options(self.project, self.spec) | {"includePositions": "true"}
        return spark.readStream.format("magnetar").options(**options).load()

    def written(self, spark: SparkSession) -> DataFrame:
        """Stream the files of bronze: the tasks that read the topic write them, and give only their names."""
        from magnetar.pipeline.jobs.progress import source_options

        options = source_options(self.project, self.spec) | dict(self.sink("bronze")["options"])
        return spark.readStream.format(SINK).options(**options).load()

    def bronze(self, spark: SparkSession) -> DataFrame:
        """Stream bronze as Magnetar wrote it, in the order of offsets."""
        options = {name: self.sink("bronze")["options"][name] for name in ("table", "tableFormat")}
        return spark.readStream.format(SINK).options(**options).load()

    def sink(self, table: str) -> TableSink:
        """Return what ``dp.create_sink`` needs for the table ``bronze``, ``decoded``, ``dead_letters`` or
        ``current``.
        """
        return sink_of(self.project, self.spec, table)

    def decode(self, bronze: DataFrame) -> DataFrame:
        """Take values apart: decoded. Rows that cannot be are kept, with their bytes and the reason."""
        from pyspark.sql import functions as f

        frame = self._values(bronze)
        error, op = f.col("_d_error"), f.col("_d_op")
        if self.spec.current != "none":
            no_key = f.col("key").isNull()
            error = f.coalesce(error, f.when(no_key, "it has no key, and current state is kept by key"))
        bad = error.isNotNull()
        meta: dict[str, Column] = {
            "_topic": f.col("topic"), "_partition": f.col("partition"), "_offset": f.col("offset"),
            "_timestamp": f.col("timestamp"), "_key": f.col("key"), "_headers": f.col("headers"),
            "_op": f.when(~bad, f.coalesce(op, f.when(f.col("value").isNull(), "delete").otherwise("upsert"))),
            "_schema_id": f.col("_d_schema_id"), "_error": error, "_bytes": f.when(bad, f.col("value")),
        }  # fmt: skip
        return frame.select("_d_row.*", *(column.alias(name) for name, column in meta.items()))

    def dead_letters(self, decoded: DataFrame) -> DataFrame:
        """Return the rows that could not be decoded."""
        from pyspark.sql import functions as f

        names = {
            "topic": "_topic", "partition": "_partition", "offset": "_offset", "timestamp": "_timestamp",
            "key": "_key", "value": "_bytes", "headers": "_headers", "error": "_error", "schema_id": "_schema_id",
        }  # fmt: skip
        columns = [f.col(old).alias(new) for new, old in names.items()]
        return decoded.where(f.col("_error").isNotNull()).select(*columns)

    def changes(self, decoded: DataFrame) -> DataFrame:
        """Return what current state by upsert is made of (`magnetar.pipeline.tables.current`)."""
        from pyspark.sql import functions as f

        rows = _first_places(decoded.where("_error is null and _key is not null"))
        row = f.col("_c_row").dropFields(
            "_op", "_error", "_bytes", "_partition", "_offset", "_c_replayed", "_c_partition", "_c_offset"
        )
        return rows.withColumn("_c_row", f.struct("*")).select(row.alias("_row"), "_c_row").select(
            "_row.*", f.col("_c_row._c_partition").alias("_partition"), f.col("_c_row._c_offset").alias("_offset"),
            f.col("_c_row._partition").alias("_at_partition"), f.col("_c_row._offset").alias("_at_offset"),
            f.col("_c_row._c_replayed").isNotNull().alias("_replayed"),
            (f.col("_c_row._op") == "delete").alias("_deleted"),
        )  # fmt: skip

    def current(self, decoded: DataFrame) -> DataFrame:
        """Return the row of each key with the highest offset, without the keys whose last record is a deletion."""
        return current_state(decoded)


def current_state(decoded: DataFrame) -> DataFrame:
    """Return current state of decoded rows.

    A key's records are ordered by offset within their partition; where a topic got more partitions, a key may have
    some in two, and then the later timestamp wins.
    """
    from pyspark.sql import functions as f

    rows = _first_places(decoded.where("_error is null and _key is not null"))
    order = f.struct("_c_offset", f.col("_c_replayed").isNotNull(), "_offset")
    last = rows.groupBy("_key", "_c_partition").agg(f.max_by(f.struct("*"), order).alias("_c_row"))
    newest = f.struct("_c_row._timestamp", "_c_partition")
    last = last.groupBy("_key").agg(f.max_by("_c_row", newest).alias("_c_row"))
    # Frames' own drop would have Spark look at the frame at once, which query functions may not.
    row = f.col("_c_row").dropFields("_c_replayed", "_c_partition", "_c_offset", "_op", "_error", "_bytes")
    return last.where("_c_row._op <> 'delete'").select(row.alias("_c_row")).select("_c_row.*")


def _first_places(rows: DataFrame) -> DataFrame:
    """Add where each record counts: its own place, or that of the record that it is sent again for."""
    from pyspark.sql import functions as f

    replayed = f.expr(f"try_element_at(filter(_headers, h -> h.key = '{REPLAY_HEADER}'), 1).value")
    first = f.split(f.col("_c_replayed").cast("string"), ":")
    rows = rows.withColumn("_c_replayed", replayed)
    rows = rows.withColumn(
        "_c_partition", f.coalesce(f.try_element_at(first, f.lit(1)).try_cast("int"), "_partition")
    )
    return rows.withColumn(
        "_c_offset", f.coalesce(f.try_element_at(first, f.lit(2)).try_cast("long"), "_offset")
    )


def _values(project: ProjectSpec, topic: TopicSpec) -> Any:
    """Return the function that adds ``_d_row``, ``_d_schema_id``, ``_d_error`` and ``_d_op`` to bronze."""
    if topic.format == "bytes":
        return _bytes
    if topic.format == "json":
        from magnetar.pipeline.jobs.decode.json import plan_json
        from magnetar.pipeline.jobs.json_values import JsonValues

        debezium = topic.envelope == "debezium"
        return JsonValues(plan_json(topic, project), framed=topic.by_registry, debezium=debezium)
    from magnetar.pipeline.jobs.decode.decoder import plan

    return _ByArrow(plan(topic, project), debezium=topic.envelope == "debezium")


def _bytes(bronze: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        bronze.withColumn("_d_row", f.struct(f.col("value").alias("value")))
        .withColumn("_d_schema_id", f.lit(None).cast("int"))
        .withColumn("_d_error", f.lit(None).cast("string"))
        .withColumn("_d_op", f.lit(None).cast("string"))
    )


class _ByArrow:
    """Avro and Protobuf: one call of Python per Arrow batch."""

    def __init__(self, decoder: Any, *, debezium: bool) -> None:
        from pyspark.sql import functions as f
        from pyspark.sql.pandas.types import from_arrow_type

        self._udf = f.arrow_udf(_decoding(decoder), from_arrow_type(decoder.type))
        self._debezium = debezium

    def __call__(self, bronze: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        frame = bronze.withColumn("_d", self._udf(f.col("value")))
        frame = frame.withColumn("_d_schema_id", f.col("_d.schema_id")).withColumn(
            "_d_error", f.col("_d.error")
        )
        frame = frame.withColumn("_d_row", f.col("_d.row"))
        op = f.col("_d.op") if self._debezium else f.lit(None)
        return frame.withColumn("_d_op", f.when(op == "d", "delete").when(op.isNotNull(), "upsert"))


def _decoding(decoder: Any) -> Any:
    """Return the function that workers call; it pickles with its decoder."""
    import pyarrow as pa

    def decode(values: Any) -> Any:
        return decoder.decode(values)

    decode.__annotations__ = {
        "values": pa.Array,
        "return": pa.Array,
    }  # how Spark tells kinds of functions apart
    return decode
