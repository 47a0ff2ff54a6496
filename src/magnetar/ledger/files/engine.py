"""The files engine: recovery at the start, one journal and a few threads for all managed ledgers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from magnetar.ledger.disk import Disk
from magnetar.ledger.errors import LedgerCorrupt, LedgerNotFound
from magnetar.ledger.files.journal import Journal, Journaled, journaled, records_of
from magnetar.ledger.files.layout import HEADER_BYTES, check_header, encode_header, index_path, ledger_path
from magnetar.ledger.files.ledger_file import LedgerFile, OpenFiles
from magnetar.ledger.files.managed import FilesManagedLedger, closed_at, describe
from magnetar.ledger.files.sparse import SparseIndex
from magnetar.ledger.files.walk import scan
from magnetar.ledger.info import ROOT, ManagedLedgerInfo, decode_info, encode_info, path_of
from magnetar.ledger.port import LedgerEngine, LedgerPolicy, LedgerSummary, wall_clock_ms
from magnetar.metadata.port import MUST_NOT_EXIST, MetadataStore

T = TypeVar("T")
INLINE_SCAN_BYTES = 1 << 20
_ID_BLOCK = 1000
_IDS = "/ledgers/next-id"
_STATE = "/magnetar/files-engine"  # boot id, and up to which use the journal was clean
_MOST_OPEN_FILES = 1000
_log = logging.getLogger("magnetar.ledger")


def boot_id() -> str:
    """Give what tells one boot of this machine from another: after a new one, unflushed pages are gone."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


