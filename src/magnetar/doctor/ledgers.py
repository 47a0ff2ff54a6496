"""Is every byte of a data directory what was written? Answers as values; nothing is changed.

``verify`` and ``dump`` also work beside a running broker: then only what it has finished is judged, and the
journal, which it is writing, is left out.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.admin.errors import NotThere
from magnetar.ledger.errors import LedgerCorrupt, LedgerError, LedgerNotFound
from magnetar.ledger.files.cursor_ledgers import read_state
from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import clean_use_of
from magnetar.ledger.files.inspection import Damage, Inspection, inspect
from magnetar.ledger.files.journal_rounds import journaled, records_of
from magnetar.ledger.files.recovery import closed_at
from magnetar.ledger.files.replay import journal_folder
from magnetar.ledger.formats.cursor_info import CursorInfo, decode_cursor, decode_state
from magnetar.ledger.formats.info import ROOT, ManagedLedgerInfo, decode_info, is_managed_ledger
from magnetar.ledger.formats.layout import HEADER_BYTES, index_path, ledger_path
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.ledger.port import LedgerSummary
from magnetar.ledger.tiers.objects import CLUSTER_ID, DELETIONS
from magnetar.metadata import (
    DirectoryInUse,
    DirectoryLock,
    MetadataCorrupt,
    MetadataError,
    RowsMismatch,
    SqliteFile,
)
from magnetar.metadata.seal import decode_seal, file_crc

if TYPE_CHECKING:
    from magnetar.doctor.ledgers_tiers import Tiering

REPAIR = "magnetar ledger repair"


class Gravity(StrEnum):
    """``damage``: bytes are not what was written. ``wear``: the next start mends it. ``note``: good to know."""

    damage = "damage"
    wear = "wear"
    note = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found, where, and what to do about it. ``at`` is a byte, -1 if it is the whole file."""

    gravity: Gravity
    file: str
    at: int
    what: str
    do: str
    log: str = ""
    ledger: int = -1
    entry: int = -1
    first_offset: int = -1
    last_offset: int = -1


@dataclass(frozen=True, slots=True)
class Report:
    """What ``verify`` looked at and found. ``live`` says that a broker had the directory open.

    ``data`` is the directory, or where the metadata of a cluster are.
    """

    data: str
    live: bool
    logs: int
    ledgers: int
    entries: int
    bytes: int
    findings: tuple[Finding, ...]
    open: int = 0
    """Ledgers of a cluster that are open, and were left out."""
    left_out: int = 0
    """Ledgers of which only the size was looked at, past the bytes that were to be read."""

    @property
    def is_whole(self) -> bool:
        return not any(finding.gravity is Gravity.damage for finding in self.findings)


@dataclass(slots=True)
class _Tally:
    root: Path
    live: bool
    logs: int = 0
    ledgers: int = 0
    entries: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    metadata_is_whole: bool = True
    tiering: Tiering | None = None
    """Tiered storage, where any ledger lies there or anything is to be deleted there."""
    cursors: dict[str, CursorInfo] = field(default_factory=dict)
    """Those whose state lies in a ledger."""
    most_bytes: int | None = None
    left_out: int = 0

    def is_too_much(self, size: int) -> bool:
        """Return whether so many bytes more are past what is to be read."""
        return self.most_bytes is not None and self.bytes + size > self.most_bytes

    def add(self, gravity: Gravity, file: Path, at: int, what: str, do: str, **where: int | str) -> None:
        self.findings.append(Finding(gravity, str(file), at, what, do, **where))  # type: ignore[arg-type]


def verify(data: Path, most_bytes: int | None = None) -> Report:
    """Check every frame, header, index and journal round, the metadata, and that entries and offsets are continuous.

    Past ``most_bytes`` of ledgers, of the others only the files' sizes are looked at, and of those in tiered storage
    nothing.
    """
    if not (data / "metadata.sqlite").exists():
        raise NotThere(
            f"{data} is no data directory: it has no metadata.sqlite",
            "Name the one 'magnetar standalone --data' was given.",
        )
    with _held(data) as live:
        tally = _Tally(data, live, most_bytes=most_bytes)
        logs = _metadata(tally)
        known: set[Path] = set()
        if most_bytes is None:
            tally.tiering = tiering_of(data, logs)
        for name, info in logs.items():
            _log(tally, name, info, known)
        _states(tally, known)
        if not live and tally.metadata_is_whole:  # otherwise nobody knows what refers to them
            _strangers(tally, known)
    return Report(
        str(data),
        live,
        tally.logs,
        tally.ledgers,
        tally.entries,
        tally.bytes,
        tuple(tally.findings),
        left_out=tally.left_out,
    )


