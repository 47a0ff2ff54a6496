"""``magnetar-pipeline.yaml``: which topics become which tables. Everything else is Spark's own configuration.

::

    data: /var/lib/magnetar          the broker's data directory; without it records come through the broker's Fetch
    bootstrap_servers: host:9092     the broker; with data, only replay needs it
    table_format: parquet            parquet, delta or iceberg
    catalog: lakehouse               for iceberg: a catalog of PyIceberg's configuration; else one next to the tables
    namespace: shop                  of that catalog; default if it is not given
    writer: direct                   direct or spark: who writes the tables (see below)
    spark: {master: "local[*]"}      or {remote: "sc://host:15002"}; what spark-pipelines takes from its command line
    registry: {url: "http://host:8081", username: ..., password: ...}
    topics:
      flights:
        format: json                 json, avro, protobuf or bytes
        schema: "id long, name string"     Spark DDL, for json
        schema_file: schemas/flight.avsc   or .proto, .desc (protobuf), .json (JSON Schema), .ddl
        message: shop.Order          which message of a .proto file; otherwise its first one
        subjects: [flights-value]    of the registry, when neither schema nor schema_file is given
        envelope: none               none or debezium
        changed_types: new_columns   new_columns or dead_letters: of fields whose type the table's column cannot take
        current: rebuild             rebuild, upsert or none; upsert where Spark does not write the table
        starting_offsets: earliest   earliest or latest, for the first run

Who writes: with ``direct`` Magnetar writes bronze, in the tasks that read the topic, and all tables of a format other
than parquet; Spark writes the others. With ``spark`` it writes all of them.

Names that are not known are refused, so that a slip of the pen does not pass for a setting.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

SPEC_FILE = "magnetar-pipeline.yaml"
SPARK_SPEC_FILE = "spark-pipeline.yaml"

TABLE_FORMATS = ("parquet", "delta", "iceberg")
WRITERS = ("direct", "spark")
FORMATS = ("json", "avro", "protobuf", "bytes")
ENVELOPES = ("none", "debezium")
CHANGED = ("new_columns", "dead_letters")
CURRENT = ("rebuild", "upsert", "none")
STARTING = ("earliest", "latest")
DEFAULT_MASTER = "local[*]"
_MAX_BYTES = 1 << 20
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 80, 80
SCHEMA_ENDINGS = {"json": (".json", ".ddl"), "avro": (".avsc",), "protobuf": (".proto", ".desc")}


class SpecError(Exception):
    """The project's configuration cannot be meant; the message names the file, the field and what is allowed."""


class NoProject(SpecError):
    """There is no project in the directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"{directory} is no pipeline project: it has no {SPEC_FILE}")


@dataclass(frozen=True, slots=True)
class RegistrySpec:
    """A Confluent-compatible schema registry."""

    url: str
    username: str = ""
    password: str = ""


@dataclass(frozen=True, slots=True)
class SparkSpec:
    """Where Spark runs: one of the two. A ``master`` starts Spark in this process, a ``remote`` is a Connect server."""

    master: str = DEFAULT_MASTER
    remote: str = ""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic, and what is to become of it."""

    topic: str
    format: str = "json"
    schema: str = ""
    schema_file: Path | None = None
    message: str = ""
    subjects: tuple[str, ...] = ()
    envelope: str = "none"
    changed_types: str = "new_columns"
    current: str = "rebuild"
    starting_offsets: str = "earliest"

    @property
    def table(self) -> str:
        """What the names of its tables begin with."""
        return table_name(self.topic)

    @property
    def bronze(self) -> str:
        return f"{self.table}_bronze"

    @property
    def decoded(self) -> str:
        return f"{self.table}_decoded"

    @property
    def dead_letters(self) -> str:
        return f"{self.table}_dead_letters"

    @property
    def current_table(self) -> str:
        return f"{self.table}_current"

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of its tables, upstream first."""
        current = () if self.current == "none" else (self.current_table,)
        return (self.bronze, self.decoded, self.dead_letters, *current)

    @property
    def by_registry(self) -> bool:
        """Whether schemas are looked up by the id that each record carries."""
        return self.format != "bytes" and not self.schema and self.schema_file is None


@dataclass(frozen=True, slots=True)
class ProjectSpec:
    """A whole project; ``directory`` is where its files are."""

    directory: Path
    data: Path | None
    topics: Mapping[str, TopicSpec]
    bootstrap_servers: str = ""
    table_format: str = "parquet"
    writer: str = "direct"
    catalog: str = ""
    namespace: str = ""
    spark: SparkSpec = field(default_factory=SparkSpec)
    registry: RegistrySpec | None = None

    def is_direct(self, table: str) -> bool:
        """Return whether Magnetar writes this table, and not Spark."""
        if self.writer != "direct":
            return False
        upserted = (each.current_table for each in self.topics.values() if each.current == "upsert")
        bronze = (each.bronze for each in self.topics.values())
        return self.table_format != "parquet" or table in (*bronze, *upserted)

    def topic(self, name: str) -> TopicSpec:
        """Return one topic's part; raise `SpecError` naming those that there are."""
        if name not in self.topics:
            raise SpecError(
                f"{self.directory / SPEC_FILE}: topics has no {name!r}; it has {_listed(self.topics)}"
            )
        return self.topics[name]


