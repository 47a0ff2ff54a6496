"""What opening a data directory with this release changes, and which connected clients it does not serve any more.

A broker that starts does the same by itself (`magnetar.logs.storage.upgrading`); this is for looking before, and for
doing it apart from a start. Nothing goes back.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from magnetar import __version__
from magnetar.admin.errors import AdminError, Declined, NotThere
from magnetar.doctor.checkup import running_state
from magnetar.doctor.client_versions import cut_off
from magnetar.logs.storage.opening import open_storage
from magnetar.logs.storage.upgrading import STEPS
from magnetar.metadata import DirectoryInUse, MetadataError, SqliteFile
from magnetar.metadata.formats import FORMAT, FORMAT_PATH, HISTORY, NewerFormat, format_of
from magnetar.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class FormatChange:
    """One format that the directory would be raised to."""

    format: int
    brings: str
    rewrites: bool
    """Whether something that is stored is rewritten, or only the number."""


@dataclass(frozen=True, slots=True)
class FormatRaised:
    """When a directory got a format, and by which release."""

    format: int
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class UnservedClients:
    """Connected clients that ask for less than this release serves from; without the API, one more than asked."""

    software: str
    version: str
    connections: int
    api: str
    asks_for: int
    served_from: int


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    """All of it. ``running`` is the release that serves the directory now, empty where none does."""

    data: str
    release: str
    running: str
    format: int
    reads_up_to: int
    changes: tuple[FormatChange, ...]
    history: tuple[FormatRaised, ...]
    unserved: tuple[UnservedClients, ...]


def plan(data: Path) -> UpgradePlan:
    """Return what would change, with nothing changed; raise `NotThere`, or `Declined` for a newer format."""
    note = _note(data)
    found = _format(note, data)
    state = running_state(data)
    unserved = (
        ()
        if state is None
        else tuple(
            UnservedClients(each.software, each.version, each.connections, api, asks, served)
            for each, api, asks, served in cut_off(each for each in state.clients if each.protocol == "kafka")
        )
    )
    changes = tuple(
        FormatChange(number, HISTORY[number], number in STEPS) for number in range(found + 1, FORMAT + 1)
    )
    running = "" if state is None else state.version
    return UpgradePlan(str(data), __version__, running, found, FORMAT, changes, _history(note), unserved)


def upgrade(data: Path) -> UpgradePlan:
    """Raise the format now, and return what was done; raise `Declined` while a broker serves the directory."""
    planned = plan(data)
    try:
        asyncio.run(_raise(data))
    except DirectoryInUse as error:
        raise Declined(
            str(error), "End that broker first; one of this release does the same when it starts."
        ) from None
    except (MetadataError, OSError) as error:
        raise AdminError(
            f"the format cannot be raised: {error}", f"Run 'magnetar doctor --data {data}'."
        ) from error
    return planned


async def _raise(data: Path) -> None:
    storage = await open_storage(Settings().with_fields({"data_dir": str(data)}))
    try:
        await storage.store.close()
    finally:
        storage.lock.release()


def _note(data: Path) -> bytes | None:
    file = data / "metadata.sqlite"
    if not file.exists():
        raise NotThere(
            f"{data} is no data directory: it has no metadata.sqlite",
            "Name the one 'magnetar standalone --data' was given.",
        )
    try:
        store = SqliteFile(file, read_only=True)
        try:
            stored = store.get(FORMAT_PATH)
        finally:
            store.close()
    except NewerFormat as error:
        raise Declined(str(error), "Install that release or a newer one; nothing has been changed.") from None
    except MetadataError as error:
        raise AdminError(f"the metadata cannot be read: {error}", "Run 'magnetar ledger verify'.") from error
    return None if stored is None else stored.value


def _format(note: bytes | None, data: Path) -> int:
    try:
        return format_of(note, str(data))
    except MetadataError as error:
        raise AdminError(str(error), "Run 'magnetar ledger verify'.") from error


def _history(note: bytes | None) -> tuple[FormatRaised, ...]:
    rows: Any = [] if note is None else json.loads(note).get("history", [])
    return tuple(FormatRaised(int(each["format"]), str(each["by"]), str(each["at"])) for each in rows)
