"""``magnetar upgrade``: a data directory raised to this release's format, or a look at what that would change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.cli.options import Json, Yes, confirm
from magnetar.cli.output import give, table
from magnetar.cli.statuses import NEEDS_ATTENTION

if TYPE_CHECKING:
    from rich.console import RenderableType

    from magnetar.doctor.upgrades import UpgradePlan


def upgrade(
    data: Annotated[
        Path, typer.Option("--data", exists=True, file_okay=False, help="The broker's data directory.")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Show what would change, and change nothing; a broker may run.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Raise a data directory to this release's format; no older release opens it afterwards.

    A broker does so by itself when it starts. With --check, a broker of the older release may be running: its connected
    clients that this release would not serve are listed, too. It then ends with 0 if nothing would change, and with 3
    if something would. A directory of a newer format is refused with 1, and stays as it is.
    """
    from magnetar.doctor import upgrades

    found = upgrades.plan(data.absolute())
    if not check and found.changes:
        confirm(f"Raise {found.data} to format {found.reads_up_to}, which no older release opens?", yes=yes)
        found = upgrades.upgrade(data.absolute())
    give(found, _shown_plan if check else _shown_done, as_json=json)
    if check and (found.changes or found.unserved):
        raise typer.Exit(NEEDS_ATTENTION)


def _shown_done(found: UpgradePlan) -> Iterator[RenderableType]:
    if not found.changes:
        yield f"{found.data} has format {found.format} already: nothing was changed."
        return
    yield f"{found.data} has format {found.reads_up_to} now; it had {found.format}."
    yield from _changes(found)


def _shown_plan(found: UpgradePlan) -> Iterator[RenderableType]:
    served = f"served by Magnetar {found.running}" if found.running else "no broker serves it"
    yield f"{found.data}: format {found.format}, {served}. Magnetar {found.release} has format {found.reads_up_to}."
    if found.changes:
        yield "Opening it with this release raises the format, one way: no older release opens it afterwards."
        yield from _changes(found)
    else:
        yield "Opening it with this release changes no format."
    if found.history:
        yield table(("#format", "by", "at"), [(each.format, each.by, each.at) for each in found.history])
    if found.unserved:
        yield "Connected clients that this release would not serve:"
        yield table(
            ("software", "version", "#connections", "API", "#asks for", "#served from"),
            [
                (each.software, each.version, each.connections, each.api, each.asks_for, each.served_from)
                for each in found.unserved
            ],
        )
    elif found.running:
        yield "All connected clients would be served."


def _changes(found: UpgradePlan) -> Iterator[RenderableType]:
    for each in found.changes:
        yield f"  format {each.format}: {each.brings}{' (rewritten)' if each.rewrites else ''}"
