"""``magnetar bundle``: what a maintainer asks for, in one archive."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin.errors import AdminError, NotThere, Unreachable
from magnetar.admin.whereabouts import data_directory
from magnetar.cli.doctor import Directory, OneSetting, SettingsFile
from magnetar.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from magnetar.cli.output import give, size, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from magnetar.doctor.bundle import SupportBundle


def bundle(
    data: Directory = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write, or its directory; the current one by default."),
    ] = None,
    form: Annotated[str, typer.Option("--format", metavar="tar.gz|zip", help="Kind of archive.")] = "tar.gz",
    names: Annotated[bool, typer.Option("--names", help="Leave names of topics and groups in.")] = False,
    log_file: Annotated[
        Path | None,
        typer.Option(
            "--log-file",
            exists=True,
            dir_okay=False,
            help="File the broker logs to; by default its standard error, if that is one.",
        ),
    ] = None,
    config: SettingsFile = None,
    set_: OneSetting = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
) -> None:
    """Write what a maintainer asks for into one archive, without secrets.

    It works with the broker running or not (then with --data), on the broker's machine and as its user. It asks
    nothing, and shows what it has left out. README.txt in it says what each file is.
    """
    from magnetar.doctor import bundle as bundles  # it brings the whole broker along

    wanted = bundles.wanted_of(data, config, set_ or [], lambda: _asked(bootstrap_server))
    wanted = replace(wanted, output=output, form=form, names=names, log_file=log_file)
    give(bundles.make(wanted, dict(os.environ)), _shown, as_json=json)


def _asked(bootstrap_server: str) -> Path:
    try:
        return data_directory(None, bootstrap_server)
    except (Unreachable, NotThere) as error:
        raise AdminError(
            str(error),
            "Name its data directory with --data: a broker that does not answer needs none to be asked.",
        ) from None


def _shown(value: SupportBundle) -> Iterator[RenderableType]:
    yield f"{value.path} ({size(value.bytes)})"
    yield table(
        ("file", "#bytes", "what it has"), ((each.name, each.bytes, each.about) for each in value.files)
    )
    if value.missing:
        yield table(("missing", "why"), value.missing.items())
    yield "Left out:"
    for each in value.left_out:
        yield f"  - {each}"
    yield ""
    yield "Look through it before you send it: secrets that look like nothing else cannot be found."
