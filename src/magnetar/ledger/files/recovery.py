"""Recovery of one managed ledger: how far its files are whole, and what of it is still one continuous log.

Only ledgers that were not sealed are read; each from its last index on. A torn tail is cut: nobody was told of it. If
a power loss took the end of a ledger that had never been flushed, later ledgers cannot follow it any more and are
deleted, too, with a warning that names the offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound
from magnetar.ledger.files.disk import Disk, File
from magnetar.ledger.files.ledger_file import LedgerFile, as_storage_error
from magnetar.ledger.files.walk import scan
from magnetar.ledger.formats.info import ManagedLedgerInfo
from magnetar.ledger.formats.layout import HEADER_BYTES, check_header, encode_header, index_path, ledger_path
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.ledger.port import LedgerSummary

_log = logging.getLogger("magnetar.ledger")
_MAX_INDEXES = 3  # so many of the newest ledgers are asked for the owner's snapshot


class Recovery:
    """Runs away from the event loop. Afterwards ``info`` says what is left.

    ``last`` is the index of the open ledger, ``checked`` the bytes and entries of it that its index file covers,
    ``kept`` the newest index file (ledger id, end, snapshot),
    ``changed`` tells that the metadata must be written, and ``dropped`` which ledgers' files may go after that;
    ``is_lazy`` that the open ledger's end may only be in the page cache, ``may_have_lost`` that it may have had entries
    which the power took: others must not get their places, for cursors and clients may name them.
    """

    def __init__(
        self,
        disk: Disk,
        root: Path,
        name: str,
        info: ManagedLedgerInfo,
        *,
        replayed: Mapping[int, int],
        may_have_holes: bool,
        durable: bool,
        boot: str,
    ) -> None:
        self.last: SparseIndex | None = None
        self.checked = 0, 0
        self.kept: tuple[int, int, bytes] | None = None
        self.changed = self.is_lazy = self.may_have_lost = False
        self.dropped: list[int] = []
        self._disk = disk
        self._root = root
        self._name = name
        self._info = info
        self._replayed = replayed
        self._may_have_holes = may_have_holes
        self._durable = durable
        self._boot = boot

    def run(self) -> None:
        """Recover every ledger that is not sealed; raise ``LedgerCorrupt`` if one is damaged."""
        try:
            for summary in [each for each in self._info.ledgers if not each.sealed]:
                if summary in self._info.ledgers:
                    self._recover(summary)
            self._find_snapshot()
        except OSError as error:
            raise as_storage_error(error) from error

    def _recover(self, summary: LedgerSummary) -> None:
        index, snapshot = kept_index(self._disk, self._root, summary, self._boot)
        if snapshot is not None:
            self.kept = (summary.ledger_id, index.end, snapshot)
        self.checked = index.end, index.entries
        self._read_on(summary, index)
        if summary is self._info.ledgers[-1]:
            self.last = index
            return
        following = self._info.ledgers[self._info.ledgers.index(summary) + 1]
        if following.first_offset == index.next_offset:
            keep_index(self._disk, self._root, index, snapshot or b"")
            describe(summary, index)
            self.changed = True
        else:
            self._cut_log(summary, index, following)

    def _cut_log(self, summary: LedgerSummary, index: SparseIndex, following: LedgerSummary) -> None:
        """Continue with a ledger that lost its end, without the later ones."""
        path = ledger_path(self._root, summary.ledger_id)
        if not self._may_have_holes:
            raise LedgerCorrupt(
                f"{path}: ends with offset {index.next_offset - 1} at byte {index.end}, but ledger "
                f"{following.ledger_id} goes on with {following.first_offset}; see 'magnetar ledger repair'"
            )
        ledgers = self._info.ledgers
        dropped = ledgers[ledgers.index(following) :]
        ledgers[:] = ledgers[: ledgers.index(following)]
        _log.warning(
            "what was never flushed is lost with the power",
            extra={
                "log": self._name,
                "from_offset": index.next_offset,
                "ledgers": [x.ledger_id for x in dropped],
            },
        )
        self._info.properties["next_offset"] = str(index.next_offset)
        self.last, self.changed = index, True
        self.dropped = [each.ledger_id for each in dropped]

    def _read_on(self, summary: LedgerSummary, index: SparseIndex) -> None:
        """Add the file's entries after ``index``, and cut what is not whole."""
        path = ledger_path(self._root, summary.ledger_id)
        closed = closed_at(self._info, summary.ledger_id)
        replayed = self._replayed.get(summary.ledger_id, 0)
        whole_until = max(index.end if index.entries else 0, closed, replayed)
        durable_until = max(index.flushed.end if index.flushed.entries else 0, closed, replayed)
        file = self._file(path, summary, must_be_there=bool(whole_until))
        try:
            if index.end == file.size() == closed:
                return
            self.may_have_lost = self._may_have_holes
            end = scan(file, index, path, whole_until=whole_until, may_have_holes=self._may_have_holes)
            if end < file.size():
                extra = {"file": str(path), "at": end, "bytes": file.size() - end}
                _log.warning("torn tail cut", extra=extra)
                file.truncate(end)
            if end <= durable_until:
                return
            if self._durable or summary is not self._info.ledgers[-1]:
                file.sync()  # from here on it is visible, so it must not be lost again
            else:
                self.is_lazy = True
        finally:
            file.close()

    def _file(self, path: Path, summary: LedgerSummary, *, must_be_there: bool) -> File:
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            if must_be_there:
                raise LedgerCorrupt(
                    f"{path}: the file of ledger {summary.ledger_id} of {self._name} is gone"
                ) from None
            LedgerFile.create(self._disk, path, summary.ledger_id, summary.created_ms)
            file = self._disk.open(path)
        head = file.read(HEADER_BYTES, 0)
        due = encode_header(summary.ledger_id, summary.created_ms)
        torn = len(head) < HEADER_BYTES or (self._may_have_holes and _is_part_of(head, due))
        try:
            if torn and not must_be_there:
                file.write([due], 0)
            else:
                check_header(head, summary.ledger_id, path)
        except BaseException:
            file.close()
            raise
        return file

    def _find_snapshot(self) -> None:
        """Find the newest snapshot that is left."""
        for summary in reversed(self._info.ledgers[-_MAX_INDEXES:]):
            if self.kept is not None and self.kept[0] == summary.ledger_id:
                return
            index, snapshot = kept_index(self._disk, self._root, summary, self._boot)
            if snapshot is not None:
                self.kept = (summary.ledger_id, index.end, snapshot)
                return


