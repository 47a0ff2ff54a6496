"""The number of the format in which a broker writes everything that stays: metadata, ledgers, coordinators' facts.

It stands in the metadata store, at `FORMAT_PATH`, for a data directory and for a cluster alike:

    {"format": 1, "by": "0.1.0", "history": [{"format": 1, "by": "0.1.0", "at": "2026-11-29T12:00:00Z"}]}

One number covers all: whatever changes in a way that an older release would misread raises `FORMAT` by one, with a line
in `HISTORY` and, where something has to be rewritten, a step in `magnetar.logs.storage.upgrading`. A release opens
what is older, and raises it one way; it refuses what is newer with `NewerFormat`, before it writes anything.
"""

from __future__ import annotations

import json
from typing import Any

from magnetar.metadata.errors import MetadataCorrupt, MetadataError

FORMAT = 1
"""Of this release."""
FORMAT_PATH = "/magnetar/format"
HISTORY = {
    0: "before formats were numbered",
    1: "the number itself is stored; nothing else differs from 0",
}
"""What each format brought."""


class NewerFormat(MetadataError):
    """What is stored was written, or upgraded, by a newer release; nothing was changed."""

    def __init__(self, where: str, found: int, by: str) -> None:
        super().__init__(
            f"{where} has format {found}, written by Magnetar {by or 'of an unknown version'}; "
            f"this release reads formats up to {FORMAT}"
        )
        self.found = found


def format_of(value: bytes | None, where: str) -> int:
    """Return the number that is stored, 0 for none; raise `NewerFormat`, or `MetadataCorrupt` for no such note."""
    if value is None:
        return 0
    note = _note(value)
    found = note.get("format")
    if type(found) is not int or found < 1:
        raise MetadataCorrupt(FORMAT_PATH, f"it holds no format's number: {value[:80]!r}")
    if found > FORMAT:
        raise NewerFormat(where, found, str(note.get("by", "")))
    return found


def with_format(value: bytes | None, number: int, by: str, at: str) -> bytes:
    """Return the note that a store has format ``number`` from now on, with its history."""
    history = [] if value is None else _note(value).get("history", [])
    note = {"format": number, "by": by, "history": [*history, {"format": number, "by": by, "at": at}]}
    return json.dumps(note).encode()


def _note(value: bytes) -> dict[str, Any]:
    try:
        note = json.loads(value)
    except ValueError as error:
        raise MetadataCorrupt(FORMAT_PATH, f"no JSON: {value[:80]!r}") from error
    return note if isinstance(note, dict) else {}
