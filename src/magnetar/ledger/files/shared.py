"""What all logs of one files engine share: the directory and its disk, one journal, a few threads, open files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

from magnetar.ledger.compaction.workers import CompactionWorkers
from magnetar.ledger.errors import LedgerError
from magnetar.ledger.files.disk import Disk
from magnetar.ledger.files.flushing import Flushing
from magnetar.ledger.files.gathering import Gathering
from magnetar.ledger.files.ids import LedgerIds
from magnetar.ledger.files.journal import Journal
from magnetar.ledger.files.leases import FileLeases
from magnetar.ledger.files.ledger_file import LedgerFile, OpenFiles
from magnetar.ledger.files.recovery import sealed_index
from magnetar.ledger.files.work import EngineWork
from magnetar.ledger.formats.layout import index_path, ledger_path
from magnetar.ledger.formats.sparse import SparseIndex
from magnetar.ledger.leases import Leases
from magnetar.ledger.port import AppendInterceptor, LedgerSummary
from magnetar.ledger.room import Room
from magnetar.ledger.tiers.tiers import Tiers
from magnetar.metadata.port import MetadataStore

_MAX_OPEN_FILES = 1000
_log = logging.getLogger("magnetar.ledger")


class EngineParts:
    """The parts that an engine has once; they know none of the logs."""

    def __init__(
        self,
        root: Path,
        metadata: MetadataStore,
        disk: Disk,
        *,
        clock: Callable[[], int],
        boot: str,
        executor: Executor,
        flush_interval_ms: int,
        interceptors: Sequence[AppendInterceptor],
        leases: Leases | None,
        on_failed: Callable[[LedgerError], None],
        on_written: Callable[[float, int], None],
        journal_folder: Path,
        make_tiers: Callable[[], Tiers],
    ) -> None:
        """``on_failed`` is called once, when nothing can be made durable any more; ``on_written`` is the journal's."""
        self.root = root
        self.journal_folder = journal_folder
        self.metadata = metadata
        self.disk = disk
        self.clock = clock
        self.boot = boot
        self.interceptors = tuple(interceptors)
        self.ids = LedgerIds(metadata)
        self.files = OpenFiles(disk, most=_MAX_OPEN_FILES)
        self.work = EngineWork(executor)
        self.flushing = Flushing(disk, self.work, lambda: self.journal, boot, flush_interval_ms)
        self.gathering = Gathering()
        self.room = Room()
        self.leases = leases or FileLeases(root, self.work.in_thread, clock)
        self.workers = CompactionWorkers(self.work.in_thread)
        self.one_compaction = asyncio.Lock()
        """Held during a compaction: the maps of keys of several must not add up."""
        self.first_use = 1
        """The first use of the journal in this process."""
        self.has_doomed = True
        """Whether there may be objects in tiered storage to delete; at the start that is unknown."""
        self.grace_ms = 0  # the previous writer has ended
        self._make_tiers = make_tiers
        self.counts_cache: tuple[Callable[[int], None], Callable[[], bool]] | None = None
        self.used_tiers: Tiers | None = None
        """Tiered storage, if anything has needed it."""
        self._on_failed = on_failed
        self._on_written = on_written
        self._journal: Journal | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def journal(self) -> Journal:
        """The journal; made when the first append needs it, so that other flush policies never pay for it."""
        if self._journal is None:
            self._journal = Journal(
                self.root,
                self.disk,
                self.work.executor.submit,
                first_use=self.first_use,
                folder=self.journal_folder,
                room=self.room,
                on_failed=self._on_failed,
                on_written=self._on_written,
            )
        return self._journal

    @property
    def begun_journal(self) -> Journal | None:
        """The journal, if anything has needed it."""
        return self._journal

    @property
    def tiers(self) -> Tiers:
        """Tiered storage; created on first use."""
        if self.used_tiers is None:
            self.used_tiers = self._make_tiers()
            if self.counts_cache is not None:
                self.used_tiers.cache.count(*self.counts_cache)
        return self.used_tiers

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop; to ask which one runs is a call of the system each time."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def ledger_file(self, ledger_id: int, first_offset: int, index: SparseIndex | None = None) -> LedgerFile:
        """Return a ledger to append to, or to read from."""
        return LedgerFile(
            self.root, self.files, index or SparseIndex(ledger_id, first_offset), self.work.in_thread
        )

    async def open_sealed(self, summary: LedgerSummary) -> LedgerFile:
        """Return a sealed ledger to read from, its index read, or rebuilt where it is missing or damaged."""
        index = await self.work.in_thread(lambda: sealed_index(self.disk, self.root, summary))
        return self.ledger_file(summary.ledger_id, summary.first_offset, index)

    def remove_later(self, ledger_ids: list[int]) -> None:
        """Delete the files of ledgers that nothing refers to any more."""
        paths = [path(self.root, each) for each in ledger_ids for path in (ledger_path, index_path)]
        for path in paths:
            self.files.forget(str(path))

        def remove() -> None:
            for path in paths:
                try:
                    self.disk.remove(path)
                except OSError as error:
                    _log.warning("a file that nothing refers to any more stays: %s", error)

        async def work() -> None:
            await self.work.in_thread(remove)

        if paths:
            self.work.background(work())