@contextmanager
def _held(data: Path) -> Iterator[bool]:
    """Keep brokers out, unless one is in; tell whether one is."""
    try:
        lock = DirectoryLock(data)
    except DirectoryInUse:
        yield True
        return
    try:
        yield False
    finally:
        lock.release()


# -- metadata and journal ----------------------------------------------------------------------------------------------


def _metadata(tally: _Tally) -> dict[str, ManagedLedgerInfo]:
    """Check the metadata store and the journal; give the managed ledgers by their paths."""
    file = tally.root / "metadata.sqlite"
    do = "restore metadata.sqlite and its seal from a copy"
    if not tally.live:
        _seal(tally, file, do)
    found: dict[str, ManagedLedgerInfo] = {}
    clean_use = None
    try:
        store = SqliteFile(file, read_only=True)
        try:
            store.check()
            clean_use = clean_use_of(store)
            nodes = list(store.scan(ROOT + "/"))
        finally:
            store.close()
    except MetadataError as error:
        if isinstance(error, RowsMismatch):
            do += f"; each row is whole, and '{REPAIR} --drop-damaged' takes those that are there"
        tally.add(Gravity.damage, file, -1, str(error), do)
        tally.metadata_is_whole = False
        return found
    for path, stored in nodes:
        try:
            if is_managed_ledger(path):
                found[path] = decode_info(stored.value, name=path)
            else:
                cursor = decode_cursor(stored.value, name=path)
                if cursor.ledger_id >= 0:
                    tally.cursors[path] = cursor
        except LedgerCorrupt as error:
            tally.add(Gravity.damage, file, -1, str(error), do)
    if not tally.live:
        _journal(tally, clean_use or 0)
    return found


def _seal(tally: _Tally, database: Path, do: str) -> None:
    path = database.with_name(database.name + ".seal")
    wal = database.with_name(database.name + "-wal")
    try:
        seal = decode_seal(path.read_bytes()[:64], str(path))
    except FileNotFoundError:
        tally.add(Gravity.damage, path, -1, "the metadata's seal is gone", do)
        return
    except MetadataCorrupt as error:
        tally.add(Gravity.damage, path, 0, str(error), do)
        return
    left_open = wal.exists() and wal.stat().st_size
    if seal.size and not left_open and (seal.size, seal.crc) != (database.stat().st_size, file_crc(database)):
        tally.add(Gravity.damage, database, -1, "its bytes changed while no broker had it open", do)


def _journal(tally: _Tally, clean_use: int) -> None:
    folder = journal_folder(tally.root)
    for path in sorted([*folder.glob("*.journal"), *folder.glob("worker-*/*.journal")]):
        if path.parent != folder:
            clean_use = 0  # a worker's is removed when nothing of it is needed
        try:
            use, rounds = journaled(memoryview(path.read_bytes()), path, clean_use=clean_use)
            records = sum(1 for _ in records_of(rounds, path)) if use > clean_use else 0
        except LedgerCorrupt as error:
            do = f"what is not in the ledgers yet may be lost: '{REPAIR} --drop-damaged' goes on without it"
            tally.add(Gravity.damage, path, error.at, str(error), do)
            continue
        if records:
            what = f"{records} appends will be written to their ledgers again"
            tally.add(Gravity.note, path, 0, what, "nothing: the next start does it")


# -- ledgers -----------------------------------------------------------------------------------------------------------


