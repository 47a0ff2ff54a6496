"""``magnetar help``: what commands have in common."""

from __future__ import annotations

from typing import Annotated

import typer

from magnetar.admin.errors import NotThere
from magnetar.cli.options import Json
from magnetar.cli.output import give, table
from magnetar.cli.statuses import TABLE

TOPICS = {"exit": "Exit statuses of all commands."}


def help_(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help=f"One of: {', '.join(TOPICS)}.")] = "",
    json: Json = False,
) -> None:
    """Explain what all commands have in common, such as exit statuses ('magnetar help exit')."""
    if topic and topic not in TOPICS:
        raise NotThere(
            f"there is no topic {topic!r}", f"There are: {', '.join(TOPICS)}. Commands have --help."
        )
    if not topic:
        give(TOPICS, lambda value: [table(("topic", ""), value.items())], as_json=json)
        return
    rows = [each._asdict() for each in TABLE]
    give(
        rows,
        lambda value: [table(("#status", "name", "means"), [tuple(row.values()) for row in value])],
        as_json=json,
    )
