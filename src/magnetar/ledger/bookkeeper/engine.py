"""The engine ``bookkeeper``: managed ledgers on the bookies of a cluster, their lists in its metadata store.

The engine that opens a log owns it: the last ledger is fenced, and the list is claimed by a change of its node. The
previous owner learns that from its next operation. This is the last line of defence; ownership decides which broker may
open what.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from magnetar.ledger.bookie_racks import RacksFollower
from magnetar.ledger.bookkeeper.bookies import Bookies
from magnetar.ledger.bookkeeper.leases import KeptLeases
from magnetar.ledger.bookkeeper.log import BookKeeperLog
from magnetar.ledger.bookkeeper.opening import CheckpointNode, SeenNodes, seen, taken_over
from magnetar.ledger.bookkeeper.shared import BookKeeperParts
from magnetar.ledger.bookkeeper.streams import CursorStates
from magnetar.ledger.bookkeeper.tail import Tail
from magnetar.ledger.bookkeeper.tiering import GRACE_MS
from magnetar.ledger.compaction.workers import CompactionWorkers
from magnetar.ledger.cursors.keeper import CursorKeeper
from magnetar.ledger.errors import LedgerCorrupt, LedgerError, metadata_failed
from magnetar.ledger.formats.cursor_info import ledger_of
from magnetar.ledger.formats.info import ManagedLedgerInfo, decode_info, path_of
from magnetar.ledger.port import (
    AppendInterceptor,
    LedgerEngine,
    LedgerPolicy,
    LedgerSummary,
    ManagedLedger,
    wall_clock_ms,
)
from magnetar.ledger.tiers.tiering import delete_doomed, doomed_objects
from magnetar.ledger.tiers.tiers import Tiers
from magnetar.metadata import ANY, Delete, MetadataError, MetadataStore, NotFound

T = TypeVar("T")
TAIL_BYTES = 64 << 20
_SEEN = 1000
_log = logging.getLogger("magnetar.ledger")


class BookKeeperEngine(LedgerEngine):
    """Logs on ``bookies``; ``metadata`` is the store that all brokers of the cluster share."""

    opens_slowly = True
    can_offload = True

    def __init__(
        self,
        bookies: Bookies,
        metadata: MetadataStore,
        *,
        clock: Callable[[], int] = wall_clock_ms,
        interceptors: Sequence[AppendInterceptor] = (),
        tail_bytes: int = TAIL_BYTES,
        make_tiers: Callable[[], Tiers] = Tiers,
    ) -> None:
        """``make_tiers`` is called when tiered storage is first needed."""
        super().__init__()
        self.bookies = bookies
        self.metadata = metadata
        self._racks = RacksFollower(metadata, bookies.place_by)
        self.leases = KeptLeases(metadata, clock)
        workers = CompactionWorkers(self._in_thread)
        self._shared = BookKeeperParts(
            bookies,
            metadata,
            clock,
            tuple(interceptors),
            Tail(tail_bytes),
            self.leases,
            workers,
            CursorKeeper(metadata, CursorStates(bookies, self.background), clock),
            asyncio.Lock(),
            self.background,
            self._dropped,
            self.release,
            self._kept,
            make_tiers,
            GRACE_MS,
        )
        self._logs: dict[str, BookKeeperLog] = {}
        self._opening: dict[str, asyncio.Future[BookKeeperLog]] = {}
        self._seen: OrderedDict[str, SeenNodes] = OrderedDict()
        """The nodes of logs that were left open and are about to be opened; one that has changed is read again."""
        self._going: dict[str, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self.bookies.connect()
        await self._racks.start()

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something in the background; `close` waits for it."""
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

    def _in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(None, call)

    def _kept(self, seconds: float, size: int) -> None:
        self.flushes.add(seconds)
        self.flushed_bytes += size

    # -- opening

    async def open(self, name: str, policy: LedgerPolicy, epoch: int = 0) -> BookKeeperLog:
        await self._gone(name)
        log = self._logs.get(name)
        if log is None:
            opening = self._opening.get(name)
            if opening is None:
                opening = self._opening[name] = asyncio.ensure_future(self._open(name, policy, epoch))
                opening.add_done_callback(lambda _: self._opening.pop(name, None))
            log = await asyncio.shield(opening)
        log.policy = policy
        return log

    async def _open(self, name: str, policy: LedgerPolicy, epoch: int) -> BookKeeperLog:
        before = self._seen.pop(name, None)
        taken = await taken_over(self.metadata, self.bookies, name, epoch, self._shared.tail, before)
        log = self._logs[name] = BookKeeperLog(self._shared, name, policy, taken)
        log.list.epoch = epoch
        return log

    def _dropped(self, log: BookKeeperLog) -> None:
        """Forget a log that was lost to another owner."""
        if self._logs.get(log.name) is log:
            del self._logs[log.name]

    # -- letting go

    async def release(self, name: str) -> None:
        while (opening := self._opening.get(name)) is not None:
            await asyncio.wait([opening])
        await self._gone(name)
        log = self._logs.get(name)
        if log is not None:
            await asyncio.shield(self.background(self._released(log, self._begin_going(name))))

    async def _released(self, log: BookKeeperLog, gone: asyncio.Future[None]) -> None:
        try:
            await log.let_go()
        finally:
            self._end_going(log.name, gone)

    def _begin_going(self, name: str) -> asyncio.Future[None]:
        gone = self._going[name] = asyncio.get_running_loop().create_future()
        return gone

    def _end_going(self, name: str, gone: asyncio.Future[None]) -> None:
        self._logs.pop(name, None)
        del self._going[name]
        gone.set_result(None)

    async def _gone(self, name: str) -> None:
        while (going := self._going.get(name)) is not None:
            await asyncio.shield(going)

    async def delete(self, name: str) -> None:
        while (opening := self._opening.get(name)) is not None:
            await asyncio.wait([opening])
        await self._gone(name)
        await asyncio.shield(self.background(self._delete(name, self._begin_going(name))))

    async def _delete(self, name: str, gone: asyncio.Future[None]) -> None:
        log = self._logs.get(name)
        try:
            info = await self._stored(name) if log is None else await log.abandon()
            ids = [each.ledger_id for each in info.files()]
            ids += await self._delete_cursors(name)
            await CheckpointNode(self.metadata, name).drop()
            notes = doomed_objects(name, info.ledgers, self._shared.clock() + self._shared.grace_ms)
            with suppress(NotFound):
                await self.metadata.commit([Delete(path_of(name), ANY), *notes])
        except MetadataError as error:
            raise metadata_failed(error) from error
        finally:
            self._end_going(name, gone)
        for ledger_id in ids:
            self.background(self.bookies.delete(ledger_id))

    async def _delete_cursors(self, name: str) -> list[int]:
        """Delete the nodes of a log's cursors; return the ledgers that held states of them."""
        found = await self.metadata.get_tree(path_of(name))
        for path in found:
            with suppress(NotFound):
                await self.metadata.commit([Delete(path, ANY)])
        return [ledger_id for stored in found.values() if (ledger_id := ledger_of(stored)) >= 0]

    # -- tiered storage

    @property
    def tiers(self) -> Tiers:
        return self._shared.tiers

    def count_tier_cache(self, held: Callable[[int], None], has_room: Callable[[], bool]) -> None:
        self._shared.counts_cache = held, has_room

    async def delete_doomed(self) -> None:
        await delete_doomed(self.metadata, lambda: self._shared.tiers, self._shared.clock())

    # -- what there is

    async def summaries(self, name: str) -> list[LedgerSummary]:
        log = self._logs.get(name)
        return log.ledgers() if log is not None else (await self._stored(name)).readable()

    async def bookie_ids(self) -> list[str]:
        return await self.bookies.ids()

    async def left_open(self, names: Sequence[str]) -> list[str]:
        try:
            nodes = await seen(self.metadata, names)
        except MetadataError as error:
            raise metadata_failed(error) from error
        found = []
        for name, each in zip(names, nodes, strict=True):
            if each.info is not None and name not in self._logs:
                with suppress(LedgerCorrupt):  # opening it raises the same
                    ledgers = decode_info(each.info.value, name=name).ledgers
                    if ledgers and not ledgers[-1].sealed:
                        found.append(name)
                        self._seen[name] = each
        while len(self._seen) > _SEEN:
            self._seen.popitem(last=False)
        return found

    async def _stored(self, name: str) -> ManagedLedgerInfo:
        try:
            stored = await self.metadata.get(path_of(name))
        except MetadataError as error:
            raise metadata_failed(error) from error
        return ManagedLedgerInfo() if stored is None else decode_info(stored.value, name=name)

    def opened(self) -> list[ManagedLedger]:
        return list(self._logs.values())

    async def close(self) -> None:
        await self._racks.close()
        for name in list(self._logs):
            await self.release(name)
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        self._shared.workers.close()
        if self._shared.used_tiers is not None:
            self._shared.used_tiers.close()
        await self.bookies.close()
