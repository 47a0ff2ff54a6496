"""The Python file of a new project's topic: which table comes of which. It is its owner's, once it is written."""

from __future__ import annotations

from string import Template

from magnetar.pipeline.jobs.spec import ProjectSpec, TopicSpec

_HEAD = Template('''\
"""$topic: topic -> bronze -> decoded -> current state. This file is yours."""

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

from magnetar.pipeline.jobs import load_topic

spark: SparkSession  # set by whoever runs the pipeline
topic = load_topic("$topic")
''')

_TABLE = Template("""

@dp.table(name="$name", format=topic.format, comment="$comment")
def $function():
    return $query
""")

_VIEW = Template("""

@dp.materialized_view(name="$name", format=topic.format, comment="$comment")
def $function():
    return $query
""")

_SINK = Template("""

# $comment. Magnetar writes this table itself, and its offsets in the same commit.
dp.create_sink("$name", **topic.sink("$function"))


@dp.append_flow(name="$name", target="$name")
def $function():
    return $query
""")


def code_of(project: ProjectSpec, topic: TopicSpec) -> str:
    """Return the file's text."""
    direct_bronze, decoded_by_spark = project.is_direct(topic.bronze), not project.is_direct(topic.decoded)
    bronze = "topic.bronze(spark)" if direct_bronze else f'spark.readStream.table("{topic.bronze}")'
    decoded = f'spark.readStream.table("{topic.decoded}")' if decoded_by_spark else f"topic.decode({bronze})"
    tables = [
        ("bronze", topic.bronze, "Every record as it is, and where it lies",
         "topic.written(spark)" if direct_bronze else "topic.records(spark)"),
        ("decoded", topic.decoded, "Values taken apart", f"topic.decode({bronze})"),
        ("dead_letters", topic.dead_letters, "What could not be decoded, and why", f"topic.dead_letters({decoded})"),
    ]  # fmt: skip
    if topic.current == "upsert":
        query = f"topic.changes(topic.decode({bronze}))"
        tables.append(("current", topic.current_table, "The newest row of each key", query))
    text = _HEAD.substitute(topic=topic.topic)
    for function, name, comment, query in tables:
        form = _SINK if project.is_direct(name) else _TABLE
        text += form.substitute(function=function, name=name, comment=comment, query=query)
    if topic.current == "rebuild":
        text += _VIEW.substitute(
            function="current", name=topic.current_table, comment="The newest row of each key",
            query=f'topic.current(spark.read.table("{topic.decoded}"))',
        )  # fmt: skip
    return text
