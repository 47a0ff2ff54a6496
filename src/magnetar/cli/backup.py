"""``magnetar backup``: snapshots of a data directory while its broker runs, their proof, and the way back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.admin.errors import AdminError
from magnetar.cli.options import Json
from magnetar.cli.output import give, moment, pairs, size, table
from magnetar.doctor import backups
from magnetar.doctor.backup_place import snapshots

if TYPE_CHECKING:
    from rich.console import RenderableType

    from magnetar.doctor.backup_files import BackupSnapshot, Verified

app = typer.Typer(help="Back up a broker's data directory, and restore it.", no_args_is_help=True)
Place = Annotated[Path, typer.Argument(metavar="PLACE", help="The directory that holds the backups.")]
Name = Annotated[str, typer.Option("--name", help="The snapshot; the newest if none is named.")]


@app.command()
def create(
    place: Place,
    data: Annotated[
        Path, typer.Option("--data", help="The broker's data directory; the broker may be running.")
    ],
    name: Annotated[
        str, typer.Option("--name", help="What to call the snapshot; the time if not given.")
    ] = "",
    rate: Annotated[
        int, typer.Option("--max-bytes-per-second", min=0, help="Copy no faster; 0 for no bound.")
    ] = 0,
    json: Json = False,
) -> None:
    """Make a snapshot. Closed ledgers that the place has are not copied again."""
    give(backups.create(data, place, name, bytes_per_s=rate), _shown, as_json=json)


@app.command("list")
def list_(place: Place, json: Json = False) -> None:
    """List the snapshots of a place, oldest first."""
    give(snapshots(place), _listed, as_json=json)


@app.command()
def verify(place: Place, name: Name = "", json: Json = False) -> None:
    """Read a snapshot and compare each file with its manifest; ends with 1 if any differs."""
    found = backups.verify(place, name)
    give(found, _judged, as_json=json)
    if not found.is_whole:
        raise AdminError(f"snapshot {found.name} is damaged", "Restore another one, and make a new one.")


@app.command()
def restore(
    place: Place,
    data: Annotated[
        Path, typer.Option("--data", help="The directory to make; it must not exist, or be empty.")
    ],
    name: Name = "",
    json: Json = False,
) -> None:
    """Make a data directory of a snapshot; a broker can be started on it."""
    give(backups.restore(place, data, name), _shown, as_json=json)


def _shown(value: BackupSnapshot) -> Iterator[RenderableType]:
    rows: list[tuple[str, object]] = [
        ("snapshot", value.name),
        ("of", value.source),
        ("made", moment(value.made_ms)),
        ("ledgers", value.ledgers),
        ("holds", size(value.bytes)),
        ("copied", size(value.copied_bytes)),
    ]
    if value.offloaded:
        rows.append(("left in tiered storage", value.offloaded))
    yield pairs(rows)


def _listed(value: list[BackupSnapshot]) -> Iterator[RenderableType]:
    columns = ("SNAPSHOT", "MADE", "#LEDGERS", "#HOLDS", "#COPIED")
    yield table(
        columns,
        [
            (each.name, moment(each.made_ms), each.ledgers, size(each.bytes), size(each.copied_bytes))
            for each in value
        ],
    )


def _judged(value: Verified) -> Iterator[RenderableType]:
    if value.is_whole:
        yield f"snapshot {value.name}: all {value.files} files ({size(value.bytes)}) are what was written"
    yield from value.damage
