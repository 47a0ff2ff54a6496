"""The files engine: recovery at the start, and the logs that are open, which share one journal and a few threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path

from magnetar.ledger.boot import boot_id
from magnetar.ledger.cursors.keeper import CursorKeeper
from magnetar.ledger.errors import LedgerError, metadata_failed
from magnetar.ledger.files.compacting import COMPACTING
from magnetar.ledger.files.cursor_ledgers import FilesCursorLedgers
from magnetar.ledger.files.disk import Disk
from magnetar.ledger.files.journal import Journal
from magnetar.ledger.files.managed import FilesManagedLedger
from magnetar.ledger.files.recovery import Recovery
from magnetar.ledger.files.replay import JournalReplay, journal_folder, left_by_workers, remove_journal
from magnetar.ledger.files.shared import EngineParts
from magnetar.ledger.files.swap import SWAP, finish_swap
from magnetar.ledger.formats.cursor_info import decode_cursor
from magnetar.ledger.formats.info import (
    ROOT,
    ManagedLedgerInfo,
    decode_info,
    is_managed_ledger,
    path_of,
)
from magnetar.ledger.formats.layout import ledger_path
from magnetar.ledger.leases import Leases
from magnetar.ledger.ledger_list import check_epoch
from magnetar.ledger.port import (
    AppendInterceptor,
    Flush,
    LedgerEngine,
    LedgerPolicy,
    LedgerSummary,
    ManagedLedger,
    wall_clock_ms,
)
from magnetar.ledger.room import Room
from magnetar.ledger.tiers.tiering import delete_doomed, doomed_objects
from magnetar.ledger.tiers.tiers import Tiers
from magnetar.metadata.blocking import BlockingStore
from magnetar.metadata.errors import MetadataError, NotEmpty, NotFound
from magnetar.metadata.ops import ANY, MUST_NOT_EXIST, Delete, Put, Stored
from magnetar.metadata.port import MetadataStore

_STATE = "/magnetar/files-engine"  # the boot, and the use up to which the journal is not needed any more
_DELETED_AT_ONCE = 1000
_log = logging.getLogger("magnetar.ledger")


def clean_use_of(metadata: BlockingStore) -> int:
    """Return the use up to which the journal is not needed any more."""
    return _clean_use(metadata.get(_STATE))


def _clean_use(stored: Stored | None) -> int:
    return int(stored.value.decode().rpartition(" ")[2]) if stored else 0


def _ledgers_of(cursors: Mapping[str, Stored]) -> list[int]:
    """Return the ledgers with states of cursors."""
    found = []
    for path, stored in cursors.items():
        try:
            found.append(decode_cursor(stored.value, name=path).ledger_id)
        except LedgerError:
            continue  # it goes as it is
    return [each for each in found if each >= 0]


class FilesEngine(LedgerEngine):
    """Managed ledgers in files below ``root``. Clock, disk and threads are arguments, so tests can replace them."""

    can_offload = True

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
        leases: Leases | None = None,
        worker: int = 0,
        make_tiers: Callable[[], Tiers] = Tiers,
    ) -> None:
        """``leases`` are those on its logs; None for files below ``root``. ``make_tiers`` is called when needed.

        ``worker`` is the number of this process among those that share the directory, each with a journal of its own;
        0 where it has the directory alone.
        """
        super().__init__()
        self.root = root
        self.worker = worker
        self.metadata = metadata
        self.shared = EngineParts(
            root,
            metadata,
            disk,
            clock=clock,
            boot=boot(),
            executor=executor or ThreadPoolExecutor(max_workers=4, thread_name_prefix="ledger"),
            flush_interval_ms=flush_interval_ms,
            interceptors=interceptors,
            leases=leases,
            on_failed=self.report_failure,
            on_written=self._made_durable,
            journal_folder=journal_folder(root, worker),
            make_tiers=make_tiers,
        )
        self.ids = self.shared.ids
        self.leases = self.shared.leases
        self._keeper = CursorKeeper(metadata, FilesCursorLedgers(self.shared), clock)
        self._managed: dict[str, FilesManagedLedger] = {}
        self._opening: dict[str, asyncio.Future[FilesManagedLedger]] = {}
        self._going: dict[str, asyncio.Future[None]] = {}
        """The logs that are being released, each with a future for when it is closed."""
        self._replay = JournalReplay(root, disk, self.shared.files, clock)

    @property
    def journal(self) -> Journal:
        """The journal; created on first use."""
        return self.shared.journal

    def _made_durable(self, seconds: float, size: int) -> None:
        self.flushes.add(seconds)
        self.flushed_bytes += size

    @property
    def room(self) -> Room:
        return self.shared.room

    @property
    def writes_for_s(self) -> float:
        journal = self.shared.begun_journal
        return 0.0 if journal is None else journal.writes_for_s

    @property
    def failed(self) -> LedgerError | None:
        journal = self.shared.begun_journal
        return None if journal is None else journal.failed

    async def start(self) -> None:
        if self.worker:
            return  # the supervisor of the workers has done it for all of them
        if await self.metadata.get(SWAP) is not None:
            # What a migration that was killed left to do.
            await self.shared.work.in_thread(lambda: finish_swap(self.root, self.metadata.blocking))
        clean_use = _clean_use(await self.metadata.get(_STATE))
        replay, left = self._replay, await self.shared.work.in_thread(self._left_by_workers)
        last_use, segments = await self.shared.work.in_thread(
            lambda: replay.read(journal_folder(self.root), clean_use)
        )
        for folder in left:
            segments += (await self.shared.work.in_thread(partial(replay.read, folder)))[1]
        if segments:
            known = await self._known_ledgers()
            await self.shared.work.in_thread(lambda: replay.write_again(segments, known))
        last_use = max(clean_use, last_use)
        self.shared.first_use = last_use + 1
        await self._note_clean(last_use)
        for folder in left:
            await self.shared.work.in_thread(partial(remove_journal, self.shared.disk, folder))

    def _left_by_workers(self) -> list[Path]:
        return left_by_workers(self.shared.disk, self.root)

    async def _note_clean(self, use: int) -> None:
        """Note that the journal up to ``use`` will not be needed again: no other process has this directory."""
        await self.metadata.commit([Put(_STATE, f"{self.shared.boot} {use}".encode(), ANY)])

    # -- recovery ----------------------------------------------------------------------------------------------

    async def _known_ledgers(self) -> set[int]:
        return {
            summary.ledger_id
            for path, stored in (await self.metadata.get_tree(ROOT)).items()
            if is_managed_ledger(path)
            for summary in decode_info(stored.value, name=path).files()
        }

    async def open(self, name: str, policy: LedgerPolicy, epoch: int = 0) -> FilesManagedLedger:
        await self._gone(name)
        managed = self._managed.get(name)
        if managed is None:
            opening = self._opening.get(name)
            if opening is None:
                opening = self._opening[name] = asyncio.ensure_future(self._open(name, policy, epoch))
                opening.add_done_callback(lambda _: self._opening.pop(name, None))
            managed = await asyncio.shield(opening)
        managed.policy = policy
        return managed

    async def _open(self, name: str, policy: LedgerPolicy, epoch: int) -> FilesManagedLedger:
        stored = await self.metadata.get(path_of(name))
        info = decode_info(stored.value, name=name) if stored else ManagedLedgerInfo()
        version = stored.version if stored else MUST_NOT_EXIST  # it is written with its first ledger
        check_epoch(info, name, epoch)
        managed = FilesManagedLedger(self.shared, self, self._keeper, name, policy, info, version)
        managed.ledger_list.epoch = epoch
        recovery = Recovery(
            self.shared.disk,
            self.root,
            name,
            info,
            replayed=self._replay.replayed,
            may_have_holes=info.properties.get("boot", self.shared.boot) != self.shared.boot,
            durable=policy.flush is Flush.always,
            boot=self.shared.boot,
        )
        if info.ledgers:
            await self.shared.work.in_thread(recovery.run)
        last = None
        if recovery.last is not None:
            last = self.shared.ledger_file(recovery.last.ledger_id, 0, recovery.last)
        managed.adopt(last, recovery)
        unfinished = info.properties.pop(COMPACTING, None)
        if unfinished is not None:
            self.shared.remove_later([int(unfinished)])  # what a compaction wrote before a crash ended it
        # A crash may have come between the commit that leaves them in tiered storage alone and the end of their files.
        self.shared.remove_later([each.ledger_id for each in info.ledgers if each.offloaded])
        if recovery.changed:
            await managed.ledger_list.change(lambda info: True)
            self.shared.remove_later(recovery.dropped)
        self._managed[name] = managed
        return managed

    def gathering(self) -> AbstractContextManager[None]:
        return self.shared.gathering

    # -- tiered storage ----------------------------------------------------------------------------------------

    @property
    def tiers(self) -> Tiers:
        return self.shared.tiers

    def count_tier_cache(self, held: Callable[[int], None], has_room: Callable[[], bool]) -> None:
        self.shared.counts_cache = held, has_room

    async def delete_doomed(self) -> None:
        if self.shared.has_doomed:
            self.shared.has_doomed = False
            try:
                await delete_doomed(self.metadata, lambda: self.shared.tiers, self.shared.clock())
            except BaseException:
                self.shared.has_doomed = True
                raise

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
            await asyncio.shield(self.shared.work.background(self._end(managed, self._begin_going(name))))

    def drop_lost(self, managed: FilesManagedLedger) -> None:
        """Drop a log that another owner took; opening it again gets its new state."""
        name = managed.name
        if self._managed.get(name) is managed and name not in self._going:
            self.shared.work.background(self._end(managed, self._begin_going(name)))

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
        """Return when the log is not being released any more."""
        while (going := self._going.get(name)) is not None:
            await asyncio.shield(going)

    async def delete(self, name: str) -> None:
        while (opening := self._opening.get(name)) is not None:
            await asyncio.wait([opening])
        await self._gone(name)
        # It continues if the caller is cancelled: otherwise files that nothing refers to any more would stay.
        await asyncio.shield(self.shared.work.background(self._delete(name, self._begin_going(name))))

    async def _delete(self, name: str, gone: asyncio.Future[None]) -> None:
        managed = self._managed.get(name)
        try:
            if managed is not None:
                await managed.end_cursors()
            if managed is None:
                stored = await self.metadata.get(path_of(name))
                info = ManagedLedgerInfo() if stored is None else decode_info(stored.value, name=name)
                await self._delete_nodes(name, info)
                self.shared.remove_later([summary.ledger_id for summary in info.files()])
                return
            async with managed.ledger_list.changing:  # what is being written of it must not come later
                await self._delete_nodes(name, managed.ledger_list.info)
                self._managed.pop(name, None)
                managed.abandon()
        except MetadataError as error:
            raise metadata_failed(error) from error
        finally:
            del self._going[name]
            gone.set_result(None)

    async def forget(self, name: str) -> None:
        while (opening := self._opening.get(name)) is not None:
            await asyncio.wait([opening])
        await self._gone(name)
        managed = self._managed.get(name)
        if managed is not None:
            await asyncio.shield(self.shared.work.background(self._forget(managed, self._begin_going(name))))

    async def _forget(self, managed: FilesManagedLedger, gone: asyncio.Future[None]) -> None:
        """Stop writing it, and remove what the other engine does not know of."""
        try:
            await managed.end_cursors()
            async with managed.ledger_list.changing:
                self._managed.pop(managed.name, None)
                managed.abandon()
        finally:
            del self._going[managed.name]
            gone.set_result(None)

    async def _delete_nodes(self, name: str, info: ManagedLedgerInfo) -> None:
        """Delete the nodes of a log in the metadata store: those of its cursors, below it, first."""
        path, notes = path_of(name), doomed_objects(name, info.ledgers)
        while True:
            cursors = await self.metadata.get_tree(path)
            below = sorted(cursors, reverse=True)
            for some in (below[at : at + _DELETED_AT_ONCE] for at in range(0, len(below), _DELETED_AT_ONCE)):
                with suppress(NotFound):
                    await self.metadata.commit([Delete(each, ANY) for each in some])
            self._keeper.ledgers.forget(_ledgers_of(cursors))
            try:
                await self.metadata.commit([Delete(path, ANY), *notes])
                self.shared.has_doomed |= bool(notes)
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
                summary.size = await self.shared.work.in_thread(
                    partial(self._size_on_disk, summary.ledger_id)
                )
        return found

    def _size_on_disk(self, ledger_id: int) -> int:
        try:
            file = self.shared.disk.open(ledger_path(self.root, ledger_id))
        except FileNotFoundError:
            return 0
        try:
            return file.size()
        finally:
            file.close()

    def opened(self) -> list[FilesManagedLedger]:  # type: ignore[override]
        return list(self._managed.values())

    async def close_some(self, some: Sequence[FilesManagedLedger]) -> bool:
        """Close managed ledgers together, with one flush for all; return whether all was stored."""
        for managed in some:
            managed.stop()
        for managed in some:
            await managed.quiet()
        await asyncio.gather(*(managed.save_cursors() for managed in some if managed.has_cursors))
        due = [(managed, last) for managed in some if (last := managed.last_checkpoint()) is not None]
        try:
            if due:
                await self.shared.flushing.keep([last for _, last in due])
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
                managed.state.tell_closed()
        return True

    async def close(self) -> None:
        shared, used = self.shared, self.shared.begun_journal
        shared.flushing.end()
        if used is not None:
            await used.close()
        for managed in self.opened():
            managed.stop()
        await shared.work.ended()
        for managed in self.opened():
            await managed.ended()  # a compaction sees that its log is closed
        kept = await self.close_some(self.opened())
        shared.workers.close()
        journal = shared.begun_journal
        if journal is not None and used is None:
            await journal.close()  # only the last checkpoints have begun it
        if kept and journal is not None and journal.failed is None:
            if self.worker:
                await shared.work.in_thread(lambda: remove_journal(shared.disk, shared.journal_folder))
            else:
                await self._note_clean(journal.use)
        shared.files.close()
        if shared.used_tiers is not None:
            shared.used_tiers.close()
        shared.work.executor.shutdown()