def _log(tally: _Tally, name: str, info: ManagedLedgerInfo, known: set[Path]) -> None:
    tally.logs += 1
    lost = lost_ranges(info)
    due = info.ledgers[0].first_offset if info.ledgers else 0
    if info.compacted is not None:
        copies = info.compacted.ledger
        known |= {ledger_path(tally.root, copies.ledger_id), index_path(tally.root, copies.ledger_id)}
        _copies(tally, name, info, copies)
    for summary in info.ledgers:
        path = ledger_path(tally.root, summary.ledger_id)
        if summary.offload is not None and summary.offload.complete:
            if tally.most_bytes is None:
                _offloaded(tally, name, summary)
            else:
                tally.left_out += 1
        if summary.compacted or summary.offloaded:
            due = summary.last_offset + 1
            continue
        known |= {path, index_path(tally.root, summary.ledger_id)}
        if summary.first_offset != due and (due, summary.first_offset) not in lost:
            what = f"offsets {due} to {summary.first_offset - 1} are missing before it"
            do = "look for the ledger before it in a copy"
            tally.add(Gravity.damage, path, -1, what, do, log=name, ledger=summary.ledger_id)
        due = _ledger(tally, name, info, summary, path)


def _offloaded(tally: _Tally, name: str, summary: LedgerSummary) -> None:
    """Check what tiered storage has of a ledger."""
    assert tally.tiering is not None
    where: dict[str, int | str] = {
        "log": name, "ledger": summary.ledger_id,
        "first_offset": summary.first_offset, "last_offset": summary.last_offset,
    }  # fmt: skip
    try:
        entries, size = tally.tiering.check(summary)
    except LedgerCorrupt as error:
        do = (
            "restore the object from a copy of the bucket"
            if summary.offloaded
            else "offload it again: it is here"
        )
        tally.add(Gravity.damage, tally.root, error.at, f"tiered storage: {error}", do, **where)
        return
    except LedgerError as error:
        do = "make it reachable from here: keys for S3 are looked for in the environment"
        tally.add(Gravity.damage, tally.root, -1, f"it cannot be checked: {error}", do, **where)
        return
    if summary.offloaded:
        tally.ledgers, tally.entries, tally.bytes = (
            tally.ledgers + 1,
            tally.entries + entries,
            tally.bytes + size,
        )


def _copies(tally: _Tally, name: str, info: ManagedLedgerInfo, copies: LedgerSummary) -> None:
    """Check a compacted ledger, in which gaps are what is expected."""
    path, findings = ledger_path(tally.root, copies.ledger_id), tally.findings
    tally.findings = []
    _ledger(tally, name, info, copies, path)
    do = "restore the file from a copy"
    if not any(each.compacted for each in info.ledgers):
        do = f"'{REPAIR} --drop-damaged' lets it go: the history is there, and compaction makes a new one"
    for finding in tally.findings:
        if "does not go on with offset" not in finding.what:
            harmful = finding.gravity is Gravity.damage
            findings.append(
                replace(finding, what=f"compacted ledger: {finding.what}", do=do if harmful else finding.do)
            )
    tally.findings = findings


def damage_of_copies(root: Path, name: str, copies: LedgerSummary) -> list[Finding]:
    """Return what is damaged in a compacted ledger beside a whole history."""
    tally = _Tally(root, live=False)
    _copies(tally, name, ManagedLedgerInfo(), copies)
    return [each for each in tally.findings if each.gravity is Gravity.damage]


def _ledger(tally: _Tally, name: str, info: ManagedLedgerInfo, summary: LedgerSummary, path: Path) -> int:
    """Check one ledger and its index; give the offset that the next one must begin with."""
    tally.ledgers += 1
    whole_until = summary.size if summary.sealed else closed_at(info, summary.ledger_id)
    if not path.exists():
        _missing(tally, name, summary, path, needed=bool(whole_until))
        return summary.last_offset + 1 if summary.sealed else summary.first_offset
    size = path.stat().st_size
    if tally.is_too_much(size):
        tally.left_out += 1
        if size < whole_until:
            what = f"{whole_until - size} bytes are missing at its end"
            do = f"restore it, or '{REPAIR} --drop-damaged'"
            tally.add(Gravity.damage, path, size, what, do, log=name, ledger=summary.ledger_id)
        return summary.last_offset + 1 if summary.sealed else summary.first_offset
    with mapped(path) as data:
        try:
            found = inspect(data, summary.ledger_id, summary.first_offset)
        except LedgerCorrupt as error:
            do = "'magnetar migrate packed-offsets' gives it one"
            tally.add(Gravity.damage, path, error.at, str(error), do, log=name, ledger=summary.ledger_id)
            return summary.first_offset
    tally.entries += found.entries
    tally.bytes += found.size
    judge = _Judge(tally, name, summary, path, found, whole_until)
    judge.frames()
    judge.index()
    return summary.last_offset + 1 if summary.sealed else found.next_offset


