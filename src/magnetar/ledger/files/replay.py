"""Replay: what a journal vouches for is written to its ledgers' files again, which a crash may have lost.

A data directory has one journal, ``journal/*.journal``; where several processes (workers) share the directory, each
has one of its own, ``journal/worker-N/*.journal``. The journal of a dead worker is replayed by the workers' supervisor,
before any other process may write to its ledgers. Then it is removed: nothing of it is needed any more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from pathlib import Path

from magnetar.ledger.files.disk import Disk
from magnetar.ledger.files.journal_rounds import Journaled, journaled, records_of
from magnetar.ledger.files.ledger_file import LedgerFile, OpenFiles
from magnetar.ledger.formats.info import ROOT, decode_info, is_managed_ledger
from magnetar.ledger.formats.layout import HEADER_BYTES, encode_header, is_header, ledger_path
from magnetar.metadata.blocking import BlockingStore
from magnetar.metadata.ops import below

Segments = list[tuple[Path, list[memoryview]]]
"""Journal files and the records of their rounds, in the order in which they were written."""
_MAX_OPEN_FILES = 100
_log = logging.getLogger("magnetar.ledger")


def journal_folder(root: Path, worker: int = 0) -> Path:
    """Return where a journal lies: that of a worker, or with 0 that of a process that has the directory alone."""
    return root / "journal" / f"worker-{worker}" if worker else root / "journal"


def left_by_workers(disk: Disk, root: Path) -> list[Path]:
    """Return the folders of workers' journals that have files."""
    return sorted({path.parent for path in disk.list(root / "journal", "worker-*/*.journal")})


def remove_journal(disk: Disk, folder: Path) -> None:
    """Remove a journal of which nothing is needed any more."""
    for path in disk.list(folder, "*.journal"):
        disk.remove(path)


class JournalReplay:
    """Blocks while the disk works, so it runs away from the event loop."""

    def __init__(self, root: Path, disk: Disk, files: OpenFiles, clock: Callable[[], int]) -> None:
        self.replayed: dict[int, int] = {}
        """By ledger, up to where a journal vouches for its file."""
        self._root = root
        self._disk = disk
        self._files = files
        self._clock = clock
        self._began_s = time.monotonic()

    def read(self, folder: Path, clean_use: int = 0) -> tuple[int, Segments]:
        """Return the last use of a journal, and its records that may be missing from ledgers.

        Uses up to ``clean_use`` are not needed any more. Raises ``LedgerCorrupt``.
        """
        self._began_s = time.monotonic()
        segments = []
        last_use = -1
        for path in self._disk.list(folder, "*.journal"):
            file = self._disk.open(path)
            try:
                use, rounds = journaled(memoryview(file.read(file.size(), 0)), path, clean_use=clean_use)
            finally:
                file.close()
            last_use = max(last_use, use)
            if use > clean_use and rounds:
                segments.append((use, path, rounds))
        return last_use, [(path, rounds) for _, path, rounds in sorted(segments, key=lambda s: s[0])]

    def write_again(self, segments: Segments, known: Collection[int]) -> None:
        """Write what belongs to ``known`` ledgers, durably."""
        written = set()
        size = 0
        for path, rounds in segments:
            for record in records_of(rounds, path):
                if record.ledger_id in known:
                    self._rewrite(record)
                    written.add(record.ledger_id)
                    size += len(record.frames)
        self._files.close()
        self._disk.sync([ledger_path(self._root, ledger_id) for ledger_id in sorted(written)])
        _log.info(
            "journal replayed: %d bytes of %d ledgers in %.2f s, the reading of %d files included",
            size, len(written), time.monotonic() - self._began_s, len(segments),
        )  # fmt: skip

    def _rewrite(self, record: Journaled) -> None:
        path = ledger_path(self._root, record.ledger_id)
        try:
            file = self._files.get(str(path))
        except FileNotFoundError:  # its folder entry was lost with the power
            LedgerFile.create(self._disk, path, record.ledger_id, self._clock())
            file = self._files.get(str(path))
        if record.at == HEADER_BYTES and not is_header(file.read(HEADER_BYTES, 0), record.ledger_id):
            # It was as young as its first frame.
            file.write([encode_header(record.ledger_id, self._clock())], 0)
        # Even where the page cache has these bytes already: after a failed flush it may be all that has them.
        file.write([record.frames], record.at)
        self.replayed[record.ledger_id] = record.at + len(record.frames)


def replay_worker(
    root: Path, worker: int, disk: Disk, metadata: BlockingStore, clock: Callable[[], int]
) -> int:
    """Replay the journal that a worker which is dead has left, and remove it; return how many files it had.

    No other worker may take over the dead one's logs before it returns. Raises ``LedgerCorrupt`` or ``OSError``.
    """
    folder = journal_folder(root, worker)
    files = disk.list(folder, "*.journal")
    if not files:
        return 0
    replay = JournalReplay(root, disk, OpenFiles(disk, most=_MAX_OPEN_FILES), clock)
    _, segments = replay.read(folder)
    if segments:
        replay.write_again(segments, known_ledgers(metadata))
    remove_journal(disk, folder)
    return len(files)


def known_ledgers(metadata: BlockingStore) -> set[int]:
    """Return all ledgers that belong to a managed one; what else a journal names was deleted."""
    return {
        summary.ledger_id
        for path, stored in metadata.scan(below(ROOT))
        if is_managed_ledger(path)
        for summary in decode_info(stored.value, name=path).files()
    }
