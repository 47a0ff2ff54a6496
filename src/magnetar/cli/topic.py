"""``magnetar topic``: make, show, change, compact and delete topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin import topics
from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.configs import Configs, ResourceKind, alter_configs, parse_configs
from magnetar.admin.errors import Invalid
from magnetar.admin.offsets import parse_spot
from magnetar.admin.topics import TopicDetail, TopicRow, TopicsDeleted, Trimmed
from magnetar.cli.compact import compact
from magnetar.cli.config import config_table
from magnetar.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    DryRun,
    Json,
    Pairs,
    Partitions,
    TopicName,
    TopicNames,
    Yes,
    confirm,
)
from magnetar.cli.output import give, pairs, size, table

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(help="Make, show, change, compact and delete topics.", no_args_is_help=True)
app.command()(compact)


@app.command()
def create(
    name: TopicName,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="How many; the broker's default else.")
    ] = None,
    config: Pairs = None,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Make a topic."""
    with ClusterAdmin(bootstrap_server) as cluster:
        made = topics.create_topic(cluster, name, partitions, parse_configs(config or []), dry_run=dry_run)
    if made is None:
        give({"topic": name, "valid": True}, lambda _: [f"topic {name} could be made"], as_json=json)
    else:
        give(made, _made, as_json=json)


@app.command("list")
def list_(
    internal: Annotated[
        bool, typer.Option("--internal", help="Show the coordinators' own topics too.")
    ] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """List topics."""
    with ClusterAdmin(bootstrap_server) as cluster:
        give(topics.list_topics(cluster, internal=internal), _listed, as_json=json)


@app.command()
def describe(name: TopicName, bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """Show a topic's partitions, offsets, sizes, flush policy and configurations."""
    with ClusterAdmin(bootstrap_server) as cluster:
        give(topics.describe_topic(cluster, name), _described, as_json=json)


@app.command()
def delete(
    names: TopicNames, yes: Yes = False, bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False
) -> None:
    """Delete topics with all they hold."""
    confirm(f"Delete {', '.join(names)} with all records?", yes=yes)
    with ClusterAdmin(bootstrap_server) as cluster:
        give(topics.delete_topics(cluster, names), _deleted, as_json=json)


@app.command()
def alter(
    name: TopicName,
    config: Pairs = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Return to what it follows; repeatable."),
    ] = None,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Change a topic's configurations."""
    changes = parse_configs(config or []) | dict.fromkeys(unset or [])
    if not changes:
        raise Invalid("nothing to change", "Give --config NAME=VALUE or --unset NAME.")
    with ClusterAdmin(bootstrap_server) as cluster:
        altered = alter_configs(cluster, ResourceKind.TOPIC, name, changes, dry_run=dry_run)
    give(altered, lambda value: [config_table(_own(value))], as_json=json)


@app.command("add-partitions")
def add_partitions(
    name: TopicName,
    total: Annotated[int, typer.Argument(min=1, help="How many there shall be in all.")],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Add partitions to a topic. Keys may go to other partitions from then on."""
    with ClusterAdmin(bootstrap_server) as cluster:
        give(topics.add_partitions(cluster, name, total), _made, as_json=json)


@app.command()
def trim(
    name: TopicName,
    before: Annotated[str, typer.Option("--before", help="end, an offset, -N (keep N) or s@TIME.")],
    partition: Partitions = None,
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Delete the records before a place."""
    spot = parse_spot(before)
    confirm(f"Delete the records of {name} before {before}?", yes=yes)
    with ClusterAdmin(bootstrap_server) as cluster:
        give(topics.trim(cluster, name, partition, spot), _trimmed, as_json=json)


def _own(configs: Configs) -> Configs:
    changed = tuple(row for row in configs.configs if row.source == "topic")
    return Configs(configs.kind, configs.name, changed)


def _listed(rows: tuple[TopicRow, ...]) -> Iterator[RenderableType]:
    if not rows:
        yield "no topics; 'magnetar topic create NAME' makes one"
        return
    columns = ("topic", "#partitions", "#size", "internal")
    yield table(columns, [(row.name, row.partitions, size(row.size), row.internal) for row in rows])


def _made(topic: TopicDetail) -> Iterator[RenderableType]:
    yield f"topic {topic.name} has {len(topic.partitions)} partitions"


def _described(topic: TopicDetail) -> Iterator[RenderableType]:
    yield pairs(
        [
            ("topic", topic.name),
            ("id", topic.topic_id),
            ("internal", topic.internal),
            ("records", topic.records),
            ("size", size(topic.size)),
            ("flush", topic.flush),
        ]
    )
    rows = [(r.partition, r.leader, r.first, r.next, r.records, size(r.size)) for r in topic.partitions]
    yield table(("#partition", "#leader", "#first", "#next", "#records", "#size"), rows)
    yield config_table(Configs("topic", topic.name, topic.configs))


def _deleted(value: TopicsDeleted) -> Iterator[RenderableType]:
    yield f"deleted {', '.join(value.deleted)}"


def _trimmed(value: Trimmed) -> Iterator[RenderableType]:
    yield table(("#partition", "#first offset now"), value.first.items())