def _missing(tally: _Tally, name: str, summary: LedgerSummary, path: Path, *, needed: bool) -> None:
    if tally.live or not needed:
        return  # dropped meanwhile, or never written: recovery makes it
    tally.add(
        Gravity.damage, path, -1, "the ledger's file is gone", f"restore it, or '{REPAIR} --drop-damaged'",
        log=name, ledger=summary.ledger_id, first_offset=summary.first_offset, last_offset=summary.last_offset,
    )  # fmt: skip


class _Judge:
    """Says what an inspection means for one ledger."""

    def __init__(
        self,
        tally: _Tally,
        name: str,
        summary: LedgerSummary,
        path: Path,
        found: Inspection,
        whole_until: int,
    ) -> None:
        self._tally = tally
        self._where: dict[str, int | str] = {"log": name, "ledger": summary.ledger_id}
        self._summary = summary
        self._path = path
        self._found = found
        self._whole_until = whole_until

    def frames(self) -> None:
        found, summary = self._found, self._summary
        if not found.header_is_whole and (found.size >= HEADER_BYTES or self._whole_until):
            do = f"'{REPAIR}' writes it again"
            self._say(Gravity.damage, self._path, 0, "the header (bytes 0-31) is damaged", do)
        for damage in found.damages:
            self._damaged(damage)
        for at, entry, due in found.gaps:
            what = f"entry {entry} does not go on with offset {due}"
            self._say(Gravity.damage, self._path, at, what, "report this: it was written so", entry=entry)
        if found.tail < self._whole_until:
            self._end_is_missing()
        elif summary.sealed and (found.tail, found.entries, found.next_offset) != (
            summary.size, summary.entries, summary.last_offset + 1,
        ):  # fmt: skip
            what = f"holds {found.entries} entries, and the metadata knows {summary.entries}"
            self._say(Gravity.damage, self._path, found.tail, what, "restore it from a copy")
        elif found.size > found.tail:
            self._torn_tail()

    def _damaged(self, damage: Damage) -> None:
        first, last = damage.first_lost, damage.next_offset - 1
        count = damage.next_entry - damage.entry
        entries = (
            f"entry {damage.entry}" if count == 1 else f"entries {damage.entry} to {damage.next_entry - 1}"
        )
        self._say(
            Gravity.damage, self._path, damage.at, f"{entries} (bytes {damage.at}-{damage.until - 1}) damaged",
            f"restore the file from a copy, or '{REPAIR} --drop-damaged' gives up offsets {first} to {last}",
            entry=damage.entry, first_offset=first, last_offset=last,
        )  # fmt: skip

    def _end_is_missing(self) -> None:
        found, summary = self._found, self._summary
        last = summary.last_offset if summary.sealed else -1
        words = f"to {last}" if last >= 0 else "on"
        self._say(
            Gravity.damage, self._path, found.tail,
            f"entry {found.entries} and all behind it, up to byte {self._whole_until - 1}, are damaged or gone",
            f"restore the file from a copy, or '{REPAIR} --drop-damaged' gives up offsets {found.next_offset} {words}",
            entry=found.entries, first_offset=found.next_offset, last_offset=last,
        )  # fmt: skip

    def _torn_tail(self) -> None:
        if self._tally.live and not self._summary.sealed:
            return  # being written right now
        size = self._found.size - self._found.tail
        what = f"{size} bytes behind the last entry are none: an append that was never acknowledged"
        gravity = Gravity.damage if self._summary.sealed else Gravity.wear
        self._say(
            gravity, self._path, self._found.tail, what, f"nothing: the next start, or '{REPAIR}', cuts them"
        )

    def index(self) -> None:
        path = self._path.with_suffix(".index")
        do = f"nothing: it is built anew when it is needed, or by '{REPAIR}'"
        try:
            index, _ = SparseIndex.decode(path.read_bytes(), path)
        except FileNotFoundError:
            if self._summary.sealed and not self._tally.live:
                self._say(Gravity.wear, path, -1, "the index of a sealed ledger is gone", do)
            return
        except LedgerCorrupt as error:
            self._say(Gravity.damage, path, 0, str(error), do)
            return
        if not self._agrees(index):
            self._say(Gravity.damage, path, 0, "the index does not fit its ledger", do)

    def _agrees(self, index: SparseIndex) -> bool:
        due = self._found.runs[0].index
        if self._found.damages or index.end > due.end:
            return True  # there is nothing whole to hold it against; the damage has been named
        count = len(index.positions)
        same = all(
            list(getattr(index, name)) == list(getattr(due, name)[:count])
            for name in ("positions", "entry_ids", "offsets", "times")
        )
        same &= self._found.runs[0].bears_out(index)
        if index.end < due.end:
            return same
        return same and (index.entries, index.next_offset, index.max_timestamp) == (
            due.entries, due.next_offset, due.max_timestamp,
        )  # fmt: skip

    def _say(self, gravity: Gravity, file: Path, at: int, what: str, do: str, **more: int | str) -> None:
        self._tally.add(gravity, file, at, what, do, **self._where, **more)


