"""What a project's tables are as sinks of a declarative pipeline: ``format("magnetar_table")`` and its options."""

from __future__ import annotations

from typing import TypedDict

from magnetar.pipeline.jobs.spec import ProjectSpec, TopicSpec

SINK = "magnetar_table"
_DECODED = "_topic,_partition,_offset"
_CHANGES = "_topic,_at_partition,_at_offset"


class TableSink(TypedDict):
    """The arguments of ``dp.create_sink``, but for its name."""

    format: str
    options: dict[str, str]


def sink_of(project: ProjectSpec, topic: TopicSpec, table: str) -> TableSink:
    """Return the sink of one of a topic's tables; raise ``ValueError`` for a table that there is not."""
    from magnetar.pipeline.jobs.tables import place_of

    names = {
        "bronze": topic.bronze, "decoded": topic.decoded, "dead_letters": topic.dead_letters,
        "current": topic.current_table,
    }  # fmt: skip
    if table not in names:
        raise ValueError(f"there is no table {table!r} of a topic; there are: {', '.join(names)}")
    options = {"table": place_of(project, names[table]), "tableFormat": project.table_format}
    if table == "bronze":
        return {"format": SINK, "options": options}
    options |= {"bronze": place_of(project, topic.bronze)}
    if table == "decoded":
        options |= {"place": _DECODED}
    if table == "current":
        options |= {
            "mode": "upsert", "place": _CHANGES, "deadLetters": place_of(project, topic.dead_letters)
        }  # fmt: skip
    return {"format": SINK, "options": options}
