"""Mend the data directory of a stopped broker. Nothing whole is ever given up, and nothing damaged without being told.

Without leave only what costs nothing is done: the journal is replayed, torn tails are cut, headers and indexes
written again, forgotten files deleted. ``drop_damaged`` also gives up damaged entries: what is whole behind them moves
to ledgers of its own, offsets stay as they are, and the offsets that are lost are reported and noted in the metadata.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from magnetar.admin.errors import AdminError
from magnetar.doctor.ledgers import Finding, Gravity, damage_of_copies, mapped, tiering_of, verify
from magnetar.ledger.errors import LedgerCorrupt, LedgerError
from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.files.ids import take_ids
from magnetar.ledger.files.inspection import Inspection, Run, frames, inspect
from magnetar.ledger.files.recovery import closed_at, describe, kept_index
from magnetar.ledger.formats.info import ROOT, ManagedLedgerInfo, decode_info, encode_info, is_managed_ledger
from magnetar.ledger.formats.layout import (
    FRAME_BYTES,
    HEADER_BYTES,
    encode_header,
    frame_head,
    index_path,
    ledger_path,
)
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.ledger.port import LedgerSummary
from magnetar.metadata import MetadataError, RowsMismatch, SqliteFile, SqliteStore
from magnetar.records.entry import decode_entry, latest_timestamp


@dataclass(frozen=True, slots=True)
class RepairAction:
    """One thing that was done to one file. Offsets are those that are lost by it, -1 for none."""

    file: str
    at: int
    what: str
    log: str = ""
    ledger: int = -1
    lost_first: int = -1
    lost_last: int = -1


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done, and what is still wrong."""

    data: str
    actions: tuple[RepairAction, ...]
    left: tuple[Finding, ...]

    @property
    def lost(self) -> tuple[RepairAction, ...]:
        return tuple(action for action in self.actions if action.lost_first >= 0)


def repair(data: Path, *, drop_damaged: bool = False) -> Repair:
    """Mend what ``verify`` finds. Raises `AdminError` while a broker runs, or where the metadata itself is damaged."""
    before = verify(data)
    if before.live:
        raise AdminError(f"{data} is in use by a broker", "Stop the broker first.")
    if before.is_whole and not before.findings:
        return Repair(str(data), (), ())
    if drop_damaged and (taken := _take_rows(data)):
        # Where rows are missing, the files they named are all that is left of them: this run deletes none.
        return Repair(str(data), (taken,), verify(data).findings)
    try:
        store = SqliteStore(data / "metadata.sqlite")
    except RowsMismatch as error:
        raise AdminError(
            f"the metadata is not what it was: {error}",
            "Restore it from a copy; or --drop-damaged takes the rows that are there, each of which is whole.",
        ) from error
    except MetadataError as error:
        raise AdminError(f"the metadata cannot be mended: {error}", "Restore it from a copy.") from error
    try:
        mender = _Mender(data, store, drop_damaged=drop_damaged)
        mender.run(before.findings)
    except LedgerError as error:
        raise AdminError(str(error)) from error
    finally:
        store.blocking.close()
    return Repair(str(data), tuple(mender.actions), verify(data).findings)


def _take_rows(data: Path) -> RepairAction | None:
    """Take the metadata's rows as they are, where they are whole and only do not add up to those of the last commit."""
    file = data / "metadata.sqlite"
    try:
        SqliteFile(file).close()
    except RowsMismatch:
        SqliteFile(file, takes_rows=True).close()
        return RepairAction(
            str(file), -1, "its rows were taken as they are: each is whole, though some may be missing"
        )
    except MetadataError:
        pass
    return None