def _states(tally: _Tally, known: set[Path]) -> None:
    """Check the ledgers of cursors, which a broker that runs writes anew all the time."""
    for name, cursor in tally.cursors.items():
        path = ledger_path(tally.root, cursor.ledger_id)
        known |= {path, index_path(tally.root, cursor.ledger_id)}
        if tally.live:
            continue
        try:
            decode_state(read_state(RealDisk(), tally.root, cursor.ledger_id), cursor, name=name)
        except LedgerNotFound:
            what = f"the state of cursor {name} lay in it, and it is gone"
        except (LedgerCorrupt, OSError) as error:
            what = f"the state of cursor {name} cannot be read: {error}"
        else:
            continue
        tally.add(Gravity.damage, path, -1, what, "restore the file from a copy, or end the subscription")


def _strangers(tally: _Tally, known: set[Path]) -> None:
    """Name files that nothing refers to: a crash came between a deletion and its end."""
    for path in sorted((tally.root / "ledgers").glob("*/*")):
        if path not in known:
            what = f"no topic refers to these {path.stat().st_size} bytes"
            tally.add(Gravity.wear, path, -1, what, f"'{REPAIR}' deletes them")
    if tally.tiering is None:
        return
    try:
        for each in tally.tiering.strangers():
            what = f"no topic refers to this object of {each.found.size} bytes: {each.name}"
            tally.add(Gravity.wear, tally.root, -1, what, f"'{REPAIR}' deletes it", ledger=0)
    except LedgerError as error:
        do = "make it reachable from here: keys for S3 are looked for in the environment"
        tally.add(Gravity.note, tally.root, -1, f"what lies in tiered storage cannot be listed: {error}", do)


def tiering_of(data: Path, logs: Mapping[str, ManagedLedgerInfo]) -> Tiering | None:
    """Return the tiered storage that these logs use; None where they use none."""
    try:
        with closing(SqliteFile(data / "metadata.sqlite", read_only=True)) as store:
            notes = [stored.value for _, stored in store.scan(DELETIONS + "/")]
            cluster = store.get(CLUSTER_ID)
    except MetadataError:
        return None  # which has been told
    if not notes and all(each.offload is None for info in logs.values() for each in info.ledgers):
        return None
    from magnetar.doctor.ledgers_tiers import Tiering

    return Tiering(logs, notes, "" if cluster is None else cluster.value.decode())


@contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    """Return a file's bytes without reading them all at once."""
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            yield memoryview(b"")
            return
        # Not closed here: views of it may be left, and the last one of them closes it.
        yield memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def lost_ranges(info: ManagedLedgerInfo) -> list[tuple[int, int]]:
    """Return the offsets ``[first, next)`` that repairs gave up."""
    words = info.properties.get("lost", "").split(",")
    return [(int(first), int(after)) for first, _, after in (word.partition("-") for word in words) if after]
