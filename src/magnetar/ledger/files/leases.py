"""Leases as files, for readers on the same host: no broker is needed to take one, and one that starts later finds it.

A lease is a file ``pins/*.pin`` in the data directory: ``{"needs": {"<managed ledger>": <first offset needed>},
"until_ms": <time>}``. It counts until its time and, beyond it, while the process that took it lives, which the kernel's
lock on the file shows; a reader that was killed retains nothing. A lease that cannot be read (rights, descriptors)
retains everything: a reader may need it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from magnetar.ledger.errors import StorageFailed
from magnetar.ledger.leases import Lease, LeaseExpired, Leases
from magnetar.ledger.port import wall_clock_ms
from magnetar.metadata.modes import FILE_MODE, FOLDER_MODE

T = TypeVar("T")
FOLDER = "pins"
EVERYTHING = -1
_UNKNOWN: Mapping[str, int] = {"": EVERYTHING}
_MAX_TOLD = 1000
_told: set[str] = set()
_log = logging.getLogger("magnetar.ledger")


class HeldLease:
    """A lease that counts while its process lives. Raises ``OSError`` if the directory cannot be written."""

    def __init__(self, root: Path, needs: Mapping[str, int], *, until_ms: int = 0) -> None:
        self._path = _new_path(root)
        draft = self._path.with_suffix(".new")
        self._fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        self._until_ms = until_ms
        self.move(needs)
        draft.rename(self._path)

    def move(self, needs: Mapping[str, int]) -> None:
        """Need these from now on."""
        content = _content(needs, self._until_ms)
        os.pwrite(self._fd, content.ljust(os.fstat(self._fd).st_size), 0)
        os.ftruncate(self._fd, len(content))

    def leave(self) -> None:
        """Close the file, but let the lease count until its time."""
        os.close(self._fd)

    def release(self) -> None:
        """Need nothing any more."""
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


class FileLeases(Leases):
    """The leases below a data directory, read in threads."""

    def __init__(
        self, root: Path, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]], clock: Callable[[], int]
    ) -> None:
        self._root = root
        self._in_thread = in_thread
        self._clock = clock

    async def take(self, needs: Mapping[str, int], *, for_ms: int) -> Lease:
        def take() -> Lease:
            path = _new_path(self._root)
            lease = Lease(path.stem, dict(needs), self._clock() + for_ms)
            _write(path, lease)
            return lease

        return await self._done(take)

    async def renew(self, lease: Lease, needs: Mapping[str, int] | None = None, *, for_ms: int) -> Lease:
        def renew() -> Lease:
            path, now_ms = self._path(lease), self._clock()
            if not _needs(path, now_ms):
                raise LeaseExpired(lease.lease_id)
            renewed = Lease(lease.lease_id, dict(lease.needs if needs is None else needs), now_ms + for_ms)
            _write(path, renewed)
            return renewed

        return await self._done(renew)

    async def release(self, lease: Lease) -> None:
        await self._done(lambda: self._path(lease).unlink(missing_ok=True))

    async def needed(self, name: str) -> int | None:
        found: int | None = await self._in_thread(lambda: needed_offset(self._root, name, self._clock()))
        return found

    def _path(self, lease: Lease) -> Path:
        return self._root / FOLDER / f"{lease.lease_id}.pin"

    async def _done(self, work: Callable[[], T]) -> T:
        try:
            done: T = await self._in_thread(work)
        except OSError as error:
            raise StorageFailed(f"the lease cannot be kept: {error}") from error
        return done


def _new_path(root: Path) -> Path:
    folder = root / FOLDER
    folder.mkdir(FOLDER_MODE, exist_ok=True)
    return folder / f"{os.getpid()}-{uuid.uuid4().hex}.pin"


def _content(needs: Mapping[str, int], until_ms: int) -> bytes:
    return json.dumps({"needs": dict(needs), "until_ms": until_ms}).encode()


def _write(path: Path, lease: Lease) -> None:
    """Replace a lease atomically: concurrent readers see the previous one."""
    draft = path.with_suffix(".new")
    with os.fdopen(
        os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE), "wb"
    ) as file:
        file.write(_content(lease.needs, lease.until_ms))
    draft.replace(path)


def needed_offset(root: Path, name: str, now_ms: int | None = None) -> int | None:
    """Return the first offset of the managed ledger ``name`` that some reader needs, or None. Removes what is over."""
    try:
        paths = [Path(entry.path) for entry in os.scandir(root / FOLDER) if entry.name.endswith(".pin")]
    except FileNotFoundError:
        return None
    except OSError as error:
        _tell_once(f"leases cannot be listed, so everything is kept: {error}")
        return EVERYTHING
    now_ms = wall_clock_ms() if now_ms is None else now_ms
    needs = [_needs(path, now_ms) for path in paths]
    found = [each.get(name, each.get("", None)) for each in needs]
    return min((offset for offset in found if offset is not None), default=None)


def _needs(path: Path, now_ms: int) -> Mapping[str, int]:
    """Return the needs of a lease; ``""`` stands for all managed ledgers, if it cannot be read."""
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
        _tell_once(f"a lease cannot be read, so everything is kept: {error}")
        return _UNKNOWN
    if alive:
        return needs
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _tell_once(f"a lease that nobody holds any more cannot be removed: {error}")
    return {}


def _tell_once(what: str) -> None:
    """Log it only the first time: every partition checks, in every round."""
    if what not in _told and len(_told) < _MAX_TOLD:
        _told.add(what)
        _log.warning("%s", what)


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
