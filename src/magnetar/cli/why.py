"""``magnetar why group G`` and ``magnetar why TOPIC-PARTITION``: the one reason that it does not move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, cast

import typer

from magnetar.admin.errors import Invalid
from magnetar.admin.partition_name import parse_place
from magnetar.admin.reasons import Reason, Why
from magnetar.admin.whereabouts import coordinator_of, leader_of, way_to_ask
from magnetar.cli.options import (
    DEFAULT_BOOTSTRAP,
    Admin,
    Bootstrap,
    Data,
    Json,
    group_names,
    partition_names,
)
from magnetar.cli.output import give, pairs

if TYPE_CHECKING:
    from rich.console import RenderableType


def _words(context: typer.Context, args: list[str], incomplete: str) -> list[str]:
    if (context.params.get("what") or args or [None])[0] == "group":
        return group_names(context, incomplete)
    return [word for word in ("group",) if word.startswith(incomplete)] + partition_names(context, incomplete)


def why(
    what: Annotated[
        list[str], typer.Argument(metavar="group GROUP | TOPIC-PARTITION", autocompletion=_words)
    ],
    data: Data = None,
    admin: Admin = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Name the one reason that a group or a partition does not move, and what to do about it.

    The exit status is 1 if there is no such group, topic or partition.
    """
    if what[0] == "group" and len(what) == 2:
        question = "why-group"
        given: dict[str, object] = {"group": what[1]}
        owner = coordinator_of(what[1])
    elif len(what) == 1 and what[0] != "group":
        topic, partition = parse_place(what[0])
        question, given = "why-partition", {"topic": topic, "partition": partition}
        owner = leader_of(topic, partition)
    else:
        raise Invalid("why what?", "Write 'magnetar why group GROUP' or 'magnetar why TOPIC-PARTITION'.")
    way = way_to_ask(data, admin, bootstrap_server, owner)
    answer = cast(Why, way.ask(question, **given))
    give(answer, _shown, as_json=json)
    not_there = (Reason.NO_TOPIC, Reason.NO_PARTITION) if "topic" in given else (Reason.NO_GROUP,)
    if answer.reason in not_there:
        raise typer.Exit(1)


def _shown(value: Why) -> Iterator[RenderableType]:
    yield f"{value.about}: {value.says}"
    yield f"  -> {value.next_step}"
    if value.facts:
        yield ""
        yield pairs(value.facts.items())