def _is_part_of(found: bytes, due: bytes) -> bool:
    """Return whether only zeros stand where ``found`` is not as it should be: bytes that were never written."""
    return all(byte in (0, right) for byte, right in zip(found, due, strict=True))


def kept_index(
    disk: Disk, root: Path, summary: LedgerSummary, boot: str | None = None
) -> tuple[SparseIndex, bytes | None]:
    """Return a ledger's index and snapshot, as far as they count in ``boot`` (None: this machine's).

    It is an empty one, and None, where it is missing or damaged.
    """
    path = index_path(root, summary.ledger_id)
    try:
        file = disk.open(path)
        try:
            index, snapshot = SparseIndex.decode(file.read(file.size(), 0), path, boot)
        finally:
            file.close()
        if index.ledger_id != summary.ledger_id:
            raise LedgerCorrupt(f"{path}: the index belongs to ledger {index.ledger_id}")
    except FileNotFoundError:
        return SparseIndex(summary.ledger_id, summary.first_offset), None
    except LedgerCorrupt as error:
        _log.warning("index rebuilt", extra={"file": str(path), "reason": str(error)})
        return SparseIndex(summary.ledger_id, summary.first_offset), None
    return index, snapshot


def sealed_index(disk: Disk, root: Path, summary: LedgerSummary) -> SparseIndex:
    """Return the index of a sealed ledger; if it is missing or damaged, rebuild it from the ledger, and store it."""
    index, snapshot = kept_index(disk, root, summary)
    if (index.end, index.entries, index.next_offset) == (
        summary.size,
        summary.entries,
        summary.last_offset + 1,
    ):
        return index
    path = ledger_path(root, summary.ledger_id)
    try:
        file = disk.open(path)
    except FileNotFoundError:
        raise LedgerNotFound(f"{path}: the file of a sealed ledger is gone") from None
    try:
        check_header(file.read(HEADER_BYTES, 0), summary.ledger_id, path)
        index = SparseIndex(summary.ledger_id, summary.first_offset)
        scan(file, index, path, whole_until=summary.size, may_have_holes=False)
    finally:
        file.close()
    keep_index(disk, root, index, snapshot or b"")
    return index


def keep_index(disk: Disk, root: Path, index: SparseIndex, snapshot: bytes) -> None:
    """Store the index of a durable ledger for the next time; if there is no room for it, it is rebuilt then."""
    path = index_path(root, index.ledger_id)
    try:
        disk.replace({path: index.encode(snapshot)})
    except OSError as error:
        _log.warning("index not kept", extra={"file": str(path), "reason": str(error)})


def describe(summary: LedgerSummary, index: SparseIndex) -> None:
    """Fill in the summary of a ledger that will not change any more."""
    summary.entries, summary.size = index.entries, index.end
    summary.last_offset, summary.max_timestamp = index.next_offset - 1, index.max_timestamp
    summary.min_timestamp = index.min_timestamp
    summary.sealed = True


def closed_at(info: ManagedLedgerInfo, ledger_id: int) -> int:
    """Return up to where this ledger's file was whole at the last clean close (0: not known)."""
    ledger, _, end = info.properties.get("closed_at", "").partition(":")
    return int(end) if ledger == str(ledger_id) and end.isdecimal() else 0