class _Mender:
    def __init__(self, data: Path, store: SqliteStore, *, drop_damaged: bool) -> None:
        self.actions: list[RepairAction] = []
        self._data = data
        self._store = store.blocking
        self._disk = RealDisk()
        self._engine = FilesEngine(data, store, self._disk)
        self._drop = drop_damaged

    def run(self, findings: tuple[Finding, ...]) -> None:
        self._journal(findings)
        for path, stored in list(self._store.scan(ROOT + "/")):
            if is_managed_ledger(path):
                self._log(path, decode_info(stored.value, name=path), stored.version)
        for finding in findings:
            if finding.gravity is Gravity.wear and not finding.log and Path(finding.file) != self._data:
                Path(finding.file).unlink(missing_ok=True)
                self._did(finding.file, 0, "deleted: nothing referred to it")

        self._tiers()

    def _tiers(self) -> None:
        """Delete what nothing refers to from tiered storage; what is noted to be deleted a broker deletes."""
        nodes = [(path, stored) for path, stored in self._store.scan(ROOT + "/") if is_managed_ledger(path)]
        logs = {path: decode_info(stored.value, name=path) for path, stored in nodes}
        tiering = tiering_of(self._data, logs)
        for each in () if tiering is None else tiering.delete_strangers():
            self._did(each.name, 0, "deleted: nothing referred to it")

    def _journal(self, findings: tuple[Finding, ...]) -> None:
        damaged = [
            each for each in findings if each.file.endswith(".journal") and each.gravity is Gravity.damage
        ]
        if damaged and not self._drop:
            return  # neither may it be replayed in part, nor forgotten, without leave
        for finding in damaged:
            path = Path(finding.file)
            path.rename(path.with_suffix(".damaged"))
            self._did(path, finding.at, "put aside: appends that were only in it are lost")
        asyncio.run(self._engine.start())

    def _log(self, name: str, info: ManagedLedgerInfo, version: int) -> None:
        before = encode_info(info)
        self._compacted(name, info)
        end = _end_of(self._data, info)
        kept: list[LedgerSummary] = []
        cuts: list[tuple[Path, int]] = []
        for summary in info.ledgers:
            elsewhere = summary.compacted or summary.offloaded
            kept += [summary] if elsewhere else self._ledger(name, info, summary, cuts)
        info.ledgers = kept
        if encode_info(info) == before:
            return
        info.properties["next_offset"] = str(max(end, int(info.properties.get("next_offset", 0))))
        self._store.put(name, encode_info(info), version)
        for path, size in cuts:  # only now that nothing refers to what is cut
            self._cut(path, size)

    def _compacted(self, name: str, info: ManagedLedgerInfo) -> None:
        """Let go of a damaged compacted ledger where the history is whole beside it: compaction makes a new one."""
        compacted = info.compacted
        if compacted is None or not self._drop or any(each.compacted for each in info.ledgers):
            return
        tally = damage_of_copies(self._data, name, compacted.ledger)
        if tally:
            info.compacted = None
            path = ledger_path(self._data, compacted.ledger.ledger_id)
            path.unlink(missing_ok=True)
            index_path(self._data, compacted.ledger.ledger_id).unlink(missing_ok=True)
            self._did(path, tally[0].at, "let go: the history that it was made of is all there", log=name)

    def _ledger(
        self, name: str, info: ManagedLedgerInfo, summary: LedgerSummary, cuts: list[tuple[Path, int]]
    ) -> list[LedgerSummary]:
        """Mend one ledger; give what stands in its place."""
        path = ledger_path(self._data, summary.ledger_id)
        whole_until = summary.size if summary.sealed else closed_at(info, summary.ledger_id)
        if not path.exists():
            return self._gone(name, info, summary, path, needed=bool(whole_until))
        with mapped(path) as data:
            found = inspect(data, summary.ledger_id, summary.first_offset)
            is_damaged = bool(found.damages) or found.tail < whole_until
            if not found.header_is_whole and (found.size >= HEADER_BYTES or whole_until):
                self._write_header(name, summary, path)
            if not is_damaged:
                self._tail_and_index(name, summary, path, found)
                return [summary]
            if not self._drop:
                return [summary]
            parts = [(run, self._moved(summary, run, data)) for run in found.runs[1:]]
        return self._without_damage(name, info, summary, path, found, whole_until, parts, cuts)

    def _without_damage(
        self, name: str, info: ManagedLedgerInfo, summary: LedgerSummary, path: Path, found: Inspection,
        whole_until: int, parts: list[tuple[Run, LedgerSummary]], cuts: list[tuple[Path, int]],
    ) -> list[LedgerSummary]:  # fmt: skip
        """Seal what is whole before the damage, and list what was moved behind it."""
        after = summary.last_offset + 1 if summary.sealed else -1
        for damage in found.damages:
            self._lose(name, info, summary, path, damage.at, damage.first_lost, damage.next_offset)
        if found.tail < whole_until:
            index, _ = kept_index(self._disk, self._data, summary)
            after = max(after, index.next_offset)
            self._lose(name, info, summary, path, found.tail, found.next_offset, after)
        first = found.runs[0].index
        cuts.append((path, first.end))
        self._disk.replace({index_path(self._data, summary.ledger_id): first.encode()})
        describe(summary, first)
        return [summary, *(moved for _, moved in parts)]

    def _lose(
        self, name: str, info: ManagedLedgerInfo, summary: LedgerSummary, path: Path, at: int, first: int, after: int
    ) -> None:  # fmt: skip
        if after <= first:
            self._did(
                path, at, "cut: how many offsets it held is unknown", name, summary.ledger_id, first, first
            )
            return
        self._did(
            path, at, f"offsets {first} to {after - 1} given up", name, summary.ledger_id, first, after - 1
        )
        lost = info.properties.get("lost", "")
        info.properties["lost"] = f"{lost},{first}-{after}".lstrip(",")

    def _moved(self, summary: LedgerSummary, run: Run, data: memoryview) -> LedgerSummary:
        """Copy a run of whole entries into a ledger of its own, where their ids begin at 0."""
        (ledger_id,) = take_ids(self._store, 1)
        path = ledger_path(self._data, ledger_id)
        index = SparseIndex(ledger_id, run.first_offset)
        file = self._disk.open(path, create=True)
        try:
            file.write([encode_header(ledger_id, summary.created_ms)], 0)
            whole = frames(data, summary.ledger_id, run.start, run.first_entry, run.index.end)
            for entry_id, frame in enumerate(whole):
                head = frame_head(ledger_id, entry_id, bytes(frame.entry), [], len(frame.entry))
                file.write([head], index.end)
                index.add(FRAME_BYTES + len(frame.entry), *_counted(frame.entry))
            file.sync()
        finally:
            file.close()
        self._disk.replace({index_path(self._data, ledger_id): index.encode()})
        moved = LedgerSummary(ledger_id, run.first_offset, created_ms=summary.created_ms)
        describe(moved, index)
        self._did(
            path, 0, f"made of what is whole behind the damage in ledger {summary.ledger_id}", "", ledger_id
        )
        return moved

    def _gone(
        self, name: str, info: ManagedLedgerInfo, summary: LedgerSummary, path: Path, *, needed: bool
    ) -> list[LedgerSummary]:
        if not needed or not self._drop:
            return [summary]
        index, _ = kept_index(self._disk, self._data, summary)
        after = max(summary.last_offset + 1, index.next_offset)
        self._lose(name, info, summary, path, 0, summary.first_offset, after)
        return []

    def _write_header(self, name: str, summary: LedgerSummary, path: Path) -> None:
        file = self._disk.open(path)
        try:
            file.write([encode_header(summary.ledger_id, summary.created_ms)], 0)
            file.sync()
        finally:
            file.close()
        self._did(path, 0, "header written again", name, summary.ledger_id)

    def _tail_and_index(self, name: str, summary: LedgerSummary, path: Path, found: Inspection) -> None:
        if found.size > found.tail:
            self._cut(path, found.tail)
        kept = index_path(self._data, summary.ledger_id)
        due = found.runs[0].index
        try:
            index, snapshot = SparseIndex.decode(kept.read_bytes(), kept)
            if _is_part_of(index, due) and found.runs[0].bears_out(index):
                return
        except FileNotFoundError:
            snapshot = b""
            if not summary.sealed:
                return
        except LedgerCorrupt:
            snapshot = b""
        self._disk.sync([path])
        self._disk.replace({kept: due.encode(snapshot or b"")})
        self._did(kept, 0, "index built anew", name, summary.ledger_id)

    def _cut(self, path: Path, size: int) -> None:
        file = self._disk.open(path)
        try:
            if file.size() == size:
                return
            was = file.size()
            file.truncate(size)
            file.sync()
        finally:
            file.close()
        self._did(path, size, f"{was - size} bytes cut")

    def _did(
        self, file: Path | str, at: int, what: str, log: str = "", ledger: int = -1, first: int = -1, last: int = -1
    ) -> None:  # fmt: skip
        self.actions.append(RepairAction(str(file), at, what, log, ledger, first, last))


def _counted(entry: memoryview) -> tuple[int, int]:
    return decode_entry(entry).message.num_messages_in_batch, latest_timestamp(entry)


def _end_of(data: Path, info: ManagedLedgerInfo) -> int:
    """Return the next offset as well as it can be known: it must never be given out twice."""
    if not info.ledgers:
        return 0
    last = info.ledgers[-1]
    index, _ = kept_index(RealDisk(), data, last)
    path = ledger_path(data, last.ledger_id)
    if not path.exists():
        return max(last.last_offset + 1, index.next_offset)
    with mapped(path) as content:
        found = inspect(content, last.ledger_id, last.first_offset).next_offset
    return max(found, index.next_offset, last.last_offset + 1)


def _is_part_of(index: SparseIndex, due: SparseIndex) -> bool:
    count = len(index.positions)
    return (
        index.end <= due.end
        and index.positions == due.positions[:count]
        and index.offsets == due.offsets[:count]
    )
