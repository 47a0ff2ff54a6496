"""What the next run would do: the records it would read, and the tables it would write. Spark is not started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from magnetar.pipeline.jobs.decode.reserved import RESERVED
from magnetar.pipeline.jobs.progress import TopicProgress, progress
from magnetar.pipeline.jobs.spec import ProjectSpec, TopicSpec

_BRONZE = (
    "key, value, topic, partition, offset, timestamp, timestampType, headers, ledger_id, entry_id, batch_index, "
    "publish_time"
)
_META = ", ".join(RESERVED)
_DEAD = "topic, partition, offset, timestamp, key, value, headers, error, schema_id"


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """One table, where its rows come from, and its columns."""

    table: str
    source: str
    columns: str


@dataclass(frozen=True, slots=True)
class Planned:
    """The next run: each partition's ``next_offset`` is where it begins, ``end`` where it would end now."""

    records: int
    topics: tuple[TopicProgress, ...]
    tables: tuple[PlannedTable, ...]


def plan(project: ProjectSpec) -> Planned:
    """Return the next run; raise `SpecError`, or ``RegistryError`` where the registry is silent."""
    topics = tuple(progress(project, topic) for topic in project.topics.values())
    tables = tuple(table for topic in project.topics.values() for table in _tables(project, topic))
    return Planned(sum(each.lag for each in topics), topics, tables)


def _tables(project: ProjectSpec, topic: TopicSpec) -> list[PlannedTable]:
    fields = columns_of(project, topic)
    found = [
        PlannedTable(topic.bronze, f"topic {topic.topic}", _BRONZE),
        PlannedTable(topic.decoded, topic.bronze, f"{fields}, {_META}"),
        PlannedTable(topic.dead_letters, topic.decoded, _DEAD),
    ]
    if topic.current != "none":
        found.append(PlannedTable(topic.current_table, topic.decoded, fields))
    return found


def columns_of(project: ProjectSpec, topic: TopicSpec) -> str:
    """Return the columns that a record's fields become, as DDL."""
    if topic.format == "bytes":
        return "value binary"
    if topic.format == "json":
        from magnetar.pipeline.jobs.decode.json import columns_of as json_columns

        return json_columns(topic, project)
    from pyspark.sql.pandas.types import from_arrow_type

    from magnetar.pipeline.jobs.decode.decoder import plan as plan_decoder

    found: Any = plan_decoder(topic, project).fields
    names = {field.name: from_arrow_type(field.type).simpleString() for field in found}
    return ", ".join(f"{name} {kind}" for name, kind in names.items())
