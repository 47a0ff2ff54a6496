"""The late engine itself: which logs it has, and how it comes by them and lets them go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from magnetar.ledger.compaction.workers import CompactionWorkers
from magnetar.ledger.cursors.keeper import CursorKeeper
from magnetar.ledger.errors import LedgerError, metadata_failed
from magnetar.ledger.formats.info import path_of
from magnetar.ledger.port import (
    AppendInterceptor,
    LedgerEngine,
    LedgerPolicy,
    LedgerSummary,
    ManagedLedger,
    wall_clock_ms,
)
from magnetar.metadata import ANY, Delete, MemoryStore, MetadataError, MetadataStore, NotFound
from tests.engines.late.leases import LateLeases
from tests.engines.late.lists import taken_over
from tests.engines.late.log import LateLog
from tests.engines.late.store import LateStore
from tests.engines.late.streams import LateCursorLedgers

T = TypeVar("T")
_log = logging.getLogger("magnetar.ledger")


class LateEngine(LedgerEngine):
    """Logs of a `LateStore`; their cursors are in the metadata store. Others on the same two take its logs over."""

    def __init__(
        self,
        store: LateStore | None = None,
        metadata: MetadataStore | None = None,
        *,
        clock: Callable[[], int] = wall_clock_ms,
        interceptors: Sequence[AppendInterceptor] = (),
    ) -> None:
        super().__init__()
        self.store = store or LateStore()
        self.metadata = metadata or MemoryStore()
        self.clock = clock
        self.interceptors = tuple(interceptors)
        self.leases = LateLeases(self.store, clock)
        self.workers = CompactionWorkers(self._in_thread)
        self.cursor_keeper = CursorKeeper(self.metadata, LateCursorLedgers(self.store), clock)
        self.one_compaction = asyncio.Lock()
        self._logs: dict[str, LateLog] = {}
        self._opening: dict[str, asyncio.Future[LateLog]] = {}
        self._going: dict[str, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self.store.on_the_way()

    def background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside everything else; `close` waits for it."""
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
        async def later() -> T:
            await self.store.on_the_way()
            return call()

        return asyncio.ensure_future(later())

    # -- opening

    async def open(self, name: str, policy: LedgerPolicy, epoch: int = 0) -> LateLog:
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

    async def _open(self, name: str, policy: LedgerPolicy, epoch: int) -> LateLog:
        log = self._logs[name] = LateLog(self, name, policy, await taken_over(self.store, name, epoch))
        return log

    def dropped(self, log: LateLog) -> None:
        """A log was lost to another owner."""
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

    async def _released(self, log: LateLog, gone: asyncio.Future[None]) -> None:
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
            if log is not None:
                await log.abandon()
            else:
                await self.store.drop(name)
            await self._delete_cursors(name)
        except MetadataError as error:
            raise metadata_failed(error) from error
        finally:
            self._end_going(name, gone)

    async def _delete_cursors(self, name: str) -> None:
        for path in await self.metadata.get_tree(path_of(name)):
            with suppress(NotFound):
                await self.metadata.commit([Delete(path, ANY)])

    # -- what there is

    async def summaries(self, name: str) -> list[LedgerSummary]:
        log = self._logs.get(name)
        if log is not None:
            return log.ledgers()
        listed = await self.store.listed(name)
        found = [] if listed is None else listed.ledgers
        for each in found:
            if not each.sealed:
                each.size = sum(len(row.data) for row in self.store.rows(each.ledger_id))
        return found

    def opened(self) -> list[ManagedLedger]:
        return list(self._logs.values())

    async def close(self) -> None:
        for name in list(self._logs):
            await self.release(name)
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        self.workers.close()
