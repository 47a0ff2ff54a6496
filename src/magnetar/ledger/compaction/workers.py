"""The workers of a compaction: a thread where there is little to do, a process of its own where there is much.

The process has an interpreter lock of its own, so the event loop is not held up, and the machine code, which takes
seconds and 100 MB to load, is loaded there. It is started when it is first needed, serves one run after the other, and
ends when it had nothing to do for a while or its pipe is closed, also because this process was killed
(`magnetar.ledger.compaction.process`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from magnetar.ledger.compaction.job import Copies, InThread, Job, Worker
from magnetar.ledger.port import StoredEntry

if TYPE_CHECKING:
    from magnetar.ledger.compaction.passes import Passes
    from magnetar.ledger.compaction.process import ProcessWorker

LARGE_BYTES = 1 << 20
"""To compact so much takes plain Python about as long as to start a process that has machine code."""


def _begun(job: Job, machine: Any) -> Passes:
    from magnetar.ledger.compaction.passes import Passes  # most brokers have nothing to compact

    return Passes(job, machine)


class ThreadWorker(Worker):
    """Runs the passes in a thread, in plain Python unless it gets machine code."""

    def __init__(self, in_thread: InThread[Any], machine: Any = None) -> None:
        self.machine = machine
        self._in_thread = in_thread
        self._passes: Passes | None = None

    async def begin(self, job: Job) -> None:
        self._passes = await self._in_thread(lambda: _begun(job, self.machine))

    async def note(self, entries: Sequence[StoredEntry]) -> int:
        passes = self._passes
        assert passes is not None
        noted: int = await self._in_thread(lambda: passes.note(entries))
        return noted

    async def looks_back(self) -> bool:
        assert self._passes is not None
        return self._passes.looks_back()

    async def look_back(self, copies: Sequence[StoredEntry]) -> None:
        passes = self._passes
        assert passes is not None
        await self._in_thread(lambda: passes.look_back(copies))

    async def copy(self, entries: Sequence[StoredEntry], *, are_copies: bool) -> Copies:
        passes = self._passes
        assert passes is not None
        copies: Copies = await self._in_thread(lambda: passes.copy(entries, are_copies=are_copies))
        return copies

    async def end(self) -> None:
        self._passes = None


class CompactionWorkers:
    """The workers of one engine, which compacts one log at a time."""

    def __init__(self, in_thread: InThread[Any]) -> None:
        self._in_thread = in_thread
        self.thread = ThreadWorker(in_thread)
        self._process: ProcessWorker | None = None

    @property
    def process(self) -> ProcessWorker:
        """The worker that has a process of its own."""
        if self._process is None:
            from magnetar.ledger.compaction.process import ProcessWorker

            self._process = ProcessWorker(self._in_thread)
        return self._process

    def worker(self, size: int) -> Worker:
        """Return the worker for so many bytes."""
        return self.process if size >= LARGE_BYTES else self.thread

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.stop()
