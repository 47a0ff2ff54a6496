"""Who looks after the workers of one data directory: it keeps their metadata, and begins each of them again.

It holds the directory's lock, and recovers what a crash left, before any of them begins. When one dies, or is silent
for longer than its session, this happens in order: it is killed (a process that was stopped, too) and waited for; what
its journal vouches for is written to its ledgers; its session ends; the others take what it owned; it is begun again.
So nothing that it had begun can still happen when another one has its topics.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from magnetar.base.errors import BrokerError
from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.half_copy import METADATA, refuse_half_a_copy
from magnetar.ledger.port import wall_clock_ms
from magnetar.logs.storage.old_names import mend_names
from magnetar.logs.storage.upgrading import upgrade
from magnetar.metadata.keeper import Keeper
from magnetar.metadata.lock import DirectoryLock
from magnetar.metadata.sqlite import SqliteStore
from magnetar.node.address_file import forget_address, tell_address
from magnetar.node.workers.doors import Doors
from magnetar.node.workers.place import WorkerPlace
from magnetar.settings.settings import Settings

LIVING = "/loadbalance/brokers"
"""Where each worker that serves is known (`magnetar.cluster.cluster_ownership`)."""
STORAGE_FAILED = 74
"""The exit status of a process whose disk failed for good: EX_IOERR of sysexits.h."""
_SOON_S = 10.0
"""A worker that lived for less is begun again after a pause, which grows."""
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.25, 10.0
_LOCK_CHECK_S = 10.0
_log = logging.getLogger("magnetar.workers")


class WorkerFailed(BrokerError):
    """A worker could not begin; its own words are in the log."""


class _Worker:
    """One of them, through all its processes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: asyncio.subprocess.Process | None = None
        self.task: asyncio.Task[None]
        self.pause_s = 0.0