def table_name(topic: str) -> str:
    """Return a topic's name as a table's: lower case, words joined by underscores."""
    name = re.sub(r"[^0-9a-z]+", "_", topic.lower()).strip("_")
    return name if name and not name[0].isdigit() else f"t_{name}"


def load_spec(directory: Path) -> ProjectSpec:
    """Read a project's file; raise `SpecError`."""
    path = directory / SPEC_FILE
    if not path.exists():
        raise NoProject(directory)
    return parse_spec(read_yaml(path), directory.absolute(), str(path))


def read_yaml(path: Path) -> object:
    """Return what a file of the project holds; raise `SpecError` if it cannot be read."""
    import yaml

    try:
        if path.stat().st_size > _MAX_BYTES:
            raise SpecError(f"{path} has more than {_MAX_BYTES} bytes; what people write by hand has less")
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise SpecError(f"{path} is not YAML: {error}") from None
    except RecursionError:
        raise SpecError(f"{path} is not YAML that anybody would write: it is too deep") from None


def parse_spec(content: object, directory: Path, told: str = SPEC_FILE) -> ProjectSpec:
    """Read what the file holds; ``told`` is how errors name the file."""
    here = _Reader(told, "", content)
    here.only(f.name for f in fields(ProjectSpec) if f.name != "directory")
    topics = here.part("topics")
    if topics is None or not topics.content:
        raise SpecError(
            f"{told}: topics is missing: name at least one, as in 'topics: {{flights: {{format: json}}}}'"
        )
    table_format = here.one_of("table_format", TABLE_FORMATS)
    writer = here.one_of("writer", WRITERS)
    if writer == "spark" and table_format == "iceberg":
        raise here.wrong(
            "writer", "must be direct for table_format iceberg, which has no runtime for Spark 4.2"
        )
    if here.text("catalog") and table_format != "iceberg":
        raise here.wrong("catalog", f"is for table_format iceberg, not {table_format}")
    if here.text("namespace") and not here.text("catalog"):
        raise here.wrong("namespace", "is one of a catalog: give catalog as well")
    kept = CURRENT if writer == "spark" or table_format == "parquet" else ("upsert", "none")
    data = here.text("data")
    if not data and not here.text("bootstrap_servers"):
        raise here.wrong("data", "is missing: give the broker's data directory, or bootstrap_servers")
    registry, spark = here.part("registry"), here.part("spark")
    made = ProjectSpec(
        directory=directory,
        data=(directory / data).absolute() if data else None,
        topics={name: _topic(name, topics.must(name), directory, kept) for name in topics.content},
        bootstrap_servers=here.text("bootstrap_servers"),
        table_format=table_format,
        writer=writer,
        catalog=here.text("catalog"),
        namespace=here.text("namespace"),
        spark=SparkSpec() if spark is None else _spark(spark),
        registry=None if registry is None else _registry(registry),
    )
    _check_together(made, told)
    return made


def _topic(name: str, here: _Reader, directory: Path, kept: tuple[str, ...]) -> TopicSpec:
    here.only(f.name for f in fields(TopicSpec) if f.name != "topic")
    file = here.text("schema_file")
    made = TopicSpec(
        topic=str(name),
        format=here.one_of("format", FORMATS),
        schema=here.text("schema"),
        schema_file=(directory / file).absolute() if file else None,
        message=here.text("message"),
        subjects=here.texts("subjects") or (f"{name}-value",),
        envelope=here.one_of("envelope", ENVELOPES),
        changed_types=here.one_of("changed_types", CHANGED),
        current=here.one_of("current", kept),
        starting_offsets=here.one_of("starting_offsets", STARTING),
    )
    if made.schema and made.schema_file:
        raise here.wrong("schema", "give schema or schema_file, not both")
    if made.schema and made.format != "json":
        raise here.wrong(
            "schema", f"Spark DDL is for format json; {made.format} needs schema_file or a registry"
        )
    if made.envelope == "debezium" and made.format == "bytes":
        raise here.wrong("envelope", "format bytes has no envelope to open")
    if made.schema_file:
        endings = SCHEMA_ENDINGS.get(made.format, ())
        if made.schema_file.suffix not in endings:
            raise here.wrong(
                "schema_file", f"must end with {_listed(endings)} for format {made.format}, not {file!r}"
            )
        if not made.schema_file.is_file():
            raise here.wrong("schema_file", f"there is no file {made.schema_file}")
    return made