class FilesEngine(LedgerEngine):
    """Managed ledgers in files below ``root``. Clock, disk and threads are handed in, so that a test can own them."""

    def __init__(
        self,
        root: Path,
        metadata: MetadataStore,
        disk: Disk,
        *,
        clock: Callable[[], int] = wall_clock_ms,
        boot: Callable[[], str] = boot_id,
        executor: Executor | None = None,
        flush_interval_ms: int = 1000,
    ) -> None:
        self.root = root
        self.metadata = metadata
        self.disk = disk
        self.clock = clock
        self.files = OpenFiles(disk, most=_MOST_OPEN_FILES)
        self._boot = boot
        self._executor = executor or ThreadPoolExecutor(max_workers=4, thread_name_prefix="ledger")
        self._flush_interval_ms = flush_interval_ms
        self._managed: dict[str, FilesManagedLedger] = {}
        self._opening: dict[str, asyncio.Future[FilesManagedLedger]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unflushed: set[Path] = set()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._next_id = self._id_limit = 0
        self._lost_power = False
        self._first_use = 1
        self._journal: Journal | None = None

    @property
    def journal(self) -> Journal:
        """The journal; made when the first append needs it, so that other flush policies never pay for it."""
        if self._journal is None:
            self._journal = Journal(self.root, self.disk, self.in_thread, first_use=self._first_use)
        return self._journal

    async def start(self) -> None:
        stored = self.metadata.get(_STATE)
        boot, _, clean = (stored.value.decode() if stored else f"{self._boot()} 0").partition(" ")
        self._lost_power = boot != self._boot()
        last_use = await self.in_thread(lambda: self._replay(int(clean)))
        self._first_use = max(int(clean), last_use) + 1
        self.metadata.put(_STATE, f"{self._boot()} {max(int(clean), last_use)}".encode())

    # -- recovery ----------------------------------------------------------------------------------------------

    def _replay(self, clean_use: int) -> int:
        """Write again what the journal holds and may be missing from ledgers; give the last use it had."""
        segments = []
        last_use = -1
        for path in self.disk.list(self.root / "journal", "*.journal"):
            file = self.disk.open(path)
            try:
                use, rounds = journaled(memoryview(file.read(file.size(), 0)), path)
            finally:
                file.close()
            last_use = max(last_use, use)
            if use > clean_use and rounds:
                segments.append((use, path, rounds))
        if segments:
            self._write_again([(path, rounds) for _, path, rounds in sorted(segments, key=lambda s: s[0])])
        return last_use

    def _write_again(self, segments: list[tuple[Path, list[memoryview]]]) -> None:
        known = self._known_ledgers()
        paths: dict[int, Path] = {}
        for path, rounds in segments:
            for record in records_of(rounds, path):
                if record.ledger_id in known:
                    paths[record.ledger_id] = self._rewrite(record)
        self.files.close()
        self.disk.sync(paths.values())
        _log.info("journal replayed", extra={"ledgers": len(paths)})

    def _rewrite(self, record: Journaled) -> Path:
        path = ledger_path(self.root, record.ledger_id)
        try:
            file = self.files.get(path)
        except FileNotFoundError:  # its folder entry was lost with the power
            LedgerFile.create(self.disk, path, record.ledger_id, self.clock())
            file = self.files.get(path)
        if record.at == HEADER_BYTES and file.read(HEADER_BYTES, 0).strip(b"\0") == b"":
            file.write([encode_header(record.ledger_id, self.clock())], 0)
        file.write([record.frame], record.at)
        return path

    def _known_ledgers(self) -> set[int]:
        return {
            summary.ledger_id
            for path, stored in self.metadata.scan(ROOT + "/")
            for summary in decode_info(stored.value, name=path).ledgers
        }

    async def open(self, name: str, policy: LedgerPolicy) -> FilesManagedLedger:
        managed = self._managed.get(name)
        if managed is None:
            opening = self._opening.get(name)
            if opening is None:
                opening = self._opening[name] = asyncio.ensure_future(self._open(name, policy))
                opening.add_done_callback(lambda _: self._opening.pop(name, None))
            managed = await asyncio.shield(opening)
        managed.policy = policy
        return managed

    async def _open(self, name: str, policy: LedgerPolicy) -> FilesManagedLedger:
        stored = self.metadata.get(path_of(name))
        info = decode_info(stored.value, name=name) if stored else ManagedLedgerInfo()
        managed = FilesManagedLedger(self, name, policy, info)
        version = (
            stored.version if stored else self.metadata.put(path_of(name), encode_info(info), MUST_NOT_EXIST)
        )
        last = None
        for summary in info.ledgers:
            if not summary.sealed:
                last = await self._recover(name, info, summary)
                if summary is not info.ledgers[-1]:
                    describe(summary, last)
                    last = None
        managed.adopt(version, last)
        managed.adopt_attachment(await self.in_thread(lambda: self._newest_attachment(info.ledgers)))
        self._managed[name] = managed
        return managed

    async def _recover(self, name: str, info: ManagedLedgerInfo, summary: LedgerSummary) -> LedgerFile:
        """Find out how far a ledger's file is whole, and cut what is not."""
        index = self._kept_index(summary)
        path = ledger_path(self.root, summary.ledger_id)

        def recover() -> None:
            try:
                file = self.disk.open(path)
            except FileNotFoundError:
                if index.entries or closed_at(info, summary.ledger_id):
                    raise LedgerCorrupt(
                        f"{path}: the file of ledger {summary.ledger_id} of {name} is gone"
                    ) from None
                LedgerFile.create(self.disk, path, summary.ledger_id, summary.created_ms)
                file = self.disk.open(path)
            try:
                whole_until = max(index.end if index.entries else 0, closed_at(info, summary.ledger_id))
                head = file.read(HEADER_BYTES, 0)
                if len(head) < HEADER_BYTES and not whole_until:
                    file.write([encode_header(summary.ledger_id, summary.created_ms)], 0)
                else:
                    check_header(head, summary.ledger_id, path)
                end = scan(file, index, path, whole_until=whole_until, may_have_holes=self._lost_power)
                if end < file.size():
                    _log.warning(
                        "torn tail cut", extra={"file": str(path), "at": end, "bytes": file.size() - end}
                    )
                    file.truncate(end)
            finally:
                file.close()

        await self.in_thread(recover)
        return self.ledger_file(summary.ledger_id, summary.first_offset, index)

    def _kept_index(self, summary: LedgerSummary) -> SparseIndex:
        """Give the checkpoint of a ledger, or an empty index where there is none or it is damaged (it can be rebuilt)."""
        path = index_path(self.root, summary.ledger_id)
        try:
            index, _ = SparseIndex.decode(self._whole(path), path)
        except FileNotFoundError:
            return SparseIndex(summary.ledger_id, summary.first_offset)
        except LedgerCorrupt as error:
            _log.warning("index rebuilt", extra={"reason": str(error)})
            return SparseIndex(summary.ledger_id, summary.first_offset)
        return index

    def _newest_attachment(self, ledgers: list[LedgerSummary]) -> bytes:
        for summary in reversed(ledgers[-3:]):
            path = index_path(self.root, summary.ledger_id)
            try:
                return SparseIndex.decode(self._whole(path), path)[1]
            except (FileNotFoundError, LedgerCorrupt):
                continue
        return b""

    def _whole(self, path: Path) -> bytes:
        file = self.disk.open(path)
        try:
            return file.read(file.size(), 0)
        finally:
            file.close()

    async def open_sealed(self, summary: LedgerSummary) -> LedgerFile:
        """Give a sealed ledger to read from, its index read, or rebuilt where it is missing or damaged."""
        index = self._kept_index(summary)
        if index.end < summary.size:
            path = ledger_path(self.root, summary.ledger_id)

            def rebuild() -> None:
                try:
                    file = self.disk.open(path)
                except FileNotFoundError:
                    raise LedgerNotFound(f"{path}: the file of a sealed ledger is gone") from None
                try:
                    check_header(file.read(HEADER_BYTES, 0), summary.ledger_id, path)
                    scan(file, index, path, whole_until=summary.size, may_have_holes=False)
                finally:
                    file.close()

            await self.in_thread(rebuild)
        return self.ledger_file(summary.ledger_id, summary.first_offset, index)

    # -- what managed ledgers ask of their engine --------------------------------------------------------------

    def ledger_file(self, ledger_id: int, first_offset: int, index: SparseIndex | None = None) -> LedgerFile:
        return LedgerFile(
            self.root, self.files, index or SparseIndex(ledger_id, first_offset), self.in_thread
        )

    def new_ledger_id(self) -> int:
        """Give an id that no ledger ever had; ids are taken from the metadata store in blocks."""
        if self._next_id == self._id_limit:
            stored = self.metadata.get(_IDS)
            self._next_id = int(stored.value) if stored else 0
            self._id_limit = self._next_id + _ID_BLOCK
            self.metadata.put(_IDS, str(self._id_limit).encode())
        self._next_id += 1
        return self._next_id - 1

    def in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a blocking call away from the loop."""
        return asyncio.get_running_loop().run_in_executor(self._executor, call)

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` beside everything else; ``close`` waits for it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("keeping an index failed; recovery will read more", exc_info=task.exception())

    def remove_later(self, ledger_ids: list[int]) -> None:
        """Delete the files of ledgers that nothing refers to any more."""
        paths = [path(self.root, each) for each in ledger_ids for path in (ledger_path, index_path)]
        for path in paths:
            self.files.forget(path)

        async def remove() -> None:
            await self.in_thread(lambda: [self.disk.remove(path) for path in paths])

        if paths:
            self.background(remove())

    def flush_soon(self, path: Path) -> None:
        """Have a ledger's file flushed with the next tick of ``flush_interval_ms``."""
        self._unflushed.add(path)
        if self._flush_timer is None:
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(self._flush_interval_ms / 1000, self._flush)

    def _flush(self) -> None:
        paths, self._unflushed, self._flush_timer = self._unflushed, set(), None

        async def flush() -> None:
            await self.in_thread(lambda: self.disk.sync(sorted(paths)))

        self.background(flush())

    # -- the end -----------------------------------------------------------------------------------------------

    async def delete(self, name: str) -> None:
        managed = self._managed.pop(name, None)
        stored = self.metadata.get(path_of(name))
        if stored is None:
            return
        ids = [summary.ledger_id for summary in decode_info(stored.value, name=name).ledgers]
        if managed is not None:
            ids = managed.abandon()
        self.metadata.delete(path_of(name))
        self.remove_later(ids)

    def opened(self) -> list[FilesManagedLedger]:  # type: ignore[override]
        return list(self._managed.values())

    async def close(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush()
        if self._journal is not None:
            await self._journal.close()
        for managed in list(self._managed.values()):
            await managed.close()
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        use = (
            self._journal.use
            if self._journal is not None and self._journal.failed is None
            else self._first_use - 1
        )
        self.metadata.put(_STATE, f"{self._boot()} {use}".encode())
        self.files.close()
        self._executor.shutdown()
