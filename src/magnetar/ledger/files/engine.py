"""The files engine: recovery at the start, one journal and a few threads for all managed ledgers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from magnetar.ledger.boot import boot_id
from magnetar.ledger.compaction_workers import CompactionWorkers
from magnetar.ledger.cursor_info import decode_cursor
from magnetar.ledger.cursor_keeper import CursorKeeper
from magnetar.ledger.disk import Disk
from magnetar.ledger.errors import LedgerError, metadata_failed
from magnetar.ledger.files.appending import Appender
from magnetar.ledger.files.checkpoints import Checkpoint
from magnetar.ledger.files.compacting import COMPACTING
from magnetar.ledger.files.cursor_ledgers import FilesCursorLedgers
from magnetar.ledger.files.ids import LedgerIds
from magnetar.ledger.files.journal import Journal
from magnetar.ledger.files.journal_rounds import Journaled, journaled, records_of
from magnetar.ledger.files.layout import HEADER_BYTES, encode_header, index_path, is_header, ledger_path
from magnetar.ledger.files.leases import FileLeases
from magnetar.ledger.files.ledger_file import LedgerFile, OpenFiles, as_storage_error
from magnetar.ledger.files.managed import FilesManagedLedger
from magnetar.ledger.files.recovery import Recovery, sealed_index
from magnetar.ledger.files.sparse import SparseIndex
from magnetar.ledger.files.swap import SWAP, finish_swap
from magnetar.ledger.info import (
    ROOT,
    ManagedLedgerInfo,
    decode_info,
    is_managed_ledger,
    path_of,
)
from magnetar.ledger.leases import Leases
from magnetar.ledger.port import (
    AppendInterceptor,
    Done,
    Flush,
    LedgerEngine,
    LedgerPolicy,
    LedgerSummary,
    ManagedLedger,
    wall_clock_ms,
)
from magnetar.metadata.blocking import BlockingStore
from magnetar.metadata.errors import MetadataError, NotEmpty, NotFound
from magnetar.metadata.ops import ANY, MUST_NOT_EXIST, Delete, Put, Stored
from magnetar.metadata.port import MetadataStore

T = TypeVar("T")
_STATE = "/magnetar/files-engine"  # the boot, and up to which use nothing of the journal is needed any more
_MOST_OPEN_FILES = 1000
_DELETED_AT_ONCE = 1000
_log = logging.getLogger("magnetar.ledger")


def clean_use_of(metadata: BlockingStore) -> int:
    """Give up to which use nothing of the journal is needed any more."""
    return _clean_use(metadata.get(_STATE))


def _clean_use(stored: Stored | None) -> int:
    return int(stored.value.decode().rpartition(" ")[2]) if stored else 0


def _ledgers_of(cursors: Mapping[str, Stored]) -> list[int]:
    """Return the ledgers that hold states of cursors."""
    found = []
    for path, stored in cursors.items():
        try:
            found.append(decode_cursor(stored.value, name=path).ledger_id)
        except LedgerError:
            continue  # it goes as it is
    return [each for each in found if each >= 0]


class _Gathering(AbstractContextManager[None]):
    """See `LedgerEngine.gathering`. One for all: what begins within another ends with that."""

    __slots__ = ("_engine", "depth")

    def __init__(self, engine: FilesEngine) -> None:
        self._engine = engine
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *failed: object) -> None:
        if self.depth > 1:
            self.depth -= 1
            return
        engine = self._engine
        if engine.has_gathered:
            engine.write_gathered()
            self.depth = 0
            engine.settle_gathered()
        else:
            self.depth = 0


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
        interceptors: Sequence[AppendInterceptor] = (),
    ) -> None:
        super().__init__()
        self.root = root
        self.metadata = metadata
        self.ids = LedgerIds(metadata)
        self.disk = disk
        self.clock = clock
        self.interceptors = tuple(interceptors)
        self.files = OpenFiles(disk, most=_MOST_OPEN_FILES)
        self.boot = boot()
        self._executor = executor or ThreadPoolExecutor(max_workers=4, thread_name_prefix="ledger")
        self._flush_interval_ms = flush_interval_ms
        self._managed: dict[str, FilesManagedLedger] = {}
        self._opening: dict[str, asyncio.Future[FilesManagedLedger]] = {}
        self._going: dict[str, asyncio.Future[None]] = {}
        """Those that are being let go of, and when they are closed."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._unflushed: set[Path] = set()
        self._flush_timer: asyncio.TimerHandle | None = None
        self._replayed: dict[int, int] = {}  # ledger id -> up to where the journal vouches for its file
        self._first_use = 1
        self._journal: Journal | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gathering = _Gathering(self)
        self.refused: dict[ManagedLedger, LedgerError] = {}
        """The logs that could not be written to within this gathering."""
        self._gathered: list[Appender] = []
        self._to_settle: list[tuple[Done, LedgerError | None]] = []
        self.leases: Leases = FileLeases(root, self.in_thread, clock)
        self.workers = CompactionWorkers(self.in_thread)
        self.cursor_keeper = CursorKeeper(metadata, FilesCursorLedgers(self), clock)
        self.one_compaction = asyncio.Lock()
        """Held by whoever compacts: their maps of keys shall not add up."""

    @property
    def journal(self) -> Journal:
        """The journal; made when the first append needs it, so that other flush policies never pay for it."""
        if self._journal is None:
            self._journal = Journal(self.root, self.disk, self._executor.submit, first_use=self._first_use)
            self._journal.on_failed = lambda error: self.on_failed(error)
        return self._journal

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop; to ask which one runs is a call of the system each time."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    @property
    def failed(self) -> LedgerError | None:
        return None if self._journal is None else self._journal.failed

    async def start(self) -> None:
        if await self.metadata.get(SWAP) is not None:
            # What a migration that was killed left to do.
            await self.in_thread(lambda: finish_swap(self.root, self.metadata.blocking))
        clean_use = _clean_use(await self.metadata.get(_STATE))
        last_use, segments = await self.in_thread(lambda: self._journaled(clean_use))
        if segments:
            known = await self._known_ledgers()
            await self.in_thread(lambda: self._write_again(segments, known))
        last_use = max(clean_use, last_use)
        self._first_use = last_use + 1
        await self._note_clean(last_use)

    async def _note_clean(self, use: int) -> None:
        """Note that nothing of the journal up to ``use`` will be needed again: nobody else has this directory."""
        await self.metadata.commit([Put(_STATE, f"{self.boot} {use}".encode(), ANY)])

    # -- recovery ----------------------------------------------------------------------------------------------

    def _journaled(self, clean_use: int) -> tuple[int, list[tuple[Path, list[memoryview]]]]:
        """Return the last use the journal had, and what it holds that may be missing from ledgers, in order."""
        segments = []
        last_use = -1
        for path in self.disk.list(self.root / "journal", "*.journal"):
            file = self.disk.open(path)
            try:
                use, rounds = journaled(memoryview(file.read(file.size(), 0)), path, clean_use=clean_use)
            finally:
                file.close()
            last_use = max(last_use, use)
            if use > clean_use and rounds:
                segments.append((use, path, rounds))
        return last_use, [(path, rounds) for _, path, rounds in sorted(segments, key=lambda s: s[0])]

    def _write_again(self, segments: list[tuple[Path, list[memoryview]]], known: set[int]) -> None:
        for path, rounds in segments:
            for record in records_of(rounds, path):
                if record.ledger_id in known:
                    self._rewrite(record)
        self.files.close()
        self.disk.sync([ledger_path(self.root, ledger_id) for ledger_id in sorted(self._replayed)])
        _log.info("journal replayed", extra={"ledgers": len(self._replayed)})

    def _rewrite(self, record: Journaled) -> None:
        path = ledger_path(self.root, record.ledger_id)
        try:
            file = self.files.get(path)
        except FileNotFoundError:  # its folder entry was lost with the power
            LedgerFile.create(self.disk, path, record.ledger_id, self.clock())
            file = self.files.get(path)
        if record.at == HEADER_BYTES and not is_header(file.read(HEADER_BYTES, 0), record.ledger_id):
            file.write(
                [encode_header(record.ledger_id, self.clock())], 0
            )  # it was as young as its first frame
        # Even where the page cache has these bytes already: after a failed flush it may be all that has them.
        file.write([record.frames], record.at)
        self._replayed[record.ledger_id] = record.at + len(record.frames)

    async def _known_ledgers(self) -> set[int]:
        return {
            summary.ledger_id
            for path, stored in (await self.metadata.get_tree(ROOT)).items()
            if is_managed_ledger(path)
            for summary in decode_info(stored.value, name=path).files()
        }

    async def open(self, name: str, policy: LedgerPolicy) -> FilesManagedLedger:
        await self._gone(name)
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
        stored = await self.metadata.get(path_of(name))
        info = decode_info(stored.value, name=name) if stored else ManagedLedgerInfo()
        version = stored.version if stored else MUST_NOT_EXIST  # it is written with its first ledger
        managed = FilesManagedLedger(self, name, policy, info, version)
        recovery = Recovery(
            self.disk,
            self.root,
            name,
            info,
            replayed=self._replayed,
            may_have_holes=info.properties.get("boot", self.boot) != self.boot,
            durable=policy.flush is Flush.always,
            boot=self.boot,
        )
        if info.ledgers:
            await self.in_thread(recovery.run)
        last = None
        if recovery.last is not None:
            last = self.ledger_file(recovery.last.ledger_id, 0, recovery.last)
        managed.adopt(last, recovery)
        unfinished = info.properties.pop(COMPACTING, None)
        if unfinished is not None:
            self.remove_later([int(unfinished)])  # what a compaction wrote before a crash ended it
        if recovery.changed:
            await managed.ledger_list.change(lambda info: True)
            self.remove_later(recovery.dropped)
        self._managed[name] = managed
        return managed

    # -- gathering ---------------------------------------------------------------------------------------------

    def gathering(self) -> AbstractContextManager[None]:
        return self._gathering

    @property
    def gathers(self) -> bool:
        """Whether what is appended now is written at the end of a gathering."""
        return self._gathering.depth > 0

    @property
    def has_gathered(self) -> bool:
        """Whether there is something to write."""
        return bool(self._gathered)

    def gather(self, appender: Appender) -> None:
        """Have what is gathered for a log written at the end."""
        self._gathered.append(appender)

    def settle_later(self, done: Done, error: LedgerError | None) -> None:
        """Tell what became of appends when all logs are written: nobody goes on while some are not."""
        self._to_settle.append((done, error))

    def write_gathered(self) -> None:
        """Write what all logs have gathered."""
        while self._gathered:
            appenders, self._gathered = self._gathered, []
            for appender in appenders:
                try:
                    appender.write_gathered()
                except Exception:  # of who was told of it, after it was written
                    _log.exception("a reader failed when it was told of more")
        self.refused = {}

    def settle_gathered(self) -> None:
        """Tell whoever appended what became of it."""
        to_settle, self._to_settle = self._to_settle, []
        for done, error in to_settle:
            try:
                done.settle(error)
            except Exception:
                _log.exception("one that appended failed when it was told what became of it")

    async def open_sealed(self, summary: LedgerSummary) -> LedgerFile:
        """Give a sealed ledger to read from, its index read, or rebuilt where it is missing or damaged."""
        index = await self.in_thread(lambda: sealed_index(self.disk, self.root, summary))
        return self.ledger_file(summary.ledger_id, summary.first_offset, index)

    # -- what managed ledgers ask of their engine --------------------------------------------------------------

    def ledger_file(self, ledger_id: int, first_offset: int, index: SparseIndex | None = None) -> LedgerFile:
        return LedgerFile(
            self.root, self.files, index or SparseIndex(ledger_id, first_offset), self.in_thread
        )

    def in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a blocking call away from the loop."""
        return asyncio.get_running_loop().run_in_executor(self._executor, call)

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` beside everything else; ``close`` waits for it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            known = isinstance(error, LedgerError | MetadataError)
            _log.error("work in the background failed: %s", error, exc_info=None if known else error)

    def remove_later(self, ledger_ids: list[int]) -> None:
        """Delete the files of ledgers that nothing refers to any more."""
        paths = [path(self.root, each) for each in ledger_ids for path in (ledger_path, index_path)]
        for path in paths:
            self.files.forget(path)

        def remove() -> None:
            for path in paths:
                try:
                    self.disk.remove(path)
                except OSError as error:
                    _log.warning("a file that nothing refers to any more stays: %s", error)

        async def work() -> None:
            await self.in_thread(remove)

        if paths:
            self.background(work())

    def flush_soon(self, path: Path) -> None:
        """Have a ledger's file flushed with the next tick of ``flush_interval_ms``."""
        self._unflushed.add(path)
        if self._flush_timer is None:
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(self._flush_interval_ms / 1000, self._flush)

    def _flush(self) -> None:
        paths, self._unflushed, self._flush_timer = sorted(self._unflushed), set(), None
        self.background(self.flush(paths))

    async def flush(self, paths: list[Path]) -> None:
        """Make files durable. After one failure nobody can tell any more what the disk kept: durable appends end."""
        if self.journal.failed is not None:
            raise self.journal.failed  # the next flush would not tell what the failed one has lost
        with self._failing_for_good():
            await self.in_thread(lambda: self.disk.sync(paths))

    def flush_now(self, paths: list[Path]) -> None:
        """Do what ``flush`` does, and let the loop wait for it."""
        with self._failing_for_good():
            self.disk.sync(paths)

    @contextmanager
    def _failing_for_good(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.journal.fail(error)
            raise as_storage_error(error) from error

    async def keep(self, checkpoints: list[Checkpoint]) -> None:
        """Make ledgers durable, then put what is to be kept beside them into their index files."""
        marks = [each.points.mark() for each in checkpoints]
        files = {each.path: each.points.encode(each.snapshot) for each in checkpoints}
        await self.flush([each.ledger for each in checkpoints])
        for each, mark in zip(checkpoints, marks, strict=True):
            each.points.flushed = mark
        await self._put(files)

    async def keep_for_this_boot(self, checkpoint: Checkpoint) -> None:
        """Put what is to be kept into a ledger's index file, and leave it to the system when to flush the ledger."""
        await self._put({checkpoint.path: checkpoint.points.encode(checkpoint.snapshot, boot=self.boot)})

    async def _put(self, files: dict[Path, bytes]) -> None:
        try:
            await self.in_thread(lambda: self.disk.replace(files))
        except OSError as error:
            raise as_storage_error(error) from error

    # -- the end -----------------------------------------------------------------------------------------------

    async def let_go(self, logs: Iterable[ManagedLedger]) -> None:
        some = [
            each for each in map(self._managed.get, (log.name for log in logs)) if each and each.is_unused
        ]
        gone = asyncio.get_running_loop().create_future()
        names = [managed.name for managed in some]
        self._going |= dict.fromkeys(names, gone)
        try:
            if some:
                await self.close_some(some)
        finally:
            for name in names:
                del self._going[name]
            gone.set_result(None)

    async def release(self, name: str) -> None:
        while (opening := self._opening.get(name)) is not None:
            await asyncio.wait([opening])
        await self._gone(name)
        managed = self._managed.get(name)
        if managed is not None:
            await asyncio.shield(self.background(self._end(managed, self._begin_going(name))))

    def drop_lost(self, managed: FilesManagedLedger) -> None:
        """Hold a log no more that another owner took; whoever opens it gets what that one made of it."""
        name = managed.name
        if self._managed.get(name) is managed and name not in self._going:
            self.background(self._end(managed, self._begin_going(name)))

    def _begin_going(self, name: str) -> asyncio.Future[None]:
        gone = self._going[name] = asyncio.get_running_loop().create_future()
        return gone

    async def _end(self, managed: FilesManagedLedger, gone: asyncio.Future[None]) -> None:
        try:
            managed.stop()
            await asyncio.sleep(0)  # what was begun in the background just now takes its locks first
            await managed.ended()
            await self.close_some([managed])
        finally:
            del self._going[managed.name]
            gone.set_result(None)

    async def _gone(self, name: str) -> None:
        """Return when nobody is letting go of it any more."""
        while (going := self._going.get(name)) is not None:
            await asyncio.shield(going)

    async def delete(self, name: str) -> None:
        while (opening := self._opening.get(name)) is not None:
            await asyncio.wait([opening])
        await self._gone(name)
        # It goes on when whoever asked is cancelled: files that nothing refers to any more would stay.
        await asyncio.shield(self.background(self._delete(name, self._begin_going(name))))

    async def _delete(self, name: str, gone: asyncio.Future[None]) -> None:
        managed = self._managed.get(name)
        try:
            if managed is not None:
                await managed.end_cursors()
            if managed is None:
                stored = await self.metadata.get(path_of(name))
                await self._delete_nodes(name)
                ledgers = decode_info(stored.value, name=name).files() if stored is not None else []
                self.remove_later([summary.ledger_id for summary in ledgers])
                return
            async with managed.ledger_list.changing:  # what is being written of it must not come behind
                await self._delete_nodes(name)
                self._managed.pop(name, None)
                managed.abandon()
        except MetadataError as error:
            raise metadata_failed(error) from error
        finally:
            del self._going[name]
            gone.set_result(None)

    async def _delete_nodes(self, name: str) -> None:
        """Delete what the metadata store has of a log: what lies beneath it first, which is cursors."""
        path = path_of(name)
        while True:
            cursors = await self.metadata.get_tree(path)
            below = sorted(cursors, reverse=True)
            for some in (below[at : at + _DELETED_AT_ONCE] for at in range(0, len(below), _DELETED_AT_ONCE)):
                with suppress(NotFound):
                    await self.metadata.commit([Delete(each, ANY) for each in some])
            self.cursor_keeper.ledgers.forget(_ledgers_of(cursors))
            try:
                await self.metadata.commit([Delete(path, ANY)])
            except NotEmpty:
                continue  # a cursor came meanwhile
            except NotFound:
                pass
            return

    async def summaries(self, name: str) -> list[LedgerSummary]:
        managed = self._managed.get(name)
        if managed is not None:
            return managed.ledgers()
        stored = await self.metadata.get(path_of(name))
        found = decode_info(stored.value, name=name).ledgers if stored else []
        for summary in found:
            if not summary.sealed:
                summary.size = await self.in_thread(partial(self._size_on_disk, summary.ledger_id))
        return found

    def _size_on_disk(self, ledger_id: int) -> int:
        try:
            file = self.disk.open(ledger_path(self.root, ledger_id))
        except FileNotFoundError:
            return 0
        try:
            return file.size()
        finally:
            file.close()

    def opened(self) -> list[FilesManagedLedger]:  # type: ignore[override]
        return list(self._managed.values())

    async def close_some(self, some: list[FilesManagedLedger]) -> bool:
        """Close managed ledgers together, with one flush for all; tell whether all was kept."""
        for managed in some:
            managed.stop()
        for managed in some:
            await managed.quiet()
        await asyncio.gather(*(managed.save_cursors() for managed in some if managed.has_cursors))
        due = [(managed, last) for managed in some if (last := managed.last_checkpoint()) is not None]
        try:
            if due:
                await self.keep([last for _, last in due])
                # The store writes down together what is committed together.
                await asyncio.gather(*(managed.checkpoints.note_closed(last) for managed, last in due))
        except (LedgerError, MetadataError) as error:
            _log.error("the last checkpoint failed; the next start will recover: %s", error)
            return False
        finally:
            for managed in some:
                managed.let_files_go()
                self._managed.pop(managed.name, None)
            for managed in some:
                managed.tell_closed()
        return True

    async def close(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush()
        if self._journal is not None:
            await self._journal.close()
        for managed in self.opened():
            managed.stop()
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        for managed in self.opened():
            await managed.ended()  # a compaction sees that its log is closed
        kept = await self.close_some(self.opened())
        self.workers.close()
        if kept and self._journal is not None and self._journal.failed is None:
            await self._note_clean(self._journal.use)
        self.files.close()
        self._executor.shutdown()
