"""Pins: readers past the broker say which ledgers they still need, so that retention leaves them.

A pin is a file ``pins/*.pin`` in the data directory: ``{"needs": {"<managed ledger>": <first offset needed>},
"until_ms": <time>}``. It holds while the process that made it lives, which the kernel's lock on the file tells, or
until its time; a reader that was killed pins nothing. No broker is needed to make one, and one that starts later
finds it. One that cannot be read (rights, descriptors) holds everything: somebody may need it. Deleting a topic or its
records (DeleteRecords) is an order, and is not held up.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import uuid
from collections.abc import Mapping
from pathlib import Path

from magnetar.ledger.port import wall_clock_ms
from magnetar.metadata.modes import FILE_MODE, FOLDER_MODE

FOLDER = "pins"
EVERYTHING = -1
_UNKNOWN: Mapping[str, int] = {"": EVERYTHING}
_MOST_TOLD = 1000
_told: set[str] = set()
_log = logging.getLogger("magnetar.ledger")


class Pin:
    """What one reader needs. Raises ``OSError`` where the directory cannot be written."""

    def __init__(self, root: Path, needs: Mapping[str, int], *, until_ms: int = 0) -> None:
        folder = root / FOLDER
        folder.mkdir(FOLDER_MODE, exist_ok=True)
        self._path = folder / f"{os.getpid()}-{uuid.uuid4().hex}.pin"
        draft = self._path.with_suffix(".new")
        self._fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        self._until_ms = until_ms
        self.move(needs)
        draft.rename(self._path)

    def move(self, needs: Mapping[str, int]) -> None:
        """Need these from now on."""
        content = json.dumps({"needs": needs, "until_ms": self._until_ms}).encode()
        os.pwrite(self._fd, content.ljust(os.fstat(self._fd).st_size), 0)
        os.ftruncate(self._fd, len(content))

    def leave(self) -> None:
        """Let go of the file, but leave it to hold until its time."""
        os.close(self._fd)

    def release(self) -> None:
        """Need nothing any more."""
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


def pinned_offset(root: Path, name: str, now_ms: int | None = None) -> int | None:
    """Give the first offset of the managed ledger ``name`` that some reader needs, or None. Removes what is over."""
    try:
        paths = [Path(entry.path) for entry in os.scandir(root / FOLDER) if entry.name.endswith(".pin")]
    except FileNotFoundError:
        return None
    except OSError as error:
        _tell_once(f"pins cannot be listed, so everything is kept: {error}")
        return EVERYTHING
    now_ms = wall_clock_ms() if now_ms is None else now_ms
    needs = [_needs(path, now_ms) for path in paths]
    found = [each.get(name, each.get("", None)) for each in needs]
    return min((offset for offset in found if offset is not None), default=None)


def _needs(path: Path, now_ms: int) -> Mapping[str, int]:
    """Give what a pin holds; ``""`` stands for all managed ledgers, where it cannot be read."""
    needs: Mapping[str, int]
    try:
        with path.open("rb") as file:
            alive = _is_locked(file.fileno())
            try:
                content = json.loads(file.read())
                needs = {str(name): int(offset) for name, offset in content["needs"].items()}
                alive = alive or now_ms < int(content["until_ms"])
            except (ValueError, KeyError, TypeError, AttributeError):
                needs = _UNKNOWN
    except FileNotFoundError:
        return {}
    except OSError as error:
        _tell_once(f"a pin cannot be read, so everything is kept: {error}")
        return _UNKNOWN
    if alive:
        return needs
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _tell_once(f"a pin that nobody holds any more cannot be removed: {error}")
    return {}


def _tell_once(what: str) -> None:
    """Log it the first time: every partition asks, in every round."""
    if what not in _told and len(_told) < _MOST_TOLD:
        _told.add(what)
        _log.warning("%s", what)


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
