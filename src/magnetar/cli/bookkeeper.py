"""``magnetar bookkeeper``: what the engine of that name needs beside Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin.errors import AdminError
from magnetar.cli.options import Json
from magnetar.cli.output import give, pairs

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(help="Prepare storage in Apache BookKeeper.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class Jars:
    """Where the jars are."""

    directory: str
    jars: int
    pulsar: str


@app.callback()
def _group() -> None:
    """Keep ``install`` a command of its own although it is the only one."""


@app.command()
def install(
    directory: Annotated[
        Path | None, typer.Option(help="Where to put them; default MAGNETAR_JARS, else the user's cache.")
    ] = None,
    json: Json = False,
) -> None:
    """Bring Pulsar's and BookKeeper's jars by Maven, of pinned versions, and check each one's SHA-256.

    What is there already, and is what it should be, is not brought again.
    """
    from magnetar.ledger.bookkeeper import jars

    try:
        found = jars.install(directory)
    except jars.JarsError as error:
        raise AdminError(str(error)) from error
    give(Jars(str(found), len(jars.pinned()), jars.PULSAR_VERSION), _shown, as_json=json)


def _shown(jars: Jars) -> Iterator[RenderableType]:
    yield pairs([("directory", jars.directory), ("jars", jars.jars), ("Pulsar", jars.pulsar)])
