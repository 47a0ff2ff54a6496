"""Backups of a data directory, made while its broker runs, by its files alone.

    PLACE/magnetar-backup.json      what the place is, and its format
    PLACE/sealed/                   closed ledgers, each copied once for all snapshots: ID.BYTES.SHA256.ledger, .index
    PLACE/snapshots/NAME/           manifest.json, the metadata, and the ledgers that were open
    PLACE/snapshots/.NAME.partial   a snapshot that is being made, or was when its maker died

A snapshot holds all that was acknowledged before it began. Metadata are copied first, by SQLite's own backup, so all
that they name was written before; then the sizes of open ledgers are noted, those of groups and transactions first, so
no committed offset lies behind the records. Closed ledgers never change. One that retention or compaction deletes
meanwhile is in neither the copy nor newer metadata: these are copied again then.

A snapshot counts once its folder has its name, which is the last step. So a maker that is killed leaves the others
as they were, and what it had copied of closed ledgers is there for the next.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from magnetar.admin.errors import AdminError, Declined, NotThere
from magnetar.doctor.backup_files import (
    BackupFile,
    BackupSnapshot,
    Pace,
    Verified,
    copied,
    digest_of,
    ends,
    ends_of,
    flush_folder,
    write_durably,
)
from magnetar.doctor.backup_place import FORMAT, MANIFEST, check_name, held, manifest, wanted
from magnetar.ledger.formats.cursor_info import decode_cursor
from magnetar.ledger.formats.info import ROOT, decode_info, is_managed_ledger
from magnetar.ledger.formats.layout import index_path, ledger_path
from magnetar.metadata import MetadataError, SqliteFile
from magnetar.topics.names import CONSUMER_OFFSETS, TRANSACTION_STATE

_METADATA = ("metadata.sqlite", "metadata.sqlite.seal")
_TRIES = 20
_LOOKS, _PAUSE_S = 500, 0.002
"""How often open ledgers are looked at until no transaction is decided meanwhile: for about three seconds."""
_COORDINATORS = (CONSUMER_OFFSETS, TRANSACTION_STATE)


class _Gone(Exception):
    """A ledger that the metadata name was deleted before it was copied."""


@dataclass(frozen=True, slots=True)
class _Named:
    """The ledgers that metadata name."""

    sealed: tuple[int, ...]
    open: tuple[int, ...]
    """In the order in which they have to be looked at."""
    transactions: tuple[int, ...]
    """Those of ``open`` that the coordinators of transactions append to."""
    offloaded: int


def create(data: Path, place: Path, name: str = "", *, bytes_per_s: int = 0) -> BackupSnapshot:
    """Make a snapshot of a data directory, whose broker may be running; return what it holds.

    ``name`` is the time by default, ``bytes_per_s`` bounds the copying (0: no bound). Raises `AdminError`: no data
    directory, a place that is foreign, of a newer format, full, or in use.
    """
    if not (data / _METADATA[0]).exists():
        raise NotThere(
            f"{data} is no data directory: it has no {_METADATA[0]}",
            "Name the one 'magnetar standalone --data' was given.",
        )
    made_ms = time.time_ns() // 1_000_000
    name = name or time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(made_ms / 1000))
    check_name(name)
    try:
        with held(place):
            return _Making(data.absolute(), place, name, made_ms, Pace(bytes_per_s)).make()
    except OSError as error:
        raise AdminError(
            f"the backup was not made: {error.filename or place}: {error.strerror or error}",
            "Earlier snapshots are as they were. Make room or see to the place, and try again.",
        ) from error


def verify(place: Path, name: str = "") -> Verified:
    """Read a snapshot, the newest by default, and compare it with its manifest; no broker is needed."""
    snapshot, files = manifest(place, wanted(place, name))
    damage, read = [], 0
    for each in files:
        try:
            size, digest = digest_of(place / each.stored)
        except FileNotFoundError:
            damage.append(f"{each.stored} is missing")
            continue
        except OSError as error:
            damage.append(f"{each.stored} cannot be read: {error.strerror}")
            continue
        read += size
        if size != each.bytes:
            damage.append(f"{each.stored} has {size} bytes, and {each.bytes} were written")
        elif digest != each.sha256:
            damage.append(f"{each.stored} is not what was written: its digest differs")
    return Verified(snapshot.name, len(files), read, tuple(damage))


def restore(place: Path, data: Path, name: str = "") -> BackupSnapshot:
    """Make a data directory of a snapshot, the newest by default; each file is compared with the manifest.

    ``data`` must not exist, or be empty. It gets its name when it is whole. Raises `AdminError`.
    """
    snapshot, files = manifest(place, wanted(place, name))
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise Declined(f"{data} exists and is not empty", "Choose another directory with --data.")
    partial = data.with_name(f".{data.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True, mode=0o750)
        for each in files:
            target = partial / each.path
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            with (place / each.stored).open("rb") as source:
                size, digest = copied(source, target, each.bytes, Pace(0))
            if (size, digest) != (each.bytes, each.sha256):
                raise AdminError(
                    f"{each.stored} is not what was written; nothing was restored",
                    "'magnetar backup verify' names all that is damaged; restore another snapshot.",
                )
        if data.exists():
            data.rmdir()
        partial.rename(data)
        flush_folder(data.parent)
    except OSError as error:
        raise AdminError(
            f"nothing was restored: {error.filename or data}: {error.strerror or error}",
            "Make room or see to the place, and try again.",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return snapshot


class _Making:
    """One snapshot that is being made."""

    def __init__(self, data: Path, place: Path, name: str, made_ms: int, pace: Pace) -> None:
        self._data = data
        self._place = place
        self._name = name
        self._made_ms = made_ms
        self._pace = pace
        self._sealed = place / "sealed"
        self._folder = place / "snapshots" / f".{name}.partial"
        self._files: list[BackupFile] = []
        self._copied = 0

    def make(self) -> BackupSnapshot:
        final = self._folder.with_name(self._name)
        if final.exists():
            raise Declined(f"{self._place} has a snapshot {self._name}", "Choose another name with --name.")
        for left in self._folder.parent.glob(".*.partial"):
            shutil.rmtree(left)  # of a maker that died: the place is locked
        for left in self._sealed.glob("*.partial"):
            left.unlink()
        for _ in range(_TRIES):
            try:
                named = self._make_once()
                break
            except _Gone:
                shutil.rmtree(self._folder)
        else:
            raise AdminError(
                f"ledgers of {self._data} were deleted {_TRIES} times while they were copied",
                "Try again when retention or compaction delete less.",
            )
        snapshot = BackupSnapshot(
            self._name,
            self._made_ms,
            str(self._data),
            sum(each.path.endswith(".ledger") for each in self._files),
            sum(each.bytes for each in self._files),
            self._copied,
            named.offloaded,
        )
        said = {
            "format": FORMAT,
            "snapshot": asdict(snapshot),
            "files": [asdict(each) for each in self._files],
        }
        write_durably(self._folder / MANIFEST, json.dumps(said, indent=1).encode())
        flush_folder(self._folder)
        self._folder.rename(final)
        flush_folder(final.parent)
        return snapshot

    def _make_once(self) -> _Named:
        self._files = []
        self._folder.mkdir(parents=True, mode=0o750)
        _copy_metadata(self._data, self._folder)
        named = _named_by(self._folder)
        for ledger_id, index, size in self._look_at_all(named):
            self._take_open(ledger_id, index, size)
        for ledger_id in named.sealed:
            self._take_sealed(ledger_path(self._data, ledger_id), needed=True)
            self._take_sealed(index_path(self._data, ledger_id), needed=False)
        for name in _METADATA:
            size, digest = digest_of(self._folder / name)
            self._files.append(BackupFile(name, self._stored(name), size, digest))
        for folder in (self._sealed, self._folder):
            flush_folder(folder)
        return named

    def _look_at_all(self, named: _Named) -> list[tuple[int, bytes | None, int]]:
        """Return what `_look_at` returns of all open ledgers, of a moment in which no transaction was decided.

        A transaction that was decided between two looks would be committed in one partition and open in another. One
        that was decided before the first is finished by its coordinator in the copy, marker by marker.
        """
        for attempt in range(1, _LOOKS + 1):
            decided = self._decided(named)
            looks = [self._look_at(each) for each in named.open]
            if self._decided(named) == decided:
                if _named_by(self._data, TRANSACTION_STATE).transactions != named.transactions:
                    raise _Gone  # decisions went to a ledger that the metadata do not name yet
                return looks
            time.sleep(_PAUSE_S * (attempt % 7))
        raise AdminError(
            f"transactions were decided without a pause while {len(named.open)} open ledgers were looked at",
            "Try again at a quieter moment; earlier snapshots are as they were.",
        )

    def _decided(self, named: _Named) -> list[int]:
        """Return how much the coordinators of transactions have written."""
        try:
            return [ledger_path(self._data, each).stat().st_size for each in named.transactions]
        except FileNotFoundError:
            raise _Gone from None

    def _look_at(self, ledger_id: int) -> tuple[int, bytes | None, int]:
        """Return an open ledger's index and its file's present size, read in that order: no index is ahead of its file.

        Files stay closed meanwhile: there may be more of them than descriptors.
        """
        try:
            index = index_path(self._data, ledger_id).read_bytes()
        except FileNotFoundError:
            index = None
        try:
            return ledger_id, index, ledger_path(self._data, ledger_id).stat().st_size
        except FileNotFoundError:
            raise _Gone from None

    def _take_open(self, ledger_id: int, index: bytes | None, size: int) -> None:
        target = ledger_path(self._folder, ledger_id)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        try:
            with ledger_path(self._data, ledger_id).open("rb") as file:
                self._take(target, *copied(file, target, size, self._pace))
        except FileNotFoundError:
            raise _Gone from None
        if index is not None:
            target = index_path(self._folder, ledger_id)
            write_durably(target, index)
            self._take(target, len(index), hashlib.sha256(index).hexdigest())
        flush_folder(target.parent)

    def _take(self, target: Path, size: int, digest: str) -> None:
        name = str(target.relative_to(self._folder))
        self._files.append(BackupFile(name, self._stored(name), size, digest))
        self._copied += size

    def _stored(self, name: str) -> str:
        return f"snapshots/{self._name}/{name}"

    def _take_sealed(self, path: Path, *, needed: bool) -> None:
        """Copy a file of a closed ledger, unless the place has it."""
        try:
            file = path.open("rb")
        except FileNotFoundError:
            if needed:
                raise _Gone from None
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            stored = self._known(path, file, size)
            if stored is None:
                partial = self._sealed / f"{path.name}.partial"
                size, digest = copied(file, partial, size, self._pace)
                stored = self._sealed / f"{path.stem}.{size}.{digest}{path.suffix}"
                partial.rename(stored)
                self._copied += size
        name = str(path.relative_to(self._data))
        digest = stored.name.split(".")[2]
        self._files.append(BackupFile(name, str(stored.relative_to(self._place)), size, digest))

    def _known(self, path: Path, file: BinaryIO, size: int) -> Path | None:
        """Return the copy that the place has of this file: of its size, with the same first and last bytes."""
        for each in self._sealed.glob(f"{path.stem}.{size}.*{path.suffix}"):
            if each.stat().st_size == size and ends(file, size) == ends_of(each, size):
                file.seek(0)
                return each
        file.seek(0)
        return None


def _copy_metadata(data: Path, folder: Path) -> None:
    """Copy the metadata as one commit left them, and seal the copy."""
    target = folder / _METADATA[0]
    try:
        with (
            closing(
                sqlite3.connect(f"{(data / target.name).as_uri()}?mode=ro", uri=True, timeout=60)
            ) as live,
            closing(sqlite3.connect(target)) as copy,
        ):
            live.backup(copy)
        SqliteFile(target).close()  # reads each row, and seals it
    except (sqlite3.Error, MetadataError) as error:
        raise AdminError(
            f"the metadata cannot be copied: {error}", "Run 'magnetar ledger verify'."
        ) from error
    (folder / "lock").unlink(missing_ok=True)
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _named_by(folder: Path, only: str = "") -> _Named:
    """Return the ledgers that the metadata in a folder name, those of all topics or of one alone."""
    sealed: dict[int, None] = {}
    open_ones: list[tuple[bool, int]] = []
    transactions = []
    offloaded = 0
    with closing(SqliteFile(folder / _METADATA[0], read_only=True)) as store:
        for path, stored in store.scan(ROOT + "/"):
            name = path.rpartition("/")[2]
            if not name.startswith(only):
                continue
            is_coordinators = name.startswith(_COORDINATORS)
            if not is_managed_ledger(path):
                ledger_id = decode_cursor(stored.value, name=path).ledger_id
                if ledger_id >= 0:
                    open_ones.append((False, ledger_id))
                continue
            info = decode_info(stored.value, name=path)
            offloaded += sum(each.offloaded for each in info.ledgers)
            for each in info.files():
                if each.sealed:
                    sealed[each.ledger_id] = None
                    continue
                open_ones.append((not is_coordinators, each.ledger_id))
                if name.startswith(TRANSACTION_STATE):
                    transactions.append(each.ledger_id)
    in_order = tuple(dict.fromkeys(each for _, each in sorted(open_ones)))
    return _Named(tuple(sealed), in_order, tuple(transactions), offloaded)
