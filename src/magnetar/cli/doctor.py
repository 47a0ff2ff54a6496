"""``magnetar doctor``: a checkup of one broker, its directory and its machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin.whereabouts import data_directory
from magnetar.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from magnetar.cli.output import give, pairs
from magnetar.cli.statuses import NEEDS_ATTENTION
from magnetar.doctor.findings import Checkup, Grade

if TYPE_CHECKING:
    from rich.console import RenderableType

SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        exists=True,
        dir_okay=False,
        help="Settings to start a broker with; one that runs tells its own.",
    ),
]
OneSetting = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One setting of it; repeatable.")
]
Directory = Annotated[
    Path | None,
    typer.Option("--data", help="The broker's data directory; without it the bootstrap server is asked."),
]


def doctor(
    data: Directory = None,
    config: SettingsFile = None,
    set_: OneSetting = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="CHECK", help="Leave a check out; repeatable.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Look at a broker, its data directory and its machine, and say what is wrong and what to do.

    It works with the broker running or not, on the broker's machine and as its user. It takes some seconds and
    changes nothing. Ends with 0 if there is no more than notes, 3 if an operator should act, and 1 if something does
    not work.
    """
    from magnetar.doctor import checkup  # it brings the whole broker along

    settings = checkup.given_settings(data, config, set_ or [])
    if data is None and config is not None:
        data = Path(settings.node.data_dir).absolute()
    where = data.absolute() if data is not None else data_directory(None, bootstrap_server)
    found = checkup.check_up(where, settings, given=bool(config or set_), ignoring=ignore or ())
    give(found, _shown, as_json=json)
    if found.level is Grade.error:
        raise typer.Exit(1)
    if found.level is Grade.warning:
        raise typer.Exit(NEEDS_ATTENTION)


def _shown(found: Checkup) -> Iterator[RenderableType]:
    state = f"served by Magnetar {found.version}" if found.running else "no broker serves it"
    yield f"{found.data}: {state}"
    if not found.findings:
        yield "Nothing is wrong."
    for each in found.findings:
        yield ""
        yield f"{each.level}: {each.check}: {each.what}"
        yield f"  why: {each.why}"
        yield f"  -> {each.do}"
    yield ""
    yield pairs(found.measured.items())
    for name, reason in found.not_looked.items():
        yield f"not looked at: {name}: {reason}"
