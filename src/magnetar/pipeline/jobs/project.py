"""The files of a project: made once by `create`, then its owner's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from string import Template

from magnetar.pipeline.jobs.spec import (
    SPARK_SPEC_FILE,
    SPEC_FILE,
    ProjectSpec,
    SpecError,
    TopicSpec,
    parse_spec,
)

STORAGE = "storage"
WAREHOUSE = "tables"
CONF = "conf"

_SPEC = Template("""\
# Which topics become which tables. The fields and their words: docs/pipeline.md of Magnetar.
${data}\
${bootstrap}\
table_format: $table_format   # parquet or delta
${registry}\
topics:
  $topic:
    format: $format   # json, avro, protobuf or bytes
${schema}\
    envelope: $envelope   # none or debezium
    current: $current   # rebuild or none
""")

_SPARK_SPEC = Template("""\
# Spark's own file; `spark-pipelines run --spec spark-pipeline.yaml` needs nothing else (and SPARK_CONF_DIR=conf).
name: $name
storage: file://$directory/storage
catalog: spark_catalog
database: default
configuration:
  spark.sql.session.timeZone: UTC
  spark.sql.python.filterPushdown.enabled: "true"
libraries:
  - glob:
      include: transformations/**
""")

_DEFAULTS = Template("""\
# Spark reads this file when SPARK_CONF_DIR names its directory. Where Spark runs (master, remote) does not belong here.
spark.sql.warehouse.dir                         $directory/tables
spark.sql.catalogImplementation                 hive
spark.hadoop.javax.jdo.option.ConnectionURL     jdbc:derby:;databaseName=$directory/metastore;create=true
spark.driver.extraJavaOptions                   -Dderby.stream.error.file=$directory/metastore.log
spark.sql.shuffle.partitions                    16
spark.ui.enabled                                false
spark.ui.showConsoleProgress                    false
$more""")

_DELTA = """\
spark.jars.packages                             io.delta:delta-spark_4.2_2.13:4.4.0
spark.sql.extensions                            io.delta.sql.DeltaSparkSessionExtension
spark.sql.catalog.spark_catalog                 org.apache.spark.sql.delta.catalog.DeltaCatalog
"""

_LOG = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""

_CODE = Template('''\
"""$topic: topic -> bronze -> decoded -> current state. This file is yours."""

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

from magnetar.pipeline.jobs import load_topic

spark: SparkSession  # set by whoever runs the pipeline
topic = load_topic("$topic")


@dp.table(name="${table}_bronze", format=topic.format, comment="Every record of $topic: raw bytes, headers, positions")
def bronze():
    return topic.records(spark)


@dp.table(name="${table}_decoded", format=topic.format, comment="Values taken apart")
def decoded():
    return topic.decode(spark.readStream.table("${table}_bronze"))


@dp.table(name="${table}_dead_letters", format=topic.format, comment="What could not be decoded, and why")
def dead_letters():
    return topic.dead_letters(spark.readStream.table("${table}_decoded"))
''')

_REBUILD = Template("""

@dp.materialized_view(name="${table}_current", format=topic.format, comment="The newest row of each key")
def current():
    return topic.current(spark.read.table("${table}_decoded"))
""")


@dataclass(frozen=True, slots=True)
class Created:
    """The files that were made."""

    directory: str
    files: tuple[str, ...]


def create(
    directory: Path, topic: str, data: Path | None, *, format: str = "json", schema: str = "",
    schema_file: Path | None = None,
    registry: str = "", envelope: str = "none", current: str = "rebuild", table_format: str = "parquet",
    bootstrap: str = "",
) -> Created:  # fmt: skip
    """Make a project for one topic; raise `SpecError` if something is there already or is not allowed."""
    directory = directory.absolute()
    if (directory / SPEC_FILE).exists() or (directory / SPARK_SPEC_FILE).exists():
        raise SpecError(f"{directory} is a pipeline project already; to start over, choose another directory")
    told = _schema_lines(schema, _copied(schema_file, directory))
    values = {
        "data": f"data: {_quoted(str(data.absolute()))}\n" if data else "",
        "topic": _quoted(topic), "format": format, "envelope": envelope,
        "current": current, "table_format": table_format, "schema": told,
        "bootstrap": f"bootstrap_servers: {_quoted(bootstrap)}\n" if bootstrap else "",
        "registry": f"registry: {{url: {_quoted(registry)}}}\n" if registry else "",
    }  # fmt: skip
    content = _SPEC.substitute(values)
    made = _parsed(content, directory).topics[topic]
    names = {"topic": topic, "table": made.table, "directory": directory, "name": directory.name}
    code = _CODE.substitute(names) + _current_code(made).substitute(names)
    files = {
        SPEC_FILE: content,
        SPARK_SPEC_FILE: _SPARK_SPEC.substitute(names),
        f"{CONF}/spark-defaults.conf": _DEFAULTS.substitute(
            names, more=_DELTA if table_format == "delta" else ""
        ),
        f"{CONF}/log4j2.properties": _LOG,
        f"transformations/{made.table}.py": code,
        ".gitignore": f"{STORAGE}/\n{WAREHOUSE}/\nmetastore/\nmetastore.log\nruns/\n__pycache__/\n",
    }
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Created(str(directory), tuple(files))


def _parsed(content: str, directory: Path) -> ProjectSpec:
    import yaml

    return parse_spec(yaml.safe_load(content), directory)


def _copied(file: Path | None, directory: Path) -> str:
    """Put a schema's file into the project; give its name there."""
    if file is None:
        return ""
    if not file.is_file():
        raise SpecError(f"--schema-file: there is no file {file}")
    name = f"schemas/{file.name}"
    (directory / "schemas").mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(file.read_bytes())
    return name


def _schema_lines(schema: str, schema_file: str) -> str:
    if schema:
        return f"    schema: {_quoted(schema)}\n"
    return f"    schema_file: {_quoted(schema_file)}\n" if schema_file else ""


def _current_code(topic: TopicSpec) -> Template:
    return {"rebuild": _REBUILD, "none": Template("")}[topic.current]


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)  # a JSON text is YAML too