def _spark(here: _Reader) -> SparkSpec:
    here.only(f.name for f in fields(SparkSpec))
    if here.text("master") and here.text("remote"):
        raise here.wrong("remote", "give master or remote, not both")
    remote = here.text("remote")
    if remote and not remote.startswith("sc://"):
        raise here.wrong("remote", f"must be like sc://host:15002, not {remote!r}")
    return SparkSpec(here.text("master") or DEFAULT_MASTER, remote)


def _registry(here: _Reader) -> RegistrySpec:
    here.only(f.name for f in fields(RegistrySpec))
    url = here.text("url", required=True)
    if not url.startswith(("http://", "https://")):
        raise here.wrong("url", f"must begin with http:// or https://, not {url!r}")
    return RegistrySpec(url.rstrip("/"), here.text("username"), here.text("password"))


def _check_together(spec: ProjectSpec, told: str) -> None:
    for topic in spec.topics.values():
        if topic.current == "upsert" and spec.writer != "direct":
            raise SpecError(f"{told}: topics.{topic.topic}.current: upsert needs writer: direct")
        if topic.by_registry and spec.registry is None:
            raise SpecError(
                f"{told}: topics.{topic.topic}: format {topic.format} needs schema_file"
                f"{' or schema' if topic.format == 'json' else ''}, or a registry: {{url: ...}} for the whole project"
            )
    names: dict[str, str] = {}
    for topic in spec.topics.values():
        other = names.setdefault(topic.table, topic.topic)
        if other != topic.topic:
            raise SpecError(
                f"{told}: topics {other} and {topic.topic} would both have tables {topic.table}_*"
            )


class _Reader:
    """One mapping of the file, which can say where in the file something is wrong."""

    def __init__(self, told: str, at: str, content: object) -> None:
        self._told, self._at = told, at
        if not isinstance(content, dict):
            raise SpecError(
                f"{told}: {at or 'the file'} must be a mapping of names to values, not {_shown(content)}"
            )
        self.content: dict[Any, Any] = content

    def wrong(self, name: str, what: str) -> SpecError:
        return SpecError(f"{self._told}: {self._path(name)}: {what}")

    def only(self, names: Any) -> None:
        known = sorted(names)
        for name in self.content:
            if name not in known:
                raise self.wrong(str(name), f"there is no such field; there are: {_listed(known)}")

    def text(self, name: str, *, required: bool = False) -> str:
        found = self.content.get(name)
        if found is None:
            if required:
                raise self.wrong(name, "is missing")
            return ""
        if not isinstance(found, str | int | float) or isinstance(found, bool):
            raise self.wrong(name, f"must be a text, not {_shown(found)}")
        return str(found)

    def texts(self, name: str) -> tuple[str, ...]:
        found = self.content.get(name)
        if found is None:
            return ()
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise self.wrong(name, f"must be a list of texts, not {_shown(found)}")
        return tuple(found)

    def one_of(self, name: str, words: tuple[str, ...]) -> str:
        """Return a word; the first is the default."""
        found = self.content.get(name, words[0])
        if found not in words:
            raise self.wrong(name, f"must be one of {_listed(words)}, not {_shown(found)}")
        return str(found)

    def part(self, name: str) -> _Reader | None:
        return None if self.content.get(name) is None else self.must(name)

    def must(self, name: str) -> _Reader:
        found = self.content[name]
        return _Reader(self._told, self._path(name), {} if found is None else found)

    def _path(self, name: str) -> str:
        return f"{self._at}.{name}" if self._at else str(name)


def _shown(value: object) -> str:
    """Return a value for an error, short: YAML's aliases can make a small file's value endless."""
    return _SHORT.repr(value)


def _listed(words: Any) -> str:
    return ", ".join(map(str, words))