class Supervisor:
    """``await start()``, then `ended` when it is to end, by itself or by `stop`."""

    def __init__(
        self, settings: Settings, doors: Doors, questions: socket.socket, lock: DirectoryLock
    ) -> None:
        """``questions`` is the socket where operators ask, which all workers listen at; ``lock`` the directory's."""
        self.settings = settings
        self.root = Path(settings.node.data_dir).absolute()
        self.status = 0
        """With which this process ends."""
        self._doors = doors
        self._questions = questions
        self._lock = lock
        self._workers = [_Worker(number + 1) for number in range(settings.node.workers)]
        self._store: SqliteStore
        self._keeper: Keeper | None = None
        self._stopping = False
        self._is_ready = False
        self._ended = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Recover, begin all workers, and return once each of them serves; raise `WorkerFailed`, storage's errors."""
        refuse_half_a_copy(self.root)
        self._store = SqliteStore(self.root / METADATA, lock=self._lock)
        try:
            await upgrade(self._store, str(self.root))
            await mend_names(self._store)
            await self._recover()
        except BaseException:
            await self._store.close()
            raise
        keeper = self._keeper = Keeper(self._store.another, self.settings.node.worker_session_ms / 1000)
        keeper.fence = self._fence
        living = await self._store.watch(LIVING)
        for worker in self._workers:
            worker.task = asyncio.ensure_future(self._look_after(worker, keeper))
            worker.task.add_done_callback(self._looked_after)
        serving = asyncio.ensure_future(self._all_serve(living))
        ended = asyncio.ensure_future(self._ended.wait())
        await asyncio.wait([serving, ended], return_when=asyncio.FIRST_COMPLETED)
        living.close()
        for each in (serving, ended):
            each.cancel()
        if self._stopping:
            if self.status:
                raise WorkerFailed("a worker could not begin; the log tells why")
            return
        self._is_ready = True
        tell_address(self.root, {**self._doors.served, "brokers": await self._brokers()})
        self._looking = asyncio.ensure_future(self._look_after_lock())

    async def _all_serve(self, living: object) -> None:
        while len(await self._store.children(LIVING)) < len(self._workers):
            await anext(living)  # type: ignore[call-overload]

    async def _brokers(self) -> list[str]:
        """Return where Kafka's clients find each worker."""
        import json

        found = []
        for stored in (await self._store.get_tree(LIVING)).values():
            for name, (host, port) in json.loads(stored.value)["endpoints"].items():
                if name.lower() not in ("pulsar", "pulsar_ssl", "http", "https", "schema-registry"):
                    found.append(f"{host}:{port}")
        return sorted(found)

    async def _recover(self) -> None:
        """Do what a process that has the directory alone does when it begins."""
        from magnetar.ledger.files.engine import FilesEngine

        engine = FilesEngine(self.root, self._store, RealDisk())
        await engine.start()
        await engine.close()

    async def stop(self, status: int = 0) -> None:
        """End all workers in order, and then be at an end."""
        self.status = self.status or status
        self._stopping = True
        for worker in self._workers:
            if worker.process is not None:
                with suppress(ProcessLookupError):
                    worker.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*(worker.task for worker in self._workers), return_exceptions=True)
        self._ended.set()

    @property
    def is_stopping(self) -> bool:
        """Whether it is about to end."""
        return self._stopping

    async def ended(self) -> None:
        """Wait until it has been stopped."""
        await self._ended.wait()

    async def close(self) -> None:
        """Let go of the directory, once it is at an end."""
        if self._keeper is None:
            return
        if self._looking is not None:
            self._looking.cancel()
        self._keeper.close()
        forget_address(self.root)
        await self._store.close()

    # -- one worker

    async def _look_after(self, worker: _Worker, keeper: Keeper) -> None:
        while not self._stopping:
            began = time.monotonic()
            status = await self._one_life(worker, keeper)
            if self._stopping:
                if status not in (0, -signal.SIGTERM, -signal.SIGINT):
                    _log.warning("worker %d ended with status %d", worker.number, status)
                    self.status = self.status or 1
                return
            if status == STORAGE_FAILED:
                _log.critical("worker %d ended because the disk failed: all end", worker.number)
                self._stop_soon(STORAGE_FAILED)
                return
            if not self._is_ready and status > 0:
                self._stop_soon(1)
                return
            lived_s = time.monotonic() - began
            worker.pause_s = (
                0.0 if lived_s > _SOON_S else min(max(2 * worker.pause_s, _FIRST_PAUSE_S), _LAST_PAUSE_S)
            )
            _log.error(
                "worker %d ended with %s after %.1f s; it is begun again",
                worker.number,
                f"signal {-status}" if status < 0 else f"status {status}",
                lived_s,
            )
            await asyncio.sleep(worker.pause_s)

    def _looked_after(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            _log.critical("a worker cannot be looked after: all end", exc_info=task.exception())
            self._stop_soon(1)

    def _stop_soon(self, status: int) -> None:
        self.status = self.status or status
        self._stopping = True
        self._stopper = asyncio.ensure_future(self.stop(status))

    async def _one_life(self, worker: _Worker, keeper: Keeper) -> int:
        """Begin a worker, and return its status once nothing of it is left."""
        mine, theirs = socket.socketpair()
        with theirs:
            place = self._place(worker.number, theirs.fileno())
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "magnetar.cli.worker",
                stdin=asyncio.subprocess.PIPE,
                pass_fds=place.descriptors,
            )
        worker.process = process
        _log.info("worker %d is process %d", worker.number, process.pid)
        if self._stopping:
            process.send_signal(signal.SIGTERM)
        serving = asyncio.ensure_future(keeper.serve(mine, worker.number))
        node = self.settings.node
        settings = self.settings.with_fields({"node_id": node.node_id + worker.number - 1})
        assert process.stdin is not None
        with suppress(ConnectionError):
            process.stdin.write(pickle.dumps((settings, place)))
            await process.stdin.drain()
            process.stdin.close()
        status = await process.wait()
        await serving
        worker.process = None
        return status

    def _place(self, number: int, store: int) -> WorkerPlace:
        return WorkerPlace(
            number,
            os.getpid(),
            self._lock.descriptors,
            store,
            self._questions.fileno(),
            self._doors.of_all,
        )

    async def _fence(self, number: int) -> None:
        """Have a worker do nothing more, and its ledgers be what it has promised that they are."""
        process = self._workers[number - 1].process
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        began = time.monotonic()
        replayed = await self._in_thread(self._replayed, number)
        _log.warning(
            "what worker %d had goes to others; its journal of %d files was replayed in %.3f s",
            number,
            replayed,
            time.monotonic() - began,
        )

    def _replayed(self, number: int) -> int:
        from magnetar.ledger.files.replay import replay_worker

        return replay_worker(self.root, number, RealDisk(), self._store.blocking, wall_clock_ms)

    async def _in_thread(self, what: Callable[[int], int], number: int) -> int:
        return await asyncio.to_thread(what, number)

    async def _look_after_lock(self) -> None:
        while True:
            await asyncio.sleep(_LOCK_CHECK_S)
            try:
                if self._lock.renew():
                    _log.error(
                        "the lock file of %s was removed or replaced by somebody, and is made again",
                        self.root,
                    )
            except Exception as error:
                _log.error("the lock file of %s cannot be looked after: %s", self.root, error)
