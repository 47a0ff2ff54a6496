"""``magnetar group``: show consumer groups, move them, forget them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin import groups
from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import Invalid
from magnetar.admin.groups import GroupDetail, GroupRow, GroupsDeleted, OffsetsDeleted, Sought
from magnetar.admin.offsets import Spot, parse_spot
from magnetar.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    DryRun,
    GroupName,
    GroupNames,
    Json,
    Partitions,
    Yes,
    confirm,
    topic_names,
)
from magnetar.cli.output import give, pairs, table

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(help="Show consumer groups, move them, forget them.", no_args_is_help=True)

Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", help="Only this topic; repeatable.", autocompletion=topic_names),
]


@app.command("list")
def list_(bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """List groups."""
    with ClusterAdmin(bootstrap_server) as cluster:
        give(groups.list_groups(cluster), _listed, as_json=json)


@app.command()
def describe(name: GroupName, bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False) -> None:
    """Show a group's members, and how far it is behind in each partition."""
    with ClusterAdmin(bootstrap_server) as cluster:
        give(groups.describe_group(cluster, name), _described, as_json=json)


@app.command(
    "reset-offsets",
    help="Move a group that has no members now, as seek does: the name that Kafka users know.",
)
@app.command()
def seek(
    name: GroupName,
    to: Annotated[
        str | None, typer.Option("--to", help="earliest, latest, an offset, -N before the end, or s@TIME.")
    ] = None,
    shift: Annotated[
        int | None, typer.Option("--shift", help="So many records on, or back if negative.")
    ] = None,
    topic: Topics = None,
    partition: Partitions = None,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Move a group that has no members now."""
    if (to is None) == (shift is None):
        raise Invalid("where to?", "Give one of --to and --shift.")
    spot = Spot("shift", shift) if shift is not None else parse_spot(to or "")
    with ClusterAdmin(bootstrap_server) as cluster:
        done = groups.seek(cluster, name, topic or [], partition, spot, dry_run=dry_run)
    give(done, _sought, as_json=json)


@app.command()
def delete(
    names: GroupNames, yes: Yes = False, bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False
) -> None:
    """Forget groups without members, and all that they committed."""
    confirm(f"Forget {', '.join(names)}?", yes=yes)
    with ClusterAdmin(bootstrap_server) as cluster:
        give(groups.delete_groups(cluster, names), _deleted, as_json=json)


@app.command("delete-offsets")
def delete_offsets(
    name: GroupName,
    topic: Annotated[
        list[str], typer.Option("--topic", "-t", help="Repeatable.", autocompletion=topic_names)
    ],
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Forget what a group committed for a topic."""
    confirm(f"Forget what {name} committed for {', '.join(topic)}?", yes=yes)
    with ClusterAdmin(bootstrap_server) as cluster:
        give(groups.delete_offsets(cluster, name, topic), _offsets_deleted, as_json=json)


def _listed(rows: tuple[GroupRow, ...]) -> Iterator[RenderableType]:
    if not rows:
        yield "no groups"
        return
    yield table(
        ("group", "state", "type"), [(row.group, row.state, row.protocol_type or "-") for row in rows]
    )


def _described(group: GroupDetail) -> Iterator[RenderableType]:
    yield pairs(
        [
            ("group", group.group),
            ("state", group.state),
            ("protocol", group.protocol or "-"),
            ("members", len(group.members)),
            ("total lag", group.total_lag),
        ]
    )
    if group.members:
        yield table(
            ("member", "client", "host", "partitions"),
            [(row.member, row.client, row.host, " ".join(row.partitions) or "-") for row in group.members],
        )
    if group.partitions:
        yield table(
            ("topic", "#partition", "#committed", "#first", "#end", "#lag", "held by"),
            [(r.topic, r.partition, r.committed, r.first, r.end, r.lag, r.member) for r in group.partitions],
        )
    yield f"'magnetar why group {group.group}' says why it does not move"


def _sought(value: Sought) -> Iterator[RenderableType]:
    rows = [(row.topic, row.partition, row.before, row.after) for row in value.partitions]
    yield table(("topic", "#partition", "#before", "#would be" if value.dry_run else "#now"), rows)


def _deleted(value: GroupsDeleted) -> Iterator[RenderableType]:
    yield f"deleted {', '.join(value.deleted)}"


def _offsets_deleted(value: OffsetsDeleted) -> Iterator[RenderableType]:
    yield f"{value.group} has no offset any more for {', '.join(value.partitions)}"
