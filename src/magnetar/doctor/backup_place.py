"""The directory that holds backups: its mark, its snapshots by name, and their manifests.

See `magnetar.doctor.backups` for what lies where.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from magnetar.admin.errors import AdminError, Declined, NotThere
from magnetar.doctor.backup_files import BackupFile, BackupSnapshot, flush_folder, write_durably

FORMAT = 1
MARK, MANIFEST = "magnetar-backup.json", "manifest.json"


def snapshots(place: Path) -> list[BackupSnapshot]:
    """Return the snapshots of a place, oldest first; raise `AdminError`."""
    check_place(place)
    found = [manifest(place, each.name)[0] for each in folders(place)]
    return sorted(found, key=lambda each: each.made_ms)


@contextmanager
def held(place: Path) -> Iterator[None]:
    """Make a place for backups of a directory, or take one; keep others out meanwhile."""
    mark = place / MARK
    if not mark.exists():
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise Declined(
                f"{place} is no place of backups: it is not empty, and has no {MARK}",
                "Name an empty directory, or one that 'magnetar backup create' made.",
            )
        place.mkdir(parents=True, exist_ok=True, mode=0o750)
        write_durably(mark, json.dumps({"magnetar": "backup", "format": FORMAT}).encode())
    check_place(place)
    for name in ("sealed", "snapshots"):
        (place / name).mkdir(exist_ok=True, mode=0o750)
    flush_folder(place)
    with mark.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Declined(f"a backup is being made in {place}", "Wait for it to end.") from None
        yield


def check_place(place: Path) -> None:
    """Raise `AdminError` for what is no place of backups, or one of a newer release."""
    try:
        said = json.loads((place / MARK).read_bytes())
        number = said["format"]
    except FileNotFoundError:
        raise NotThere(
            f"{place} is no place of backups: it has no {MARK}", "'magnetar backup create' makes one."
        ) from None
    except (ValueError, TypeError, KeyError):
        raise AdminError(f"{place / MARK} is damaged", "Restore it from a copy.") from None
    check_format(number, place)


def check_format(number: object, where: Path) -> None:
    """Raise `Declined` for the format of a newer release."""
    if type(number) is not int or number > FORMAT:
        raise Declined(
            f"{where} has format {number}, and this release reads formats up to {FORMAT}",
            "Use the release that wrote it, or a newer one; nothing was changed.",
        )


def check_name(name: str) -> None:
    """Raise `Declined` for what cannot be the name of a snapshot."""
    if not name or name.startswith(".") or not all(each.isalnum() or each in "-_." for each in name):
        raise Declined(
            f"a snapshot cannot be called {name!r}",
            "Use letters, digits, '-', '_' and '.', a letter or digit first.",
        )


def folders(place: Path) -> list[Path]:
    """Return the folders of the snapshots that are whole, in any order."""
    found = (place / "snapshots").iterdir() if (place / "snapshots").is_dir() else iter(())
    return [each for each in found if not each.name.startswith(".")]


def wanted(place: Path, name: str) -> str:
    """Return the name of a snapshot, that of the newest for ""; raise `NotThere`."""
    known = snapshots(place)
    if not known:
        raise NotThere(f"{place} has no snapshot", "'magnetar backup create' makes one.")
    if name and name not in {each.name for each in known}:
        raise NotThere(
            f"{place} has no snapshot {name}", "'magnetar backup list' shows those that are there."
        )
    return name or known[-1].name


def manifest(place: Path, name: str) -> tuple[BackupSnapshot, list[BackupFile]]:
    path = place / "snapshots" / name / MANIFEST
    try:
        said = json.loads(path.read_bytes())
        check_format(said["format"], path)
        files = [BackupFile(**each) for each in said["files"]]
        if any(
            Path(part).is_absolute() or ".." in Path(part).parts for f in files for part in (f.path, f.stored)
        ):
            raise ValueError("a path leads out")
        return BackupSnapshot(**said["snapshot"]), files
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise AdminError(
            f"{path} is missing or damaged: {error}",
            "Move that snapshot's folder away; others do not need it.",
        ) from error
