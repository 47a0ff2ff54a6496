"""Options and arguments that several commands share, and what a shell may complete them with."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin import credentials
from magnetar.admin.contexts import find_context
from magnetar.admin.errors import AdminError

if TYPE_CHECKING:
    from magnetar.admin.cluster import ClusterAdmin

# What names are completed with is loaded when a shell asks: no command waits for it.

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "MAGNETAR_BOOTSTRAP_SERVER"
_COMPLETION_S = 0.5


def _names(context: typer.Context, begun: str, ask: Callable[[ClusterAdmin], list[str]]) -> list[str]:
    """Return the names that a broker answers with quickly; none at all is better than a shell that hangs."""
    from magnetar.admin.cluster import ClusterAdmin

    try:
        found = find_context(context.params.get("context_name"))
        given = context.params.get("bootstrap_server") or os.environ.get(BOOTSTRAP_VARIABLE)
        if found is not None:
            credentials.use(context=found.settings)
            given = given or found.bootstrap_servers
        given = given or DEFAULT_BOOTSTRAP
        with ClusterAdmin(given, timeout_s=_COMPLETION_S) as cluster:
            return [name for name in ask(cluster) if name.startswith(begun)]
    except AdminError:
        return []


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a topic's name."""
    from magnetar.admin.topics import list_topics

    return _names(context, incomplete, lambda cluster: [topic.name for topic in list_topics(cluster)])


def partition_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete ``TOPIC-PARTITION``."""
    from magnetar.admin.topics import list_topics

    return _names(
        context,
        incomplete,
        lambda cluster: [
            f"{topic.name}-{index}" for topic in list_topics(cluster) for index in range(topic.partitions)
        ],
    )


def group_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a group's name."""
    from magnetar.admin.groups import list_groups

    return _names(context, incomplete, lambda cluster: [group.group for group in list_groups(cluster)])


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "--bootstrap-servers",
        "-b",
        envvar=BOOTSTRAP_VARIABLE,
        metavar="HOST:PORT",
        help="Broker to ask.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Give JSON instead of tables.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="The broker's data directory; without it the bootstrap server is asked."),
]
Admin = Annotated[
    str | None,
    typer.Option(
        "--admin",
        "--http-url",
        envvar="MAGNETAR_ADMIN",
        metavar="URL",
        help="The broker's admin REST, for asking from another machine; without it the bootstrap server is asked.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check and show, but change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before something is lost.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=topic_names)]
TopicNames = Annotated[list[str], typer.Argument(metavar="TOPIC...", autocompletion=topic_names)]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=group_names)]
GroupNames = Annotated[list[str], typer.Argument(metavar="GROUP...", autocompletion=group_names)]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, help="Only this partition; repeatable."),
]
Master = Annotated[
    str | None, typer.Option(metavar="URL", help="Spark's master. Default local[*], or SPARK_REMOTE.")
]
AnyTable = Annotated[
    str, typer.Argument(metavar="TABLE", help="A path, a URL, or a name in Spark's catalog.")
]
AnyFormat = Annotated[
    str, typer.Option("--format", metavar="auto|parquet|delta|iceberg", help="What the table is.")
]
TableTopic = Annotated[
    str | None,
    typer.Option("--table-topic", metavar="NAME", help="What the table calls the topic, if it has several."),
]
Pairs = Annotated[list[str] | None, typer.Option("--config", "-c", metavar="NAME=VALUE", help="Repeatable.")]


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is lost, unless told not to or nobody is there to answer."""
    if not yes and os.isatty(0):
        typer.confirm(question, abort=True)
