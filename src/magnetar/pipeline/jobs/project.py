"""The files of a project: made once by `create`, then its owner's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from string import Template

from magnetar.pipeline.jobs.code import code_of
from magnetar.pipeline.jobs.spec import (
    SPARK_SPEC_FILE,
    SPEC_FILE,
    ProjectSpec,
    SpecError,
    parse_spec,
)

STORAGE = "storage"
WAREHOUSE = "tables"
CONF = "conf"

_SPEC = Template("""\
# Which topics become which tables. The fields and their words: docs/pipeline.md of Magnetar.
${data}\
${bootstrap}\
table_format: $table_format   # parquet, delta or iceberg
writer: $writer   # direct: Magnetar writes bronze, and all that is not parquet; spark: Spark writes all
${registry}\
topics:
  $topic:
    format: $format   # json, avro, protobuf or bytes
${schema}\
    envelope: $envelope   # none or debezium
    current: $current   # rebuild, upsert or none
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
  # Spark's own default, INT96, is read as nanoseconds: the year 9999 becomes 1816 in PyArrow and 2262 in Polars.
  spark.sql.parquet.outputTimestampType: TIMESTAMP_MICROS
libraries:
  - glob:
      include: transformations/**
""")

_DEFAULTS = Template("""\
# Spark reads this file when SPARK_CONF_DIR names its directory. Where Spark runs (master, remote) does not belong here.
spark.sql.warehouse.dir                         $directory/tables
spark.sql.catalogImplementation                 hive
spark.hadoop.javax.jdo.option.ConnectionURL     jdbc:derby:;databaseName=$directory/metastore;create=true
# To Hive a record with a field more is another type, and one at another place another column. Spark does not go by it.
spark.hadoop.hive.metastore.disallow.incompatible.col.type.changes false
spark.driver.extraJavaOptions                   -Dderby.stream.error.file=$directory/metastore.log
spark.sql.shuffle.partitions                    16
spark.python.unix.domain.socket.enabled         true
spark.python.authenticate.socketTimeout         120s
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


@dataclass(frozen=True, slots=True)
class Created:
    """The files that were made."""

    directory: str
    files: tuple[str, ...]


def create(
    directory: Path, topic: str, data: Path | None, *, format: str = "json", schema: str = "",
    schema_file: Path | None = None,
    registry: str = "", envelope: str = "none", current: str | None = None, table_format: str = "parquet",
    bootstrap: str = "", writer: str = "direct",
) -> Created:  # fmt: skip
    """Make a project for one topic; raise `SpecError` if something is there already or is not allowed."""
    directory = directory.absolute()
    if (directory / SPEC_FILE).exists() or (directory / SPARK_SPEC_FILE).exists():
        raise SpecError(f"{directory} is a pipeline project already; to start over, choose another directory")
    current = current or ("rebuild" if writer == "spark" or table_format == "parquet" else "upsert")
    told = _schema_lines(schema, _copied(schema_file, directory))
    values = {
        "data": f"data: {_quoted(str(data.absolute()))}\n" if data else "",
        "topic": _quoted(topic), "format": format, "envelope": envelope,
        "current": current, "table_format": table_format, "writer": writer, "schema": told,
        "bootstrap": f"bootstrap_servers: {_quoted(bootstrap)}\n" if bootstrap else "",
        "registry": f"registry: {{url: {_quoted(registry)}}}\n" if registry else "",
    }  # fmt: skip
    content = _SPEC.substitute(values)
    project = _parsed(content, directory)
    made = project.topics[topic]
    names = {"topic": topic, "table": made.table, "directory": directory, "name": directory.name}
    files = {
        SPEC_FILE: content,
        SPARK_SPEC_FILE: _SPARK_SPEC.substitute(names),
        f"{CONF}/spark-defaults.conf": _DEFAULTS.substitute(
            names, more=_DELTA if (table_format, writer) == ("delta", "spark") else ""
        ),
        f"{CONF}/log4j2.properties": _LOG,
        f"transformations/{made.table}.py": code_of(project, made),
        ".gitignore": f"{STORAGE}/\n{WAREHOUSE}/\nmetastore/\nmetastore.log\nruns/\n.*.lock\n__pycache__/\n",
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


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)  # a JSON text is YAML too
